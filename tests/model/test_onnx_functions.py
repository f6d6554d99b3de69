"""The C++ code of onnx runs only in child processes that have limits."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import onnx.parser
import pytest
from onnx import helper

import onnxgate
from campaigns.fuzz.large_models import LARGER
from campaigns.fuzz.scaled_models import functions
from onnxgate import api
from onnxgate.core.process_pool import Call, CallFailure, CallLimits, FailedCallError, ProcessPool
from onnxgate.model import onnx_functions
from onnxgate.model.onnx_functions import OnnxError

PACKAGE = Path(onnxgate.__file__).parent
CRASHING = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 22]> g (i) => (o) { o = EyeLike <dtype = 3> (i) }'
).SerializeToString()
"""A model that crashes inference, because its input has no type. Source: onnx 1.23.2."""
GREEDY = LARGER["split-into-2-to-40"]()
MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[m] y) '
    "{ a = Relu (x) y = Concat <axis = 0> (a, a) }"
)
NATIVE_MODULES = {
    *("checker", "compose", "hub", "inliner", "onnx_cpp2py_export", "printer", "shape_inference", "utils"),
    "version_converter",
}
"""Modules of onnx that run C++ code on a model. `parser` is missing: it reads only texts that onnxgate contains."""
NATIVE_METHODS = {
    *("_infer_node_outputs", "get_context_dependent_function", "get_context_dependent_function_with_opset_version"),
    "get_type_and_shape_inference_function",
}
ALLOWED = ("model/onnx_functions.py", "runtimes/worker/")
"""Files that may use them: the module that calls them in a child process, and workers, which are child processes."""


def native_uses(tree: ast.AST) -> Iterator[str]:
    """Yield each name in a module through which it may reach C++ code of onnx that processes models."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (it.name for it in names if _is_native(it.name))
            case ast.ImportFrom(module="onnx", names=names):
                yield from (f"onnx.{it.name}" for it in names if it.name in NATIVE_MODULES or it.name == "*")
            case ast.ImportFrom(module=str(module)) if _is_native(module):
                yield module
            case ast.Attribute(value=ast.Name(id="onnx"), attr=name) if name in NATIVE_MODULES:
                yield f"onnx.{name}"
            case ast.Attribute(attr=name) if name in NATIVE_METHODS:
                yield name
            case ast.Call(func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module")):
                yield from (
                    it.value
                    for it in node.args
                    if isinstance(it, ast.Constant) and isinstance(it.value, str) and _is_native(it.value)
                )


def _is_native(module: str) -> bool:
    first, _, rest = module.partition(".")
    return first == "onnx" and rest.partition(".")[0] in NATIVE_MODULES


def test_nothing_else_reaches_native_code() -> None:
    """Every other module calls `onnx_functions`, so that a crash cannot end the gate."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    words = (*NATIVE_MODULES - {"utils"}, *NATIVE_METHODS, "onnx.utils", "import utils", "onnx import *")
    named = {name: text for name, text in texts.items() if any(word in text for word in words)}
    uses = {name: [*native_uses(ast.parse(text))] for name, text in named.items()}

    assert {} == {name: found for name, found in uses.items() if found and not name.startswith(ALLOWED)}
    assert uses["model/onnx_functions.py"]


@pytest.mark.parametrize(
    "text",
    [
        "import onnx.checker",
        "import onnx.checker as c",
        "from onnx import shape_inference",
        "from onnx.shape_inference import infer_shapes",
        "import onnx\nonnx.inliner.inline_local_functions(m)",
        "schema.get_context_dependent_function(b, t)",
        "importlib.import_module('onnx.version_converter')",
    ],
)
def test_each_way_is_noticed(text: str) -> None:
    """The scan above knows each way in which a module may reach C++ code."""
    assert [*native_uses(ast.parse(text))]


def test_results_equal_those_of_onnx() -> None:
    """A call in the child process returns what onnx returns, and raises onnx's message as an `OnnxError`."""
    inferred = onnx_functions.infer_shapes(MODEL, data_prop=True)

    assert inferred == onnx.shape_inference.infer_shapes(MODEL, data_prop=True)
    with pytest.raises(OnnxError, match="No Op registered for Nothin"):
        onnx_functions.check_model(MODEL.SerializeToString().replace(b"Concat", b"Nothin"))


FUNCTIONS = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18, "l" : 1]>
    g (float[2] x) => (y) <float[N] a> { a, b = l.f (x) c = l.g <to = 7> (b) y = Concat <axis = 0> (c, c) }
    <domain: "l", opset_import: ["" : 18, "l" : 1]> f (i) => (o, p) { o = Relu (i) p = l.g <to = 10> (o) }
    <domain: "l", opset_import: ["" : 18]> g <to> (i) => (o) { o = Cast <to: int = @to> (i) }
""")


def test_many_calls_of_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types do not depend on whether functions are inlined, and errors name the model's own nodes."""
    invalid = deepcopy(FUNCTIONS)
    invalid.functions[0].node[0].CopyFrom(helper.make_node("Concat", ["i"], ["o"], axis=5))
    followed = onnx_functions.infer_shapes(FUNCTIONS, strict_mode=True)
    with pytest.raises(OnnxError) as own:
        onnx_functions.infer_shapes(invalid, strict_mode=True)
    monkeypatch.setattr(onnx_functions, "MAX_FUNCTION_COPIES", 0)
    inlined = onnx_functions.infer_shapes(FUNCTIONS, strict_mode=True)
    with pytest.raises(OnnxError) as again:
        onnx_functions.infer_shapes(invalid, strict_mode=True)

    assert {it.name: it.type for it in followed.graph.value_info} == {
        it.name: it.type for it in inlined.graph.value_info
    }
    assert followed.graph.output == inlined.graph.output
    assert (followed.graph.node, followed.functions) == (inlined.graph.node, inlined.functions)
    assert str(own.value) == str(again.value)


def test_many_functions_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx copies the map of all functions for each call, which took 3 s for 8,000 functions."""
    monkeypatch.setattr(onnx_functions, "find_call_limits", CallLimits)  # so that this process runs the calls
    model = functions(8000)
    started = time.process_time()

    assert len(onnx_functions.infer_shapes(model, strict_mode=True).graph.value_info) == 7999
    assert time.process_time() - started < 1


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_failure_affects_one_call() -> None:
    """Crashes and huge allocations are errors of their call; later calls run in a new child process."""
    failures = []
    for data in (CRASHING, GREEDY):
        with pytest.raises(FailedCallError) as raised:
            onnx_functions.infer_shapes(data)
        failures.append(raised.value.failure.how)

    assert failures == ["crashed", "memory"]
    assert onnx_functions.infer_shapes(MODEL).graph.value_info[0].name == "a"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_failure_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call fails at once the second time, since each failure may take a minute and 4 GiB; others still run."""
    requests = []
    run = onnx_functions._OnnxProcess.run
    monkeypatch.setattr(
        onnx_functions._OnnxProcess, "run", lambda child, request: requests.append(request[2]) or run(child, request)
    )
    monkeypatch.setattr(onnx_functions, "_failures", {})
    for options in ({}, {}, {"data_prop": True}):
        with pytest.raises(FailedCallError, match="onnx's shape inference crashed"):
            onnx_functions.infer_shapes(CRASHING, **options)

    assert [(False, False, False), (False, False, True)] == requests
    with ProcessPool(1) as pool:
        limits = CallLimits(60, 4 * 2**30)
        assert [1] == pool.run([Call(count_calls, 2, int, limits)])


def count_calls(times: int) -> int:
    """Run inference that exceeds the memory limit, and return how often it ran."""
    calls = []
    infer = onnx_functions._FUNCTIONS["infer"]
    functions = {"infer": lambda *arguments: calls.append(arguments) or infer(*arguments)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_functions, "_FUNCTIONS", functions)
        for _ in range(times):
            with pytest.raises(FailedCallError, match="needed more than 4096 MiB of memory"):
                onnx_functions.infer_shapes(GREEDY)
    return len(calls)


def test_threads_share_the_child() -> None:
    """Threads get their own answers, also if the thread that made the first call has ended."""
    models = [MODEL.SerializeToString().replace(b"a", bytes([name])) for name in b"bcdefghi"]
    answers: dict[int, str] = {}

    def infer(index: int) -> None:
        answers[index] = onnx_functions.infer_shapes(models[index]).graph.value_info[0].name

    for _ in range(2):
        threads = [threading.Thread(target=infer, args=(index,)) for index in range(len(models))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert answers == dict(enumerate("bcdefghi"))


def crash(_: int) -> int:
    """Run inference that crashes."""
    onnx_functions.infer_shapes(CRASHING)
    return os.getpid()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("limits", [CallLimits(60, 4 * 2**30), CallLimits()])
def test_calls_of_a_pool(limits: CallLimits) -> None:
    """A pool's child with limits runs onnx itself and crashes; without limits, it starts a child of its own."""
    with ProcessPool(1) as pool:
        assert pool.run([Call(crash, 1, int, limits)]) == [CallFailure("crashed", "SIGSEGV")]


def test_a_pool_without_children() -> None:
    """If calls run in this process, a crash of onnx is still the failure of one call."""
    with ProcessPool(0) as pool:
        (failure,) = pool.run([Call(crash, 1, int)])

    assert isinstance(failure, CallFailure)
    assert failure.how == "crashed"


@pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux")
def test_an_interruption_ends_a_call() -> None:
    """SIGINT during a call ends the program and the child at once."""
    script = """
        import os, signal, threading, time
        from pathlib import Path
        from onnxgate.model import onnx_functions
        onnx_functions.infer_shapes(b"")
        (child,) = next(iter(onnx_functions._children.values()))._pool._children
        os.kill(child.pid, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            onnx_functions.infer_shapes(b"")
        except KeyboardInterrupt:
            print("interrupted", child.pid)
    """
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    command = [sys.executable, "-c", start + textwrap.dedent(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=20).stdout

    word, pid = printed.split()
    assert word == "interrupted"
    assert _has_ended(int(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux")
def test_the_child_ends_with_a_killed_parent() -> None:
    """The child does not outlive a gate that is killed, even while it runs a call."""
    script = """
        import os, signal
        from onnxgate.model import onnx_functions
        onnx_functions.infer_shapes(b"")
        (child,) = next(iter(onnx_functions._children.values()))._pool._children
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    pid = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20).stdout

    for _ in range(100):
        if _has_ended(int(pid)):
            break
        time.sleep(0.05)
    assert _has_ended(int(pid))


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] == "Z"
    except OSError:
        return True


WATCHED = """
    import importlib, os, sys
    from pathlib import Path

    log, main = Path(sys.argv[1]), os.getpid()

    def watch(module, name):
        real = getattr(module, name)
        def run(*arguments, **options):
            if os.getpid() == main:
                log.write_text(name)
            return real(*arguments, **options)
        setattr(module, name, run)

    for module, names in {
        "checker": ["check_model", "check_model_path", "check_node"],
        "shape_inference": ["infer_shapes", "infer_function_output_types"],
        "inliner": ["inline_local_functions", "inline_selected_functions", "inline_selected_functions2"],
        "version_converter": ["convert_version"],
        "printer": ["model_to_text", "function_to_text", "graph_to_text"],
        "defs.OpSchema": [
            "_infer_node_outputs", "get_context_dependent_function",
            "get_context_dependent_function_with_opset_version", "get_type_and_shape_inference_function",
        ],
    }.items():
        module, _, owner = module.partition(".")
        native = importlib.import_module(f"onnx.onnx_cpp2py_export.{module}")
        native = getattr(native, owner) if owner else native
        for name in names:
            if hasattr(native, name):
                watch(native, name)
"""
"""Code that writes the name of each native function that the process itself calls to a file."""
CONVERTED = """
    <ir_version: 8, opset_import: ["" : 19, "local" : 1]> g (float[2] x, bool c) => (float[m] y)
    {
        s = Shape (x)
        a = local.twice (x)
        y = If (c) <
            then_branch = t () => (float[m] p) { p = Relu (a) }, else_branch = e () => (float[m] q) { q = Abs (a) }
        >
    }
    <domain: "local", opset_import: ["" : 19]> twice (i) => (o) { o = Add (i, i) }
"""
PARTS = {
    "api": "from onnxgate import api; assert api.predict(sys.argv[2], 'onnxruntime==1.22.1')[0].verdict == 'loads'",
    "fix": """
        from onnxgate.commands.fix.definition import FixRequest, VersionLimits
        from onnxgate.commands.fix.versions import OPSET
        from onnxgate.model.reading.structure import read_structure
        path = Path(sys.argv[2])
        proto = read_structure(path)
        proto.ClearField("functions")
        OPSET.propose(FixRequest(path, proto, VersionLimits(opset=18, pinned=True), path.parent, path.parent))
    """,
    "inputs": """
        from onnxgate.inputs.branches import BranchGraph
        from onnxgate.inputs.dataflow import DataflowGraph
        from onnxgate.model.reading.structure import read_view
        graph = DataflowGraph(read_view(Path(sys.argv[2])))
        assert not graph.model.functions
        assert BranchGraph(graph.model).infer_shapes({"x": (2,)})["y"] == (2,)
    """,
    "noticed": "import onnx.checker; onnx.checker.check_model(Path(sys.argv[2]).read_bytes())",
}


@pytest.mark.parametrize("part", PARTS)
def test_the_process_of_the_gate_runs_no_native_code(tmp_path: Path, part: str) -> None:
    """Predictions of the API, fixes and the generation of inputs leave the C++ code of onnx to a child process."""
    model, log = tmp_path / "m.onnx", tmp_path / "called"
    onnx.save(onnx.parser.parse_model(CONVERTED), model)
    command = [sys.executable, "-c", textwrap.dedent(WATCHED) + textwrap.dedent(PARTS[part]), str(log), str(model)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True, cwd=tmp_path, timeout=60)

    assert log.exists() == (part == "noticed")


def test_missing_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the child process cannot be started, the prediction is unknown for this reason; the model is not blamed."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("onnxgate.core.process_pool.is_fork_safe", lambda: False)
    monkeypatch.setattr(onnx_functions, "_children", {})
    (tmp_path / "m.onnx").write_bytes(MODEL.SerializeToString())

    (prediction,) = api.predict(tmp_path / "m.onnx", "onnxruntime==1.20.1")

    assert "unknown" == prediction.verdict
    assert [f"a child process cannot be started ([Errno 2] No such file or directory: '{sys.executable}')"] == [
        it.message for it in prediction.reasons
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_child_ends_with_the_interpreter() -> None:
    """At exit, the child process is closed without a warning. A fork does not end its parent's child."""
    code = f"""
        import os, sys
        from onnxgate.model import onnx_functions
        onnx_functions.check_model({MODEL.SerializeToString()!r})
        if os.fork() == 0:
            os.close(2)
            sys.exit()
        os.wait()
        child = onnx_functions._children[os.getpid()]
        onnx_functions.check_model({MODEL.SerializeToString()!r})
        assert child is onnx_functions._children[os.getpid()]
        (process,) = child._pool._children
        os.kill(process.pid, 0)
        print(process.pid)
    """
    argv = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", textwrap.dedent(code)]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert 0 == result.returncode, result.stderr
    assert "" == result.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout), 0)
