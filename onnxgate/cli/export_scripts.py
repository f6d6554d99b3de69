"""Scripts that export models by themselves: where they call `torch.onnx.export`, and how to tell them the path."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

EXPORTS = ("torch.onnx.export", "torch.onnx.dynamo_export")
PATH_ARGUMENT = 2
"""`torch.onnx.export(model, args, f)`."""
LARGEST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ExportScript:
    """One call. `path` is relative to the config's folder."""

    path: str
    line: int
    writes: str = ""  # the path that it writes, where the script has it as a string
    option: tuple[str, ...] = ()  # words before the output's path: ("--out",), () where it is an argument by itself
    takes_path: bool = False  # the caller can say where it writes

    @property
    def command(self) -> tuple[str, ...]:
        """What writes the model to a path of our choice; empty where the script does not let us choose."""
        return ("{python}", self.path, *self.option, "{output}") if self.takes_path else ()


def find_exports(path: Path, relative: str) -> tuple[ExportScript, ...]:
    """The calls in one file; none where it is no Python."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return ()
        source = path.read_bytes()
        if b"onnx" not in source:
            return ()
        script = _Script(ast.parse(source))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(script.described(call, relative) for call in script.calls())


@dataclass(slots=True)
class _Script:
    """One parsed file, with what its names mean."""

    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)  # a name -> what was imported as it
    values: dict[str, ast.expr] = field(default_factory=dict)  # a name -> what was assigned to it last
    options: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)  # dest -> its option, its default

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=aliases):
                    self.names |= {a.asname or a.name.partition(".")[0]: _imported(a) for a in aliases}
                case ast.ImportFrom(module=str(module), names=aliases):
                    self.names |= {a.asname or a.name: f"{module}.{a.name}" for a in aliases}
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values[name] = value
                case ast.Call():
                    self.options |= _options(node)

    def calls(self) -> Iterator[ast.Call]:
        """Every export, in the file's order."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        yield from sorted((c for c in found if self._name(c.func) in EXPORTS), key=lambda call: call.lineno)

    def _name(self, expression: ast.expr) -> str:
        match expression:
            case ast.Name(id=name):
                return self.names.get(name, name)
            case ast.Attribute(value=value, attr=attribute):
                return f"{self._name(value)}.{attribute}"
        return ""

    def described(self, call: ast.Call, path: str) -> ExportScript:
        """The call, with what can be said of the path that it writes."""
        target = self._target(call)
        if isinstance(target, ast.Constant) and isinstance(target.value, str):
            return ExportScript(path, call.lineno, writes=target.value)
        if _is_first_argument(target):
            return ExportScript(path, call.lineno, takes_path=True)
        words, default = self.options.get(_destination(target), (None, ""))
        return ExportScript(path, call.lineno, default, words or (), words is not None)

    def _target(self, call: ast.Call) -> ast.expr | None:
        """The expression of the path, looked up where it is a name."""
        keywords = [keyword.value for keyword in call.keywords if keyword.arg == "f"]
        target = (*keywords, *call.args[PATH_ARGUMENT : PATH_ARGUMENT + 1], None)[0]
        for _ in range(3):
            target = _unwrapped(target)
            if isinstance(target, ast.Name) and target.id not in self.options:
                target = self.values.get(target.id, target)
        return target


def _imported(alias: ast.alias) -> str:
    return alias.name if alias.asname else alias.name.partition(".")[0]


def _unwrapped(expression: ast.expr | None) -> ast.expr | None:
    """`str(path)` and `Path(path)` are the path."""
    match expression:
        case ast.Call(func=ast.Name(id="str" | "Path"), args=[inner]):
            return inner
    return expression


def _is_first_argument(expression: ast.expr | None) -> bool:
    match expression:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="argv"), slice=ast.Constant(value=1)):
            return True
    return False


def _destination(expression: ast.expr | None) -> str:
    """`args.out` and `out` are the option whose value is called `out`."""
    match expression:
        case ast.Attribute(value=ast.Name(), attr=name) | ast.Name(id=name):
            return name
    return ""


def _options(call: ast.Call) -> Mapping[str, tuple[tuple[str, ...], str]]:
    """What `add_argument`, `click.option` and `click.argument` define."""
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
