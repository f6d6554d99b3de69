"""Find the models, scripts, dependencies and configs in a repository for `onnxgate init`."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from onnxgate.commands.init.deployed_runtimes import (
    IGNORED_FOLDERS,
    Deployments,
    find_deployments,
    select_reader,
)
from onnxgate.commands.init.export_scripts import ExportScript, find_export_scripts
from onnxgate.commands.init.text_files import UnreadableFileError, read_text
from onnxgate.core.bug_reports import note_errors
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.project.config.loader import CONFIG_NAME, PYPROJECT, find_config
from onnxgate.project.config.project import LOCK_NAME
from onnxgate.project.git import repository
from onnxgate.project.git.repository import find_git_root

EXPORT_PACKAGES = ("torch", "onnxscript")
REQUIREMENTS_GLOBS = ("requirements*.txt", "requirements/*.txt")
UNREAD_SUFFIXES = frozenset(
    {".cfg", ".csproj", ".gradle", ".json", ".kts", ".sh", ".toml", ".txt", ".xml", ".yaml", ".yml"}
)
"""Suffixes of files that may declare an engine in a form that is not read, such as `pixi.toml`."""
MAX_UNREAD_FILES, MAX_UNREAD_BYTES = 1000, 1_000_000
"""Maximum number and size of the files that are searched for the name of an engine."""
_ENGINE_NAME = re.compile(r"\b(?:onnxruntime\b(?!-extensions)|openvino\b|tract[-_]onnx\b)", re.IGNORECASE)
"""Name of an engine, or of a crate that contains it."""
MAX_ATTRIBUTE_CHECKS = 100
"""Maximum number of models for which git attributes are read."""


@dataclass(frozen=True, slots=True)
class RepositorySurvey:
    """Contents of a repository. Paths are relative to `folder`, with `/` as separator."""

    folder: Path  # where the config is written
    root: Path | None  # git's root
    models: tuple[str, ...] = ()  # tracked by git, without those of nested projects
    untracked: tuple[str, ...] = ()  # models that git does not track
    submodules: Mapping[str, int] = field(default_factory=dict)  # folder -> number of models, which git does not list
    pointers: tuple[str, ...] = ()  # models that are Git LFS pointers
    facts: tuple[ModelFacts, ...] = ()  # of the models that can be read
    uses_lfs: bool = False
    exports: tuple[ExportScript, ...] = ()
    deployments: Deployments = field(default=Deployments())
    mentions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # file that is not read -> engines in it
    requires: tuple[str, ...] = ()  # the repository's requirements of torch and onnxscript
    requirements: str = ""  # the file that contains them
    parent_config: str = ""  # a config in a folder above, which also applies to these models
    nested_configs: tuple[str, ...] = ()  # configs in folders below
    branch: str = "main"

    @property
    def below_root(self) -> str:
        """Path of the folder relative to the repository root; "" for the root."""
        if self.root is None or self.root == self.folder:
            return ""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def nested_folders(self) -> tuple[str, ...]:
        """Subfolders that contain another project with its own config."""
        return tuple(dict.fromkeys(PurePosixPath(config).parent.as_posix() for config in self.nested_configs))


def survey_repository(folder: Path) -> RepositorySurvey:
    """Find the models, scripts, dependencies and configs in a folder and its repository."""
    folder = folder.resolve()
    root = find_git_root(folder)
    nested = tuple(_find_nested_configs(folder))
    nested_folders = [PurePosixPath(config).parent for config in nested]
    tracked = [path for path in _list_files(folder, "*.onnx") if (folder / path).exists()]
    models = tuple(path for path in tracked if not set(PurePosixPath(path).parents) & set(nested_folders))
    facts, pointers = [], []
    requires, requirements, problems = _find_toolchain(folder)
    for model in models:
        # `check` reports unreadable files.
        with note_errors(model, problems), contextlib.suppress(OSError, UnreadableModel):
            if read_pointer(folder / model):
                pointers.append(model)
            elif detect_other_type(folder / model) == "":
                facts.append(read_facts(folder / model, model))
    paths = models[:MAX_ATTRIBUTE_CHECKS] or ("model.onnx",)
    filters = (root and repository.read_git_output(folder, "check-attr", "-z", "filter", "--", *paths)) or ""
    others = sorted(set(_find_files(folder, "*.onnx")) - set(tracked))
    submodules = {path: _find_submodule(folder, root, path) for path in others}
    exports = tuple(_find_all_export_scripts(folder, problems))
    deployments = _survey_deployments(folder, root, nested_folders)
    return RepositorySurvey(
        folder=folder,
        root=root,
        models=models,
        untracked=tuple(path for path in others if not submodules[path]),
        submodules=Counter(filter(None, submodules.values())),
        pointers=tuple(pointers),
        facts=tuple(facts),
        uses_lfs="lfs" in filters.split("\0")[2::3],
        exports=exports,
        deployments=replace(deployments, problems=tuple(dict.fromkeys((*problems, *deployments.problems)))),
        mentions={} if deployments.runtimes else dict(_find_mentions(folder, root)),
        requires=requires,
        requirements=requirements,
        parent_config=_find_parent_config(folder, root),
        nested_configs=nested,
        branch=_find_default_branch(folder) if root else "main",
    )


def _find_all_export_scripts(folder: Path, problems: list[str]) -> Iterator[ExportScript]:
    """Yield the export scripts. `problems` receives the files for which the search failed unexpectedly."""
    for path in _list_files(folder, "*.py"):
        with note_errors(path, problems):
            yield from find_export_scripts(folder / path, path)


def _find_submodule(folder: Path, root: Path | None, path: str) -> str:
    """Return the folder of the git submodule that contains a file; "" if none does."""
    submodule = find_git_root((folder / path).parent)
    return "" if submodule is None or submodule == root else submodule.relative_to(folder).as_posix()


def _list_files(folder: Path, pattern: str) -> list[str]:
    """Return the files that match the pattern and that git tracks; without a git repository, all matching files."""
    answer = repository.read_git_output(folder, "ls-files", "-z", "--", pattern)
    return sorted(_find_files(folder, pattern) if answer is None else filter(None, answer.split("\0")))


def _find_files(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the files that match the pattern, except those in hidden folders, npm folders and virtual environments."""
    for path in folder.rglob(pattern):
        relative = path.relative_to(folder)
        excluded = ("node_modules", "site-packages")
        if path.is_file() and not any(part.startswith(".") or part in excluded for part in relative.parts[:-1]):
            yield relative.as_posix()


def _find_nested_configs(folder: Path) -> Iterator[str]:
    """Yield the configs in subfolders, including those that git does not track yet."""
    for name in (CONFIG_NAME, PYPROJECT):
        for path in sorted(_find_files(folder, name)):
            config = folder / path
            if config.parent != folder and find_config(config.parent) == config:
                yield path


def _find_parent_config(folder: Path, root: Path | None) -> str:
    config = find_config(folder.parent) if root is not None and folder != root else None
    return "" if config is None else Path(os.path.relpath(config, folder)).as_posix()


def _survey_deployments(folder: Path, root: Path | None, nested: Iterable[PurePosixPath]) -> Deployments:
    """Find deployed packages that files below the folder declare; if there are none, search the whole repository."""
    excluded = set(nested)
    paths = [path for path in _list_files(folder, "*") if not set(PurePosixPath(path).parents) & excluded]
    found = find_deployments(folder, paths, root)
    if _has_deployed_runtime(found) or root is None or root == folder:
        return found
    above = [path for path in _list_repository(folder, root) if path.startswith("../")]
    elsewhere = find_deployments(folder, above, root)
    problems = (*found.problems, *elsewhere.problems)
    if _has_deployed_runtime(elsewhere) or not found.runtimes:
        return Deployments(elsewhere.runtimes, problems, (*found.runtimes, *elsewhere.ignored))
    return replace(found, problems=problems)


def _list_repository(folder: Path, root: Path | None) -> list[str]:
    """Return the files of the whole repository, relative to the folder."""
    if root is None or root == folder:
        return _list_files(folder, "*")
    return [Path(os.path.relpath(root / path, folder)).as_posix() for path in _list_files(root, "*")]


def _find_mentions(folder: Path, root: Path | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the files that mention engines and may declare them, but have no reader, with the names of the engines."""
    candidates = [
        path
        for path in map(PurePosixPath, _list_repository(folder, root))
        if path.suffix in UNREAD_SUFFIXES
        and not IGNORED_FOLDERS.intersection(path.parts)
        and path.name not in (CONFIG_NAME, LOCK_NAME)
        and select_reader(path.as_posix()) is None
    ]
    for path in candidates[:MAX_UNREAD_FILES]:
        with contextlib.suppress(UnreadableFileError, OSError):
            is_small = (folder / path).stat().st_size <= MAX_UNREAD_BYTES
            names = {name.lower() for name in _ENGINE_NAME.findall(read_text(folder / path))} if is_small else set()
            if names:
                yield path.as_posix(), tuple(sorted(names))


def _has_deployed_runtime(deployments: Deployments) -> bool:
    return any(not runtime.is_for_development for runtime in deployments.runtimes)


def _find_toolchain(folder: Path) -> tuple[tuple[str, ...], str, list[str]]:
    """Return the export packages in the first requirements file that contains torch, the file's path, and problems."""
    problems = []
    for pattern in REQUIREMENTS_GLOBS:
        for path in sorted(folder.glob(pattern)):
            relative = path.relative_to(folder).as_posix()
            requirements = []
            try:
                text = read_text(path)
            except UnreadableFileError as reason:
                problems.append(f"{relative}: {reason}")
                continue
            for line in text.splitlines():
                with contextlib.suppress(InvalidRequirement):
                    requirement = Requirement(line.partition("#")[0].strip())
                    if requirement.name.lower() in EXPORT_PACKAGES:
                        requirements.append(f"{requirement.name}{requirement.specifier}")
            if any(requirement.startswith("torch") for requirement in requirements):
                return tuple(requirements), relative, problems
    return (), "", problems


def _find_default_branch(folder: Path) -> str:
    """Return the default branch of the repository; `main` if it is unknown."""
    remote = repository.read_git_output(folder, "rev-parse", "--abbrev-ref", "origin/HEAD")
    if remote and remote.startswith("origin/"):
        return remote.strip().removeprefix("origin/")
    current = (repository.read_git_output(folder, "symbolic-ref", "--short", "HEAD") or "").strip()
    return current if current in ("main", "master", "trunk", "develop") else "main"
