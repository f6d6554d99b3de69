"""The survey of a repository for `onnxgate init`."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type
from onnxgate.project.git import repository
from onnxgate.project.git.repository import find_git_root

EXPORT_PACKAGES = ("torch", "onnxscript")
REQUIREMENTS_GLOBS = ("requirements*.txt", "requirements/*.txt")


@dataclass(frozen=True, slots=True)
class RepositorySurvey:
    """Contents of a repository, paths relative to `folder` with `/`."""

    folder: Path  # where the config comes to lie
    root: Path | None  # git's root
    models: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()  # models that are there and that git does not track
    facts: tuple[ModelFacts, ...] = ()  # of those models whose content is here
    uses_lfs: bool = False
    exports: tuple[ExportScript, ...] = ()
    requires: tuple[str, ...] = field(default=())  # what the repository says of torch and onnxscript
    requirements: str = ""  # the file that lists them
    branch: str = "main"

    @property
    def below_root(self) -> str:
        """Return the folder relative to git's root, "" if it is the root."""
        if self.root is None or self.root == self.folder:
            return ""
        return self.folder.relative_to(self.root).as_posix()


def survey_repository(folder: Path) -> RepositorySurvey:
    """Survey the repository of the folder."""
    folder = folder.resolve()
    root = find_git_root(folder)
    models = tuple(path for path in _list_files(folder, "*.onnx") if (folder / path).exists())
    facts = []
    for model in models:
        if detect_other_type(folder / model) == "":
            with contextlib.suppress(UnreadableModel):  # `check` says what is wrong with it
                facts.append(read_facts(folder / model, model))
    paths = models[:100] or ("model.onnx",)
    filters = (root and repository.read_git_output(folder, "check-attr", "-z", "filter", "--", *paths)) or ""
    requires, requirements = _find_toolchain(folder)
    return RepositorySurvey(
        folder=folder,
        root=root,
        models=models,
        untracked=tuple(sorted(set(_find_files(folder, "*.onnx")) - set(models))),
        facts=tuple(facts),
        uses_lfs="lfs" in filters.split("\0")[2::3],
        exports=tuple(
            script for path in _list_files(folder, "*.py") for script in find_export_scripts(folder / path, path)
        ),
        requires=requires,
        requirements=requirements,
        branch=_find_default_branch(folder) if root else "main",
    )


def _list_files(folder: Path, pattern: str) -> list[str]:
    """Return the tracked files; without git, all files."""
    answer = repository.read_git_output(folder, "ls-files", "-z", "--", pattern)
    return sorted(_find_files(folder, pattern) if answer is None else filter(None, answer.split("\0")))


def _find_files(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the files below a folder, except those in hidden folders and of npm."""
    for path in folder.rglob(pattern):
        relative = path.relative_to(folder)
        if not any(part.startswith(".") or part == "node_modules" for part in relative.parts[:-1]):
            yield relative.as_posix()


def _find_toolchain(folder: Path) -> tuple[tuple[str, ...], str]:
    """Return the requirements of the first file that names torch."""
    for pattern in REQUIREMENTS_GLOBS:
        for path in sorted(folder.glob(pattern)):
            requirements = []
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(InvalidRequirement):
                    requirement = Requirement(line.partition("#")[0].strip())
                    if requirement.name.lower() in EXPORT_PACKAGES:
                        requirements.append(f"{requirement.name}{requirement.specifier}")
            if any(requirement.startswith("torch") for requirement in requirements):
                return tuple(requirements), path.relative_to(folder).as_posix()
    return (), ""


def _find_default_branch(folder: Path) -> str:
    """Return the default branch of pull requests."""
    remote = repository.read_git_output(folder, "rev-parse", "--abbrev-ref", "origin/HEAD")
    if remote and remote.startswith("origin/"):
        return remote.strip().removeprefix("origin/")
    current = (repository.read_git_output(folder, "symbolic-ref", "--short", "HEAD") or "").strip()
    return current if current in ("main", "master", "trunk", "develop") else "main"


EXPORT_FUNCTIONS = ("torch.onnx.export", "torch.onnx.dynamo_export")
PATH_ARGUMENT = 2
"""`torch.onnx.export(model, args, f)`."""
MAX_SCRIPT_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ExportScript:
    """One call. `path` is relative to the config's folder."""

    path: str
    line: int
    writes: str = ""  # the path that it writes, where the script has it as a string
    option: tuple[str, ...] = ()  # words before the output's path: ("--out",), () for a positional argument
    takes_path: bool = False  # the caller can choose the path

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command that writes the model to a path of our choice; empty if the path is fixed."""
        return ("{python}", self.path, *self.option, "{output}") if self.takes_path else ()


def find_export_scripts(path: Path, relative: str) -> tuple[ExportScript, ...]:
    """Return the calls in one file; none if it is not Python."""
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            return ()
        source = path.read_bytes()
        if b"onnx" not in source:
            return ()
        script = _ParsedScript(ast.parse(source))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(script.described(call, relative) for call in script.calls())


@dataclass(slots=True)
class _ParsedScript:
    """One parsed file with the values of its names."""

    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)  # a name -> what was imported as it
    values: dict[str, ast.expr] = field(default_factory=dict)  # a name -> what was assigned to it last
    options: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)  # dest -> its option, its default

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=aliases):
                    for alias in aliases:
                        package = alias.name.partition(".")[0]
                        self.names[alias.asname or package] = alias.name if alias.asname else package
                case ast.ImportFrom(module=str(module), names=aliases):
                    self.names |= {a.asname or a.name: f"{module}.{a.name}" for a in aliases}
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values[name] = value
                case ast.Call():
                    self.options |= _defined_options(node)

    def calls(self) -> Iterator[ast.Call]:
        """Yield every export, in the order of the file."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        yield from sorted((c for c in calls if self._name(c.func) in EXPORT_FUNCTIONS), key=lambda call: call.lineno)

    def _name(self, expression: ast.expr) -> str:
        match expression:
            case ast.Name(id=name):
                return self.names.get(name, name)
            case ast.Attribute(value=value, attr=attribute):
                return f"{self._name(value)}.{attribute}"
        return ""

    def described(self, call: ast.Call, path: str) -> ExportScript:
        """Return the call with the path that it writes, as far as that is known."""
        words, default = None, ""
        match self._target(call):
            case ast.Constant(value=str(value)):
                return ExportScript(path, call.lineno, writes=value)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="argv"), slice=ast.Constant(value=1)):
                return ExportScript(path, call.lineno, takes_path=True)
            case ast.Attribute(value=ast.Name(), attr=name) | ast.Name(id=name):  # `args.out` or `out`
                words, default = self.options.get(name, (None, ""))
        return ExportScript(path, call.lineno, default, words or (), words is not None)

    def _target(self, call: ast.Call) -> ast.expr | None:
        """Return the expression of the path; a name is resolved."""
        keywords = [keyword.value for keyword in call.keywords if keyword.arg == "f"]
        target = (*keywords, *call.args[PATH_ARGUMENT : PATH_ARGUMENT + 1], None)[0]
        for _ in range(3):
            match target:
                case ast.Call(func=ast.Name(id="str" | "Path"), args=[inner]):
                    target = inner
            if isinstance(target, ast.Name) and target.id not in self.options:
                target = self.values.get(target.id, target)
        return target


def _defined_options(call: ast.Call) -> Mapping[str, tuple[tuple[str, ...], str]]:
    """Read the options that `add_argument`, `click.option` and `click.argument` define."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("add_argument", "option", "argument"):
        return {}
    words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if not words:
        return {}
    keywords = {
        keyword.arg: keyword.value.value for keyword in call.keywords if isinstance(keyword.value, ast.Constant)
    }
    best = max(words, key=lambda word: (word.startswith("--"), len(word)))
    destination = str(keywords.get("dest") or best.lstrip("-").replace("-", "_"))
    option = (best,) if best.startswith("-") else ()
    return {destination: (option, str(keywords.get("default") or ""))}
