"""The survey of a repository for `onnxgate init`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
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
        """The folder relative to git's root, "" if it is the root."""
        if self.root is None or self.root == self.folder:
            return ""
        return self.folder.relative_to(self.root).as_posix()


def survey_repository(folder: Path) -> RepositorySurvey:
    """Survey the repository of the folder."""
    folder = folder.resolve()
    root = find_git_root(folder)
    models, untracked = _find_models(folder)
    requires, requirements = _find_toolchain(folder)
    return RepositorySurvey(
        folder=folder,
        root=root,
        models=models,
        untracked=untracked,
        facts=tuple(_read_model_facts(folder, models)),
        uses_lfs=root is not None and _uses_lfs(folder, models),
        exports=tuple(_find_export_calls(folder)),
        requires=requires,
        requirements=requirements,
        branch=_find_default_branch(folder) if root else "main",
    )


def _find_models(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tracked = tuple(path for path in _list_files(folder, "*.onnx") if (folder / path).exists())
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx") if not _is_hidden(path, folder)}
    return tracked, tuple(sorted(there - set(tracked)))


def _list_files(folder: Path, pattern: str) -> list[str]:
    """Return the tracked models; without git, all models."""
    answer = repository.read_git_output(folder, "ls-files", "-z", "--", pattern)
    if answer is None:
        paths = (path for path in folder.rglob(pattern) if not _is_hidden(path, folder))
        return sorted(path.relative_to(folder).as_posix() for path in paths)
    return sorted(name for name in answer.split("\0") if name)


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") or part == "node_modules" for part in path.relative_to(folder).parts[:-1])


def _read_model_facts(folder: Path, models: Sequence[str]) -> Iterator[ModelFacts]:
    for model in models:
        if detect_other_type(folder / model) == "":
            try:
                yield read_facts(folder / model, model)
            except UnreadableModel:
                continue  # `check` says what is wrong with it


def _uses_lfs(folder: Path, models: Sequence[str]) -> bool:
    """Return if models are in Git LFS by git's attributes."""
    paths = models or ("model.onnx",)
    answer = repository.read_git_output(folder, "check-attr", "-z", "filter", "--", *paths[:100])
    return answer is not None and "lfs" in answer.split("\0")[2::3]


def _find_export_calls(folder: Path) -> Iterator[ExportScript]:
    for path in _list_files(folder, "*.py"):
        yield from find_export_scripts(folder / path, path)


def _find_toolchain(folder: Path) -> tuple[tuple[str, ...], str]:
    """Return the requirements of the first file that names torch."""
    for pattern in REQUIREMENTS_GLOBS:
        for path in sorted(folder.glob(pattern)):
            requirements = tuple(_read_requirements(path))
            if any(requirement.startswith("torch") for requirement in requirements):
                return requirements, path.relative_to(folder).as_posix()
    return (), ""


def _read_requirements(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            requirement = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:
            continue
        if requirement.name.lower() in EXPORT_PACKAGES:
            yield f"{requirement.name}{requirement.specifier}"


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
        """The command that writes the model to a path of our choice; empty if the path is fixed."""
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
                    self.names |= {a.asname or a.name.partition(".")[0]: _import_target(a) for a in aliases}
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
        target = self._target(call)
        if isinstance(target, ast.Constant) and isinstance(target.value, str):
            return ExportScript(path, call.lineno, writes=target.value)
        if _is_first_argument(target):
            return ExportScript(path, call.lineno, takes_path=True)
        words, default = self.options.get(_option_name(target), (None, ""))
        return ExportScript(path, call.lineno, default, words or (), words is not None)

    def _target(self, call: ast.Call) -> ast.expr | None:
        """Return the expression of the path; a name is resolved."""
        keywords = [keyword.value for keyword in call.keywords if keyword.arg == "f"]
        target = (*keywords, *call.args[PATH_ARGUMENT : PATH_ARGUMENT + 1], None)[0]
        for _ in range(3):
            target = _unwrap_path(target)
            if isinstance(target, ast.Name) and target.id not in self.options:
                target = self.values.get(target.id, target)
        return target


def _import_target(alias: ast.alias) -> str:
    return alias.name if alias.asname else alias.name.partition(".")[0]


def _unwrap_path(expression: ast.expr | None) -> ast.expr | None:
    """Return the path within `str(path)` and `Path(path)`."""
    match expression:
        case ast.Call(func=ast.Name(id="str" | "Path"), args=[inner]):
            return inner
    return expression


def _is_first_argument(expression: ast.expr | None) -> bool:
    match expression:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="argv"), slice=ast.Constant(value=1)):
            return True
    return False


def _option_name(expression: ast.expr | None) -> str:
    """Return the option whose value is called `args.out` or `out`."""
    match expression:
        case ast.Attribute(value=ast.Name(), attr=name) | ast.Name(id=name):
            return name
    return ""


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
