"""Find calls to `torch.onnx.export` in Python files without running the files."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxgate.core.files import open_regular

EXPORT_FUNCTIONS = ("torch.onnx.export", "torch.onnx.dynamo_export")
PATH_ARGUMENT = 2
"""Index of the output path in the arguments of `torch.onnx.export(model, args, f)`."""
MAX_SCRIPT_BYTES = 1_000_000
MAX_INPUTS_LENGTH = 80
SOURCE_SETTINGS = ("input_names", "output_names", "dynamic_shapes", "dynamic_axes", "dynamo")
"""Keyword arguments of `torch.onnx.export` that a source can return in addition to the module and its inputs."""


@dataclass(frozen=True, slots=True)
class ExportScript:
    """One call to `torch.onnx.export`. `path` is the script, relative to the config's folder."""

    path: str
    line: int
    writes: str = ""  # the path that it writes, if the script has it as a string
    option: tuple[str, ...] = ()  # words before the output's path: ("--out",), () for a positional argument
    takes_path: bool = False  # the caller can choose the path
    source: str = ""  # a function that returns the module and its inputs: "model.py:build"
    builder: str = ""  # without a source: a function that returns only the module: "model.py:build"
    inputs: str = ""  # a tuple of example inputs, as code that only needs torch: "(torch.zeros(1, 4),)"
    settings: tuple[str, ...] = ()  # arguments of the call that change the exported model: "input_names"

    @property
    def command(self) -> tuple[str, ...]:
        """The command that runs the script with a given output path; empty if the output path is fixed."""
        return ("{python}", self.path, *self.option, "{output}") if self.takes_path else ()


def find_export_scripts(path: Path, relative: str) -> tuple[ExportScript, ...]:
    """Return the calls to `torch.onnx.export` in a Python file, whose path in the project is `relative`."""
    script = _parse_script(path, "onnx")
    if script is None:
        return ()
    folder = path.parents[relative.count("/")] if path.as_posix().endswith(f"/{relative}") else path.parent
    found = []
    for call in script.calls():
        source = _locate_function(script, script.builder_of(call), path, folder, relative, script.builders())
        builder = "" if source else _locate_function(script, script.module_builder_of(call), path, folder, relative)
        inputs = script.inputs_of(call) if builder else ""
        found.append(replace(script.described(call, relative), source=source, builder=builder, inputs=inputs))
    return tuple(found)


def _parse_script(path: Path, word: str) -> _ParsedScript | None:
    """Return the parsed file; None if it is not a Python file, is too large, or does not contain `word`."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_SCRIPT_BYTES:
                return None
            content = file.read()
        return _ParsedScript(ast.parse(content)) if word.encode() in content else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _locate_function(
    script: _ParsedScript, name: str, path: Path, folder: Path, relative: str, fallbacks: Sequence[str] = ()
) -> str:
    """Return `file.py:function` for the function with this name; "" if it cannot be imported.

    If the name is empty, `fallbacks` are tried, of which exactly one must be usable.
    """
    module, _, imported = script.names.get(name, "").rpartition(".")
    if not module:
        candidates = [name] if name else fallbacks
        usable = [candidate for candidate in candidates if script.can_build(candidate)]
        return f"{relative}:{usable[0]}" if len(usable) == 1 and script.is_importable else ""
    for base in dict.fromkeys((path.parent, folder)):
        file = base.joinpath(*module.split(".")).with_suffix(".py")
        other = _parse_script(file, imported) if file.is_relative_to(folder) else None
        if other is not None and other.is_importable and other.can_build(imported):
            return f"{file.relative_to(folder).as_posix()}:{imported}"
    return ""


@dataclass(slots=True)
class _ParsedScript:
    """A parsed Python file, with its imports, assignments and command-line options."""

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
        """Yield the calls to `torch.onnx.export` in the order of their lines."""
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
        """Describe a call to `torch.onnx.export` as an `ExportScript`, with its output path if that is known."""
        words, default = None, ""
        settings = tuple(keyword.arg for keyword in call.keywords if keyword.arg in SOURCE_SETTINGS)
        match self._target(call):
            case ast.Constant(value=str(value)):
                return ExportScript(path, call.lineno, writes=value, settings=settings)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="argv"), slice=ast.Constant(value=1)):
                return ExportScript(path, call.lineno, takes_path=True, settings=settings)
            case ast.Attribute(value=ast.Name(), attr=name) | ast.Name(id=name):  # `args.out` or `out`
                words, default = self.options.get(name, (None, ""))
        return ExportScript(path, call.lineno, default, words or (), words is not None, settings=settings)

    def builder_of(self, call: ast.Call) -> str:
        """Return the name of the function that returns the module and the inputs for a call to `torch.onnx.export`, or
        "".
        """
        match call.args[:1]:
            case [ast.Starred(value=ast.Call(func=ast.Name(id=name), args=[], keywords=[]))]:
                return name  # `torch.onnx.export(*build(), path)`
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        module, inputs = (
            call.args[position] if len(call.args) > position else keywords.get(name)
            for position, name in enumerate(("model", "args"))
        )
        for node in ast.walk(self.tree):
            match node, module, inputs:
                case (
                    ast.Assign(
                        targets=[ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)])],
                        value=ast.Call(func=ast.Name(id=name), args=[], keywords=[]),
                    ),
                    ast.Name(id=used_module),
                    ast.Name(id=used_inputs),
                ) if (first, second) == (used_module, used_inputs):
                    return name
        return ""

    def module_builder_of(self, call: ast.Call) -> str:
        """Return the name of the function that returns only the module for a call to `torch.onnx.export`, or ""."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        module = call.args[0] if call.args else keywords.get("model")
        if isinstance(module, ast.Name):
            module = self.values.get(module.id)
        if isinstance(module, ast.Call) and isinstance(module.func, ast.Attribute) and module.func.attr == "eval":
            module = module.func.value  # `build().eval()`
        match module:
            case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
                return name
        return ""

    def inputs_of(self, call: ast.Call) -> str:
        """Return the inputs of a call to `torch.onnx.export` as code for a tuple; "" if it needs more than torch."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        inputs = call.args[1] if len(call.args) > 1 else keywords.get("args")
        if isinstance(inputs, ast.Name):
            inputs = self.values.get(inputs.id)
        names = {node.id for node in ast.walk(inputs) if isinstance(node, ast.Name)} if inputs else set()
        if inputs is None or names != {"torch"} or self.names.get("torch") != "torch":
            return ""
        code = ast.unparse(inputs)
        code = code if isinstance(inputs, ast.Tuple) else f"({code},)"
        return code if len(code) <= MAX_INPUTS_LENGTH else ""

    def builders(self) -> list[str]:
        """Return the names of the functions in the file that return a module and its inputs."""
        functions = [node for node in self.tree.body if isinstance(node, ast.FunctionDef)]
        return [node.name for node in functions if _returns_module_and_inputs(node)]

    def can_build(self, name: str) -> bool:
        """Return whether the file defines a function of this name that can be called without arguments."""
        return any(
            isinstance(node, ast.FunctionDef)
            and node.name == name
            and len(node.args.defaults) == len(node.args.posonlyargs) + len(node.args.args)
            and None not in node.args.kw_defaults
            and not node.decorator_list
            for node in self.tree.body
        )

    @property
    def is_importable(self) -> bool:
        """Return whether importing the file neither exports a model nor parses the command line."""
        statements = [
            node
            for node in self.tree.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not _is_main_guard(node)
        ]
        calls = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)]
        return not any(
            self._name(call.func) in EXPORT_FUNCTIONS
            or (isinstance(call.func, ast.Attribute) and call.func.attr == "parse_args")
            for call in calls
        )

    def _target(self, call: ast.Call) -> ast.expr | None:
        """Return the expression for the output path of an export call. A variable is replaced by its value."""
        keywords = [keyword.value for keyword in call.keywords if keyword.arg == "f"]
        target = (*keywords, *call.args[PATH_ARGUMENT : PATH_ARGUMENT + 1], None)[0]
        for _ in range(3):
            match target:
                case ast.Call(func=ast.Name(id="str" | "Path"), args=[inner]):
                    target = inner
            if isinstance(target, ast.Name) and target.id not in self.options:
                target = self.values.get(target.id, target)
        return target


def _returns_module_and_inputs(function: ast.FunctionDef) -> bool:
    """Return whether every `return` of a function returns a module and its inputs.

    The returned value must be a pair of the module and a tuple or tensor, or a mapping with `model` and `args`.
    """
    results = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(results) and all(map(_is_module_with_inputs, results))


def _is_module_with_inputs(result: ast.expr | None) -> bool:
    match result:
        case ast.Tuple(elts=[ast.Name() | ast.Call(), ast.Tuple()]):
            return True
        case ast.Tuple(elts=[ast.Name() | ast.Call(), ast.Call(func=ast.Attribute(value=ast.Name(id="torch")))]):
            return True
        case ast.Dict(keys=keys):
            return {"model", "args"} <= {key.value for key in keys if isinstance(key, ast.Constant)}
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return {"model", "args"} <= {keyword.arg for keyword in keywords}
    return False


def _is_main_guard(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False


def _defined_options(call: ast.Call) -> Mapping[str, tuple[tuple[str, ...], str]]:
    """Return the options that a call to `add_argument`, `click.option` or `click.argument` defines."""
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
