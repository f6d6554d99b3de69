"""Functions of onnx that run C++ code on a model. A crash, hang or huge allocation never affects the calling process.

In a call of a process pool that has limits, as in all static analysis, they run directly, unless failed calls are
recorded. In any other process they run in a child process, which is started on first use, shared by all threads and
replaced after a failure. Nothing else may call the C++ code of onnx on a model, except for look-ups in `onnx.defs`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from onnxgate.core.process_pool import (
    Call,
    CallFailure,
    CallLimits,
    FailedCallError,
    FailedStartError,
    ProcessPool,
    describe_exceeded_memory,
    find_call_limits,
)
from onnxgate.model.onnx_package import defer_initialization

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto
    from onnx.defs import OpSchema

CALL_TIME_S = 60
BYTES_PER_S = 10 * 2**20
"""Size of a model in bytes for which the time limit of a call grows by a second, as in `gate/static`."""
CALL_MEMORY_BYTES = 4 * 2**30
"""Memory limit of the child process in bytes, in addition to four times the size of the model, as in `gate/static`."""
MAX_FUNCTION_COPIES = 1_000_000
"""Maximum product of local functions and calls for which onnx itself follows the calls during shape inference.

Source: onnx 1.23.2 takes 0.04 s for 1,000 functions that are called once each, 0.63 s for 4,000 and 2.9 s for 8,000.
"""


_DOING = "a function of onnx"
_NAMES = {"check": "onnx's checker", "infer": "onnx's shape inference", "inline": "onnx's inliner"}
_MAX_FAILURES = 64
_failures: dict[tuple[object, ...], CallFailure] = {}
"""The failed calls of this process. None is repeated, because a failure may take a minute and 4 GiB."""


class OnnxError(Exception):
    """An error that onnx reports about a model."""


_failed_calls: ContextVar[dict[str, str] | None] = ContextVar("failed_calls", default=None)


@contextmanager
def record_failed_calls(reasons: dict[str, str]) -> Iterator[None]:
    """Let `ignore_error` add the reason of each failed call to `reasons`, with a hint. Calls use a child process."""
    token = _failed_calls.set(reasons)
    try:
        yield
    finally:
        _failed_calls.reset(token)


def ignore_error(error: OnnxError | FailedCallError) -> None:
    """Allow the caller to continue without the result of a function, but record a failed call.

    Raises:
        FailedCallError: a call failed, and nothing records this.
    """
    if isinstance(error, FailedCallError):
        reasons = _failed_calls.get()
        if reasons is None:
            raise error
        reasons[error.message] = error.hint or ""


def check_model(model: bytes) -> None:
    """Run `onnx.checker` on a serialized model.

    Raises:
        OnnxError: the model is invalid.
        FailedCallError: the child process crashed or exceeded a limit.
    """
    _run("check", model)


def infer_shapes(
    model: ModelProto | bytes, *, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> ModelProto:
    """Return a copy of the model with inferred types and shapes.

    Raises:
        OnnxError: inference failed.
        FailedCallError: the child process crashed or exceeded a limit.
    """
    options = (check_type, strict_mode, data_prop)
    if not isinstance(model, bytes) and _calls_many_functions(model):
        with suppress(OnnxError):  # raised below, with the names of the model's own nodes
            return _infer_without_calls(model, options)
    return _parse(_run("infer", _serialize(model), *options))


def _calls_many_functions(model: ModelProto) -> bool:
    """Return whether onnx would copy its map of all local functions for too many calls, and inlining is equivalent."""
    functions, graph = model.functions, model.graph
    if not functions or any(it.HasField("g") or it.graphs for node in graph.node for it in node.attribute):
        return False
    imports = {(it.domain, it.version) for it in model.opset_import}
    if not all((it.domain, it.version) in imports for function in functions for it in function.opset_import):
        return False
    keys = {(function.domain, function.name) for function in functions}
    nodes = (node for holder in (graph, *functions) for node in holder.node)
    return len(functions) * sum((node.domain, node.op_type) in keys for node in nodes) > MAX_FUNCTION_COPIES


def _infer_without_calls(model: ModelProto, options: tuple[bool, bool, bool]) -> ModelProto:
    """Infer the types of a main graph without subgraphs from its copy with inlined functions.

    Source: 6,000 random models: the same errors; the same types, except that a few shapes are known only by inlining.
    """
    typed = _parse(_run("infer", _serialize(inline_local_functions(model)), *options)).graph
    inferred = type(model)()
    inferred.CopyFrom(model)
    names = {name for node in model.graph.node for name in node.output}
    names.update(value.name for value in model.graph.value_info)
    inferred.graph.ClearField("value_info")
    inferred.graph.value_info.extend(value for value in typed.value_info if value.name in names)
    inferred.graph.ClearField("output")
    inferred.graph.output.extend(typed.output)
    return inferred


def inline_local_functions(model: ModelProto) -> ModelProto:
    """Return a copy of the model without local functions.

    Raises:
        OnnxError: a call is invalid.
        FailedCallError: the child process crashed or exceeded a limit.
    """
    return _parse(_run("inline", _serialize(model)))


def inline_operators(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return a copy of the model in which operators of `ai.onnx` are replaced by their function bodies.

    Raises:
        OnnxError: a node is invalid, or the installed onnx is older than 1.20.
        FailedCallError: the child process crashed or exceeded a limit.
    """
    return _parse(_run("inline-operators", _serialize(model), *names))


def convert_version(model: bytes, opset: int) -> bytes:
    """Return the serialized model, converted to an opset of `ai.onnx`.

    Raises:
        OnnxError: the model cannot be converted.
        FailedCallError: the child process crashed or exceeded a limit.
    """
    return bytes(_run("convert", model, opset))


def find_unconvertible_operators(model: bytes, opset: int) -> list[str]:
    """Return the operators of the main graph whose nodes cannot be converted alone, in the order of the nodes.

    Raises:
        OnnxError, FailedCallError: as for `convert_version`.
    """
    return bytes(_run("find-unconvertible", model, opset)).decode("utf-8", "surrogateescape").split("\0")[:-1]


def build_function_body(
    schema: OpSchema, version: int, node: NodeProto, types: Sequence[TypeProto | None]
) -> FunctionProto | None:
    """Return the body that an operator's builder in onnx creates for a node; None if it creates none.

    Raises:
        OnnxError: the node does not meet the requirements of the builder.
        FailedCallError: the child process crashed or exceeded a limit.
    """
    from onnx import FunctionProto, TypeProto

    serialized = [(value_type or TypeProto()).SerializeToString() for value_type in types]
    operator = (schema.name, schema.since_version, schema.domain)
    data = _run("build-body", node.SerializeToString(), *operator, version, serialized)
    return FunctionProto.FromString(data) if data else None


def load_external_data(model: ModelProto, folder: Path) -> None:
    """Load the external data of a model's tensors. C++ code only opens the files, so that this process runs it.

    Raises:
        OnnxError: a location is invalid.
        OSError, ValueError: a file cannot be read, or is too short.
    """
    from onnx import checker, external_data_helper

    try:
        external_data_helper.load_external_data_for_model(model, str(folder))
    except checker.ValidationError as error:
        raise OnnxError(str(error)) from error


def _serialize(model: ModelProto | bytes) -> bytes:
    return model if isinstance(model, bytes) else bytes(model.SerializeToString())


def _parse(model: ModelProto | bytes) -> ModelProto:
    from onnx import ModelProto

    return ModelProto.FromString(model) if isinstance(model, bytes) else model


# Calls


def _run(name: str, data: bytes, *options: object) -> Any:
    """Run the function in `_FUNCTIONS` with this name. Its result is not serialized if it ran in this process."""
    if _failures and (failure := _failures.get(_identify(name, data, options))):
        raise FailedCallError(failure, _NAMES.get(name, _DOING))
    try:
        return _run_once(name, data, options)
    except FailedCallError as error:
        if len(_failures) == _MAX_FAILURES:
            _failures.clear()
        _failures[_identify(name, data, options)] = error.failure
        raise


def _run_once(name: str, data: bytes, options: tuple[object, ...]) -> Any:
    if _failed_calls.get() is None and (limits := find_call_limits()) is not None:
        try:
            return _call(name, data, options)
        except MemoryError as error:
            raise FailedCallError(describe_exceeded_memory(limits), _NAMES.get(name, _DOING)) from error
    child = _children.get(os.getpid()) or _children.setdefault(os.getpid(), _OnnxProcess())
    succeeded, result = child.run((name, data, options))
    if not succeeded:
        raise OnnxError(result.decode())
    return result


def _identify(name: str, data: bytes, options: tuple[object, ...]) -> tuple[object, ...]:
    from hashlib import sha256  # needed only after a failure

    return name, sha256(data).digest(), repr(options)


class _OnnxProcess:
    """The child process that runs the functions, and the thread that starts it.

    The system ends the child together with this thread, which ends with the calling process.
    """

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor  # not needed by static checks

        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onnx")
        self._pool = ProcessPool(1, defer_initialization)
        atexit.register(self._end, os.getpid())

    def _end(self, owner: int) -> None:
        if os.getpid() == owner:  # not in a process that was forked later
            self._pool.__exit__()

    def run(self, request: tuple[str, bytes, tuple[object, ...]]) -> tuple[bool, bytes]:
        """Return the result of `_serve`.

        Raises:
            FailedCallError: the child process crashed or exceeded a limit.
            FailedStartError: the child process cannot be started.
        """
        size_bytes = len(request[1])
        limits = CallLimits(CALL_TIME_S + size_bytes // BYTES_PER_S, CALL_MEMORY_BYTES + 4 * size_bytes)
        call: Call[Any, Any] = Call(_serve, request, tuple[bool, bytes], limits)
        try:
            future = self._thread.submit(self._pool.run, [call])
        except RuntimeError as error:
            raise FailedStartError(error) from error
        try:
            (result,) = future.result()
        except BaseException:  # an interruption must not wait for the call
            self._pool.kill()
            raise
        if isinstance(result, CallFailure):
            raise FailedCallError(result, _NAMES.get(request[0], _DOING))
        answer: tuple[bool, bytes] = result
        return answer


_children: dict[int, _OnnxProcess] = {}
"""By the ID of the calling process: a forked process starts its own child."""


def _serve(request: tuple[str, bytes, tuple[object, ...]]) -> tuple[bool, bytes]:
    """Return True and the serialized result, or False and the message of an `OnnxError`. Runs in the child process."""
    try:
        result = _call(*request)
    except OnnxError as error:
        return False, str(error).encode("utf-8", "backslashreplace")
    return True, _serialize(result)


def _call(name: str, data: bytes, options: Sequence[Any]) -> Any:
    try:
        return _FUNCTIONS[name](data, *options)
    except MemoryError:
        raise
    except _list_errors() as error:
        raise OnnxError(str(error)) from error


def _list_errors() -> tuple[type[Exception], ...]:
    from onnx.onnx_cpp2py_export import checker, defs, shape_inference, version_converter

    errors = (checker.ValidationError, shape_inference.InferenceError, version_converter.ConvertError, defs.SchemaError)
    return (*errors, RuntimeError, ValueError, LookupError, OverflowError, TypeError)


# C++ code


def _check_model(data: bytes) -> bytes:
    from onnx import checker

    checker.check_model(data)
    return b""


def _infer_shapes(data: bytes, check_type: bool, strict_mode: bool, data_prop: bool) -> ModelProto:
    from onnx import shape_inference

    return shape_inference.infer_shapes(data, check_type, strict_mode, data_prop)


def _inline_local_functions(data: bytes) -> ModelProto:
    from onnx import inliner

    return inliner.inline_local_functions(_parse(data))


def _inline_operators(data: bytes, *names: str) -> ModelProto:
    from onnx import inliner

    selected = [("", name) for name in names]
    return inliner.inline_selected_functions(_parse(data), selected, inline_schema_functions=True)


def _convert_version(data: bytes, opset: int) -> bytes:
    from onnx import version_converter

    return bytes(version_converter.convert_version(_parse(data), opset).SerializeToString())


def _build_function_body(
    data: bytes, operator: str, since: int, domain: str, version: int, types: Sequence[bytes]
) -> bytes:
    from onnx import defs

    schema = defs.get_schema(operator, since, domain)
    return bytes(schema.get_context_dependent_function_with_opset_version(version, data, list(types)))


def _find_unconvertible(data: bytes, opset: int) -> bytes:
    model = _parse(data)
    graph = _infer_shapes(data, check_type=False, strict_mode=False, data_prop=False).graph
    types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        label = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        if label not in names and not _is_convertible(model, node, types, weights, opset):
            names[label] = None
    return "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")


def _is_convertible(
    model: ModelProto,
    node: NodeProto,
    types: dict[str, ValueInfoProto],
    weights: dict[str, TensorProto],
    opset: int,
) -> bool:
    from onnx import ValueInfoProto, helper

    values = [*dict.fromkeys(name for name in node.input if name)]
    alone = helper.make_graph(
        [node],
        "node",
        [types[name] for name in values if name in types and name not in weights],
        [types.get(name) or ValueInfoProto(name=name) for name in node.output if name],
        initializer=[weights[name] for name in values if name in weights],
    )
    single = helper.make_model(alone, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        _convert_version(single.SerializeToString(), opset)
    except Exception:  # noqa: BLE001 - any error means that the node cannot be converted
        return False
    return True


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "build-body": _build_function_body,
    "check": _check_model,
    "convert": _convert_version,
    "find-unconvertible": _find_unconvertible,
    "infer": _infer_shapes,
    "inline": _inline_local_functions,
    "inline-operators": _inline_operators,
}
