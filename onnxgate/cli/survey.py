"""What a repository has that `onnxgate init` must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.baseline import git
from onnxgate.cli.export_scripts import ExportScript, find_exports
from onnxgate.config.discovery import find_root
from onnxgate.model.facts import ModelFacts

TOOLCHAIN = ("torch", "onnxscript")
REQUIREMENTS = ("requirements*.txt", "requirements/*.txt")


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found, paths relative to `folder` with `/`."""

    folder: Path  # where the config comes to lie
    root: Path | None  # git's root
    models: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()  # models that are there and that git does not track
    facts: tuple[ModelFacts, ...] = ()  # of those models whose content is here
    uses_lfs: bool = False
    exports: tuple[ExportScript, ...] = ()
    requires: tuple[str, ...] = field(default=())  # what the repository says of torch and onnxscript
    requirements: str = ""  # the file that says it
    branch: str = "main"

    @property
    def below_root(self) -> str:
        """The folder as seen from git's root, "" where they are the same."""
        if self.root is None or self.root == self.folder:
            return ""
        return self.folder.relative_to(self.root).as_posix()


def survey(folder: Path) -> Survey:
    """Look at the repository that the folder lies in."""
    folder = folder.resolve()
    root = find_root(folder)
    models, untracked = _models(folder)
    requires, requirements = _toolchain(folder)
    return Survey(
        folder=folder,
        root=root,
        models=models,
        untracked=untracked,
        facts=tuple(_facts(folder, models)),
        uses_lfs=root is not None and _uses_lfs(folder, models),
        exports=tuple(_exports(folder)),
        requires=requires,
        requirements=requirements,
        branch=_branch(folder) if root else "main",
    )


def _models(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tracked = tuple(path for path in _listed(folder, "*.onnx") if (folder / path).exists())
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx") if not _is_hidden(path, folder)}
    return tracked, tuple(sorted(there - set(tracked)))


def _listed(folder: Path, pattern: str) -> list[str]:
    """What git tracks; without git, what is there."""
    answer = git.answer(folder, "ls-files", "-z", "--", pattern)
    if answer is None:
        paths = (path for path in folder.rglob(pattern) if not _is_hidden(path, folder))
        return sorted(path.relative_to(folder).as_posix() for path in paths)
    return sorted(name for name in answer.split("\0") if name)


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") or part == "node_modules" for part in path.relative_to(folder).parts[:-1])


def _facts(folder: Path, models: Sequence[str]) -> Iterator[ModelFacts]:
    from onnxgate.model.identify import really
    from onnxgate.model.reading import read_facts
    from onnxgate.model.structure import UnreadableModel

    for model in models:
        if really(folder / model) == "":
            try:
                yield read_facts(folder / model, model)
            except UnreadableModel:
                continue  # `check` says what is wrong with it


def _uses_lfs(folder: Path, models: Sequence[str]) -> bool:
    """Whether git's attributes send models to Git LFS."""
    paths = models or ("model.onnx",)
    answer = git.answer(folder, "check-attr", "-z", "filter", "--", *paths[:100])
    return answer is not None and "lfs" in answer.split("\0")[2::3]


def _exports(folder: Path) -> Iterator[ExportScript]:
    for path in _listed(folder, "*.py"):
        yield from find_exports(folder / path, path)


def _toolchain(folder: Path) -> tuple[tuple[str, ...], str]:
    """What the first requirements file that names torch asks for."""
    for pattern in REQUIREMENTS:
        for path in sorted(folder.glob(pattern)):
            found = tuple(_requirements(path))
            if any(requirement.startswith("torch") for requirement in found):
                return found, path.relative_to(folder).as_posix()
    return (), ""


def _requirements(path: Path) -> Iterator[str]:
    from packaging.requirements import InvalidRequirement, Requirement

    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            requirement = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:
            continue
        if requirement.name.lower() in TOOLCHAIN:
            yield f"{requirement.name}{requirement.specifier}"


def _branch(folder: Path) -> str:
    """The branch that pull requests go to."""
    remote = git.answer(folder, "rev-parse", "--abbrev-ref", "origin/HEAD")
    if remote and remote.startswith("origin/"):
        return remote.strip().removeprefix("origin/")
    current = (git.answer(folder, "symbolic-ref", "--short", "HEAD") or "").strip()
    return current if current in ("main", "master", "trunk", "develop") else "main"
