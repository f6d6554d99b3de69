"""Job results shared by all adapters: versions, loads, runs of cases, and output names of models."""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
from importlib import metadata
from typing import Any, Callable, Dict, Iterator, List, Optional, Pattern, Sequence, Tuple

import numpy as np

from . import arrays, failures

Phase = Callable[[str], None]
Job = Dict[str, Any]
Compute = Callable[[Dict[str, Any]], List[Any]]
"""Function that takes the inputs by name and returns one value per output; None if numpy cannot represent the value."""
Repeat = Callable[[Dict[str, Any], List[Any]], Dict[str, Any]]
"""Function that takes the inputs of a case and the paths of its outputs, and returns more fields for its result."""


def probe_result(job: Job) -> Dict[str, Any]:
    """Return the versions of the interpreter and of the installed packages that the job names."""
    packages = {}
    for name in job["packages"]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    packages = {name: version for name, version in packages.items() if version}
    return {"kind": "probe", "python": platform.python_version(), "packages": packages}


def load_result() -> Dict[str, Any]:
    """Return the result of a `Load` job for an engine without providers."""
    return {"kind": "load", "providers": []}


def run_cases(
    job: Job, phase: Phase, names: List[str], compute: Compute, repeat: Optional[Repeat] = None
) -> Dict[str, Any]:
    """Run all cases, even after failures, and return the result. `repeat` is called for the first successful case."""
    cases: List[Dict[str, Any]] = []
    for index in range(len(job["cases"])):
        succeeded = any("outputs" in result for result in cases)
        cases.append(_run_case(job, index, phase, compute, None if succeeded else repeat))
    return {"kind": "run", "providers": [], "outputs": names, "cases": cases}


def _run_case(job: Job, index: int, phase: Phase, compute: Compute, repeat: Optional[Repeat]) -> Dict[str, Any]:
    """Return the result of one case: the paths of its outputs and the fields from `repeat`, or the failure."""
    case = job["cases"][index]
    phase("case " + case["name"])
    try:
        feeds = arrays.read_feeds(case)
        paths: List[Any] = []
        for place, value in enumerate(compute(feeds)):
            path = os.path.join(job["output"], str(index), "%d.npy" % place)
            paths.append(path if arrays.write_array(path, value) else None)
        return {"outputs": paths, **(repeat(feeds, paths) if repeat else {})}
    except failures.UnusableError:
        raise
    except Exception as error:  # noqa: BLE001 - the engine's error is the result
        return {"failure": failures.describe_failure(error)}


def widen_bfloat16(bits: Any) -> Any:
    """Convert bfloat16 values, stored as uint16, to float32. They are the upper halves of the float32 values."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


@contextlib.contextmanager
def strip_from_errors(noise: Pattern[str]) -> Iterator[None]:
    """Remove text, such as locations in the engine's source code, from errors that the block raises."""
    try:
        yield
    except Exception as error:
        error.args = (noise.sub("", str(error)).strip(),)
        raise


CHUNK_ELEMENTS = 1 << 19
"""Number of elements to compare at a time, to avoid copies of large outputs."""
MAPPED_BYTES = 1 << 20
"""Maximum size of files to read into memory; larger files are memory-mapped."""
LOOSE_TOLERANCE = 1e-3
"""Allowed difference between two runs relative to the largest value, for providers without a fixed summation order."""


def find_unstable_outputs(names: Sequence[str], values: Sequence[Any], paths: Sequence[Any], exact: bool) -> List[str]:
    """Return the outputs that differ from the first run: in any bit if `exact`, otherwise beyond `LOOSE_TOLERANCE`."""
    unstable = []
    for name, value, path in zip(names, values, paths):  # noqa: B905 - Python 3.8
        again = arrays.to_storable(value)
        if path is None or again is None:
            continue
        first = np.load(path, mmap_mode="r" if os.path.getsize(path) > MAPPED_BYTES else None, allow_pickle=False)
        if not _are_same_bits(first, again) and (exact or not _are_close(first, again)):
            unstable.append(name)
    return unstable


def find_aliased_outputs(names: Sequence[str], values: Sequence[Any], feeds: Dict[str, Any]) -> List[str]:
    """Return the outputs that share memory with an input, found by changing the input.

    Inputs must be writable copies in C order.
    """
    pairs = [(name, value, fed) for name, value in zip(names, values) for fed in feeds.values()]  # noqa: B905
    return list(dict.fromkeys(name for name, value, fed in pairs if _is_aliased(value, fed)))


def _are_same_bits(first: Any, again: Any) -> bool:
    """Return whether two arrays are bit-identical; all NaNs count as equal."""
    if first.shape != again.shape:
        return False
    if first.dtype.kind in "US":
        return bool((first == again).all())
    if first.dtype != again.dtype:
        return False
    one, other = first.reshape(-1), again.reshape(-1)
    chunks = [slice(start, start + CHUNK_ELEMENTS) for start in range(0, one.size, CHUNK_ELEMENTS)]
    return all(_are_same_elements(one[chunk], other[chunk]) for chunk in chunks)


def _are_same_elements(first: Any, again: Any) -> bool:
    if first.tobytes() == again.tobytes():
        return True
    if first.dtype.kind not in "fc":
        return False
    numbers = ~(np.isnan(first) & np.isnan(again))
    return bool(first[numbers].tobytes() == again[numbers].tobytes())


def _are_close(first: Any, again: Any) -> bool:
    if first.shape != again.shape or first.dtype.kind not in "fc" or again.dtype.kind not in "fc":
        return False
    finite = np.abs(first[np.isfinite(first)])
    allowed = LOOSE_TOLERANCE * max(1.0, float(finite.max()) if finite.size else 0.0)
    return bool(np.allclose(again, first, rtol=0, atol=allowed, equal_nan=True))


def _is_aliased(value: Any, fed: Any) -> bool:
    """Return whether inverting all bits of the input changes the value. The input is restored."""
    both = isinstance(value, np.ndarray) and isinstance(fed, np.ndarray)
    if not both or not value.size or "O" in (value.dtype.kind, fed.dtype.kind):  # strings are copied
        return False
    if not np.may_share_memory(value, fed):  # comparing bounds suffices: both are contiguous
        return False
    before = value.tobytes()
    bits = fed.reshape(-1).view(np.uint8)
    np.invert(bits, out=bits)
    after = value.tobytes()
    np.invert(bits, out=bits)
    return bool(after != before)


# Reads the protobuf wire format, since engine environments do not contain `onnx`.
# Source: the encoding of Protocol Buffers, and field numbers of `onnx.proto`.
GRAPH = 7  # of ModelProto
OUTPUT = 12  # of GraphProto
NAME = 1  # of ValueInfoProto
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Span = Tuple[int, int]


def read_output_names(path: str) -> List[str]:
    """Return the output names of a model's main graph in order, for engines that rename outputs.

    Raises:
        ValueError: the file is not a model, or is truncated.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        graphs = _read_fields(data, (0, len(data)), GRAPH)
        outputs = [output for graph in graphs for output in _read_fields(data, graph, OUTPUT)]
        names = [next(_read_fields(data, output, NAME), (0, 0)) for output in outputs]
        return [bytes(data[begin:end]).decode("utf-8", "replace") for begin, end in names]


def _read_fields(data: Any, span: Span, field: int) -> Iterator[Span]:
    """Yield the start and end of each length-delimited field with this number in a protobuf message."""
    position, end = span
    while position < end:
        key, position = _read_varint(data, position, end)
        kind = key & 7
        if kind == BYTES:
            length, position = _read_varint(data, position, end)
            if key >> 3 == field:
                yield position, position + length
            position += length
        elif kind == VARINT:
            _, position = _read_varint(data, position, end)
        elif kind in (FIXED32, FIXED64):
            position += 4 if kind == FIXED32 else 8
        else:
            raise ValueError("not an ONNX model: unknown wire type %d" % kind)
    if position != end:
        raise ValueError("the model file is truncated")


def _read_varint(data: Any, position: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("the model file is truncated")
