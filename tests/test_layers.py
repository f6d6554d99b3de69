"""The package is a stack of layers: a module imports only from its own layer and those below it, without cycles."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnxgate

PACKAGE = Path(onnxgate.__file__).parent
LAYERS = (
    "cli",
    "github",
    "api",
    "commands",
    "formats",
    "gate",
    "stages",
    "rules",
    "evidence",
    "inputs",
    "numerics",
    "diagnostics",
    "runtimes",
    "project",
    "support",
    "model",
    "core",
)
"""Layers from top to bottom; this is the only list."""
ROOT_FILES = {"__init__.py", "__main__.py", "py.typed"}


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_modules(name: str) -> Iterator[str]:
    """Yield each module of the package that a module imports, including imports in functions and for type checking."""
    package = name.split(".") if FILES[name].name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], node.module or ""]).strip(".")
            base = base if node.level else node.module or ""
            for alias in node.names:
                yield from (module for module in (f"{base}.{alias.name}", base) if module in FILES)


GRAPH = {name: {module for module in imported_modules(name) if module != name} for name in FILES}


def layer(name: str) -> str:
    """Return the layer of a module, or "" for modules at the root of the package."""
    return name.split(".")[1] if name.count(".") else ""


def rings(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules that are in an import cycle or depend on one."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in free}
    return sorted(left)


def without_packages(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Remove imports of a module's own parent packages, which are always loaded before it."""
    return {
        name: {module for module in modules if not name.startswith(f"{module}.")} for name, modules in graph.items()
    }


def test_every_folder_is_a_layer() -> None:
    """Each folder has a place in the order, and the root contains no other modules."""
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}

    assert set(LAYERS) == folders
    assert files == ROOT_FILES


def test_imports_point_downwards() -> None:
    """No module imports from a higher layer."""
    order = {name: index for index, name in enumerate(LAYERS)}
    upward = [
        f"{name} -> {module}"
        for name, modules in GRAPH.items()
        for module in sorted(modules)
        if layer(name) in order and layer(module) in order and order[layer(module)] < order[layer(name)]
    ]

    assert upward == []


def test_no_import_cycles() -> None:
    """The modules can be ordered so that each comes after its imports."""
    assert rings(without_packages(GRAPH)) == []


def test_rings_are_found() -> None:
    """The search finds a cycle and excludes modules that do not depend on it."""
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_worker_imports_nothing_of_ours() -> None:
    """The worker runs with interpreters in which onnxgate is not installed."""
    worker = [name for name in FILES if name.startswith("onnxgate.runtimes.worker.")]

    assert worker
    assert [
        f"{name} -> {module}"
        for name in worker
        for module in GRAPH[name]
        if not f"{module}.".startswith("onnxgate.runtimes.worker.")
    ] == []


LAZY = {
    "signals are handled before anything else is imported": ("__main__.py",),
    "`--help` and errors at the start import no library": (
        "cli/__init__.py",
        "cli/check.py",
        "cli/shared/error_handling.py",
        "cli/shared/hint_commands.py",
        "cli/shared/options.py",
        "core/errors.py",
        "core/files.py",
        "core/text.py",
    ),
    "an unchanged static check imports neither onnx nor numpy": (
        "gate/policy/lock_changes.py",
        "gate/policy/model_changes.py",
        "inputs/case_selection.py",
        "model/quantization_parameters.py",
        "model/onnx_functions.py",
        "model/validity.py",
        "model/facts.py",
        "model/reading/fact_extraction.py",
        "model/reading/graph.py",
        "model/reading/omitted_data.py",
        "model/reading/structure.py",
        "model/reading/tensor_data.py",
        "model/subgraphs/reduced_models.py",
        "runtimes/protocol.py",
        "runtimes/environments/health.py",
        "stages/changes/file_comparison.py",
        "support/matching/function_bodies.py",
        "support/matching/constant_nodes.py",
        "support/matching/onnxruntime/simplified_graphs.py",
        "support/matching/attribute_values.py",
        "support/matching/probed/node_features.py",
        "support/matching/type_inference.py",
    ),
    "a static check loads nothing of workers, git, shards and ignore baselines": (
        "cli/shared/project_check.py",
        "cli/shared/project_request.py",
        "gate/static_cache.py",
        "gate/pipeline.py",
        "gate/results/verdict.py",
        "project/config/ignore_entries.py",
        "stages/lock.py",
        "stages/support/operator_predictions.py",
    ),
    "importing the API loads nothing of the checks": (
        "api/operators.py",
        "api/predictions.py",
        "api/pytest_plugin.py",
        "api/versions.py",
    ),
    "questions about versions import no onnx": ("support/answers/minimal_nodes.py",),
    "only children that end with their parent need it": ("core/process_pool.py",),
    "a distribution may install uv without its Python package": ("core/subprocesses.py",),
}
"""Files that import within functions, by reason.

The worker may do so everywhere: its exporters need different packages.
"""


def test_imports_within_functions_have_a_reason() -> None:
    """All other imports are at the top of their files, and each listed file has an import in a function."""
    lazy = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        inner = (node for function in functions for node in ast.walk(function))
        if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in inner):
            lazy.add(path.relative_to(PACKAGE).as_posix())

    assert {name for name in lazy if not name.startswith("runtimes/worker/")} == {
        name for names in LAZY.values() for name in names
    }


CAUGHT = {
    "the last resort of a command, or of a step of the action": (
        "cli/diff.py",
        "cli/shared/error_handling.py",
        "github/action.py",
        "github/cache.py",
        "github/comment.py",
        "github/install.py",
        "github/pull_request.py",
    ),
    "raised where the result of another thread or process is awaited": (
        *("core/process_pool.py",) * 2,
        "gate/execution/executor.py",
        *("gate/execution/toolchain.py",) * 2,
        *("runtimes/pool.py",) * 3,
    ),
    "libraries raise any error for invalid input": (
        *("inputs/branches.py",) * 2,
        *("inputs/case_files.py",) * 2,
        "model/onnx_functions.py",
        "runtimes/protocol.py",
    ),
    "a report is complete without a diagram": ("model/subgraphs/node_context.py",),
}
"""Files with an `except` clause for all errors that does not raise one, by reason; a file is repeated for each clause.

All other code catches errors about one model with `ErrorBoundary`. The worker is excluded: any error of an engine is a
result.
"""


def catches_all(node: ast.AST) -> bool:
    """Return whether a node is an `except` clause for all errors that does not raise an error."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    names = {it.id for it in ast.walk(node.type) if isinstance(it, ast.Name)} if node.type else {"BaseException"}
    return bool(names & {"Exception", "BaseException"}) and not any(isinstance(it, ast.Raise) for it in ast.walk(node))


def test_errors_about_one_model_are_caught_in_one_place() -> None:
    """An error about one model is that model's answer, with a bug report: no other code catches all errors."""
    caught = [
        name
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith("runtimes/worker/")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if catches_all(node)
    ]

    assert sorted(name for names in CAUGHT.values() for name in names) == caught


def test_an_unchanged_check_stays_light(tmp_path: Path) -> None:
    """The parent process of static stages loads neither onnx nor numpy if all results are cached."""
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    (tmp_path / ".git").mkdir()
    code = (
        "import sys; sys.argv = ['onnxgate', 'check', '--static', '--offline', '-q', 'model.onnx']\n"
        "from onnxgate.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'onnx', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        )

    assert done.stderr.splitlines()[-1] == "[]"


DATACLASSES = {
    "onnxgate.cli.shared.options.CommonOptions",  # `--help` does not import msgspec
    "onnxgate.formats.ReportFormat",
    "onnxgate.core.findings.IncompleteCheck",  # has a field that is excluded from comparison
    "onnxgate.core.findings.RuleHit",
    "onnxgate.model.subgraphs.node_context.NamedNode",
    "onnxgate.project.config.project.Project",
}
"""Dataclasses that a static check defines; each costs about 1 ms, a `msgspec.Struct` 0.02 ms."""


def test_a_static_check_defines_few_dataclasses() -> None:
    """Defining dataclasses takes a large part of the startup time of a static check."""
    code = (
        "import dataclasses\n"
        "define = dataclasses._process_class\n"
        "def record(cls, *options):\n"
        "    print(f'{cls.__module__}.{cls.__qualname__}')\n"
        "    return define(cls, *options)\n"
        "dataclasses._process_class = record\n"
        "import onnxgate.cli.check, onnxgate.cli.shared.project_check, onnxgate.formats.text\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert {name for name in done.stdout.splitlines() if name.startswith("onnxgate.")} == DATACLASSES
