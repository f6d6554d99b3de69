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
MAX_IMPORTED_FILES = 50
"""Maximum number of files of the project that are searched for exports when one file is imported."""
MAX_INPUTS_LENGTH = 80
CREATING_METHODS = ("__new__", "__init__", "__post_init__", "__call__", "__enter__")
"""Methods that run if an object is created or used without naming the method."""
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
    exporting_file: str = ""  # without a source and builder: the file of the function, whose import exports a model

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
        source, is_safe = _locate_function(script, script.builder_of(call), path, folder, relative, script.builders())
        builder, exporting_file = "", ""
        if not source:
            builder, is_safe = _locate_function(script, script.module_builder_of(call), path, folder, relative)
        if not is_safe:
            exporting_file = (source or builder).rpartition(":")[0]
            source, builder = "", ""
        inputs = script.inputs_of(call) if builder else ""
        described = script.described(call, relative)
        found.append(replace(described, source=source, builder=builder, inputs=inputs, exporting_file=exporting_file))
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
) -> tuple[str, bool]:
    """Return `file.py:function` for the function with this name, and whether importing the file exports no model.

    The location is "" if the function cannot be called without arguments, or if it exports a model itself. If the name
    is empty, `fallbacks` are tried, of which exactly one must be usable.
    """
    module, _, imported = script.names.get(name, "").rpartition(".")
    if not module:
        candidates = [name] if name else fallbacks
        usable = [candidate for candidate in candidates if script.can_build(candidate)]
        return _judge_import(script, usable[0], path, folder, relative) if len(usable) == 1 else ("", True)
    for base in dict.fromkeys((path.parent, folder)):
        file = base.joinpath(*module.split(".")).with_suffix(".py")
        other = _parse_script(file, imported) if file.is_relative_to(folder) else None
        if other is not None and other.can_build(imported):
            return _judge_import(other, imported, file, folder, file.relative_to(folder).as_posix())
    return "", True


def _judge_import(script: _ParsedScript, function: str, path: Path, folder: Path, relative: str) -> tuple[str, bool]:
    """Return the location of a function, and whether importing its file exports no model."""
    if script.parses_arguments or script.exports(function):
        return "", True
    return f"{relative}:{function}", not _exports_on_import(script, function, path, folder)


def _exports_on_import(script: _ParsedScript, function: str, path: Path, folder: Path) -> bool:
    """Return whether importing a file, or a file of the project that it or the function imports, exports a model."""
    pending, seen = [(script, path)], {path}
    while pending:
        current, file = pending.pop(0)
        if current.exports():
            return True
        for imported in current.imported_files(file, folder, function if current is script else ""):
            if imported not in seen and len(seen) < MAX_IMPORTED_FILES and imported.is_file():
                seen.add(imported)
                parsed = _parse_script(imported, "")
                pending += [(parsed, imported)] if parsed else []
    return False


@dataclass(slots=True)
class _ParsedScript:
    """A parsed Python file, with its imports, assignments and command-line options."""

    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)  # a name -> what was imported as it
    values: dict[str, ast.expr] = field(default_factory=dict)  # a name -> what was assigned to it last
    options: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)  # dest -> its option, its default

    # a name -> the bodies of the functions and methods with this name; for a class, of those that create an object; for
    # a variable, the values without calls
    functions: dict[str, list[ast.AST]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            self._index_functions(node)
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

    def _index_functions(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                self.functions.setdefault(name, []).extend(body)
            case ast.ClassDef(name=name, body=body):
                methods = [it for it in body if isinstance(it, ast.FunctionDef) and it.name in CREATING_METHODS]
                bodies = [statement for method in methods for statement in method.body]
                self.functions.setdefault(name, []).extend(bodies)
            case ast.Assign(targets=targets, value=value) if not _has_call(value):
                names = [it.id for target in targets for it in ast.walk(target) if isinstance(it, ast.Name)]
                for name in names:
                    self.functions.setdefault(name, []).append(value)

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
    def parses_arguments(self) -> bool:
        """Return whether importing the file parses the command line, which contains the arguments of onnxgate."""
        return not self.exports() and any(
            isinstance(node, ast.Attribute) and node.attr == "parse_args" for node in self._run_nodes(self.tree.body)
        )

    def exports(self, function: str = "") -> bool:
        """Return whether a call of the function or, without a name, an import of the file exports a model."""
        body = self.functions.get(function, ()) if function else self.tree.body
        return any(
            isinstance(node, (ast.Name, ast.Attribute)) and self._name(node) in EXPORT_FUNCTIONS
            for node in self._run_nodes(body)
        )

    def imported_files(self, path: Path, folder: Path, function: str = "") -> Iterator[Path]:
        """Yield the files below `folder` that an import of this file, at `path`, and a call of the function may import.

        The files may not exist.
        """
        for node in self._run_nodes([*self.tree.body, *self.functions.get(function, ())]):
            match node:
                case ast.Import(names=aliases):
                    modules, bases = [alias.name for alias in aliases], [path.parent, folder]
                case ast.ImportFrom(module=module, names=aliases, level=level):
                    prefix = [module] if module else []
                    modules = [".".join([*prefix, *names]) for names in ([], *([alias.name] for alias in aliases))]
                    bases = [path.parents[level - 1]] if 0 < level <= len(path.parents) else [path.parent, folder]
                case _:
                    continue
            parts = [module.split(".") for module in modules if module]
            packages = dict.fromkeys(tuple(names[:count]) for names in parts for count in range(1, len(names) + 1))
            for base in dict.fromkeys(bases):
                for module_path in (base.joinpath(*names) for names in packages):
                    files = (module_path.with_name(f"{module_path.name}.py"), module_path / "__init__.py")
                    yield from (file for file in files if file.is_relative_to(folder))

    def _run_nodes(self, body: Sequence[ast.AST]) -> Iterator[ast.AST]:
        """Yield the nodes that may run if `body` runs in an import, also those in functions of the file that it uses.

        A function counts as used if its name occurs, because it may be passed to another function that calls it. A
        name that is only stored in a variable counts if the variable is used.
        """
        pending, seen = list(body), set[str]()
        while pending:
            for node in _immediate_nodes(pending.pop()):
                yield node
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if name and name not in seen:
                    seen.add(name)
                    pending += self.functions.get(name, ())

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


def _has_call(expression: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(expression))


def _immediate_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with `node` in an import: neither bodies of functions nor code for `__main__`."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        match current:
            case ast.FunctionDef(decorator_list=decorators, args=arguments):
                pending += [*decorators, *arguments.defaults, *filter(None, arguments.kw_defaults)]
            case ast.AsyncFunctionDef(decorator_list=decorators, args=arguments):
                pending += [*decorators, *arguments.defaults, *filter(None, arguments.kw_defaults)]
            case ast.If(test=test, body=body, orelse=orelse) if operator := _main_guard(test):
                pending += orelse if operator == "==" else body
            case ast.Assign(targets=targets, value=value) if not _has_call(value):
                pending += [it for it in targets if not isinstance(it, ast.Name)]  # see `_run_nodes`
            case _:
                pending += ast.iter_child_nodes(current)


def _main_guard(test: ast.expr) -> str:
    """Return the operator of a comparison of `__name__` with `"__main__"`, `==` or `!=`; "" for other conditions."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return "==" if "==" in map(_main_guard, values) else ""
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as operator], comparators=[right]):
            if {getattr(left, "id", None) or getattr(left, "value", None)} | {
                getattr(right, "id", None) or getattr(right, "value", None)
            } == {"__name__", "__main__"}:
                return "==" if isinstance(operator, ast.Eq) else "!="
    return ""


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
