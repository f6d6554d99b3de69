"""Limits of runtime releases that do not depend on operators: IR version, opsets, external data.

Source: measured by `tools/harvest_support.py`, which loads the probe models of `support/probes.py` with each official
package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.version import Version

from onnxgate.core.findings import is_release_within
from onnxgate.model.reading.external_data import DataLayout, DataSpelling
from onnxgate.support import interface_types

DATA_FOLDER = Path(__file__).resolve().parent / "data"
LIMITS_SUFFIX = "-limits.json"

_WITHOUT_SPARSE_WEIGHTS = ("openvino", "tract")
"""Engines that ignore sparse initializers, so that they refuse a model whose outputs depend on one.

Source: 12 models with a sparse initializer, loaded on OpenVINO 2024.5.0, 2025.2.0 and 2026.4.1 and tract 0.21.8, 0.22.4
and 0.23.9, which also refuse sparse constants of strings.
"""
_Span = tuple[str, str]
_NEVER: _Span = ("never", "")
_ONNXRUNTIME_SPELLINGS: Mapping[DataSpelling, _Span] = {
    "signed": ("", "1.20.1"),
    "spaced": ("", "1.20.1"),
    "hexadecimal": ("1.23.0", ""),
    "prepacked": ("1.21.0", ""),
    "unknown-entry": _NEVER,
    "second-location": ("", "1.29.0"),
}
_SPELLING_SPANS: Mapping[str, Mapping[DataSpelling, _Span]] = {
    "onnxruntime": _ONNXRUNTIME_SPELLINGS,
    "onnxruntime-web": {**_ONNXRUNTIME_SPELLINGS, "null": _NEVER},
    "openvino": {"hexadecimal": _NEVER, "longer-file": _NEVER},
    "tract": dict.fromkeys(("negative-zero", "spaced", "hexadecimal", "null", "zero-length", "longer-file"), _NEVER),
}
"""First and last release of an engine that accepts a spelling of external data; all accept the others.

Source: 361 models loaded with each of 20 releases of ONNX Runtime from 1.16.3 to 1.32.0, among them those before and
after each bound; 92 models loaded with 1.15.1 and each release of the other engines in `data/`, and 100 with each of
OpenVINO.
"""
UNMEASURED: _Span = ("", "1.14.1")
"""First and last release of ONNX Runtime on which no model with such data was loaded, so that nothing is predicted."""
_UNCLEAR_SPELLINGS: Mapping[str, Mapping[DataSpelling, _Span]] = {
    "onnxruntime": dict.fromkeys(_ONNXRUNTIME_SPELLINGS, UNMEASURED),
    "openvino": dict.fromkeys(("hexadecimal", "longer-file"), ("", "2024.6.0")),
    "tract": {"second-location": ("", ""), "second-number": ("", "")},
}
"""First and last release that may read other data with a spelling, or refuse it, so that nothing is predicted.

Source: tract uses the first of two entries, the others the last. OpenVINO 2024 refuses float, double, int32, int64 and
uint64, and loads the other types.
"""


class ExternalData(msgspec.Struct, frozen=True):
    """Whether a release reads external data from each kind of location. If not, it rejects the model."""

    outside: bool  # a relative path that leads out of the folder: `../weights.bin`
    link: bool  # a symbolic link in the folder to a file outside the folder
    linked_model: bool  # model and data are both symbolic links, into one folder elsewhere
    absolute: bool  # an absolute path, even into the folder


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Newest IR version and opsets that a release accepts. Operator domains that are not in `opsets` have no limit."""

    ir: int | None  # None: no limit
    opsets: dict[str, int]
    dev_opsets: dict[str, int] = {}  # newer ones that require ALLOW_RELEASED_ONNX_OPSET_ONLY=0
    external_data: ExternalData | None = None  # None: not measured
    refused_interface_types: tuple[str, ...] = ()  # types that inputs and outputs of models cannot have


class LimitTable(msgspec.Struct, frozen=True):
    """Version limits of all measured releases of one engine, by release in ascending order."""

    engine: str
    releases: dict[str, Limits]


@functools.cache
def list_table_engines() -> tuple[str, ...]:
    """Return the engines whose support tables are shipped with onnxgate, sorted."""
    return tuple(sorted(path.name.removesuffix(LIMITS_SUFFIX) for path in DATA_FOLDER.glob(f"*{LIMITS_SUFFIX}")))


@functools.cache
def load_limit_table(engine: str = "onnxruntime") -> LimitTable:
    """Return the version limits of an engine's releases that are shipped with onnxgate; empty for other engines."""
    if engine not in list_table_engines():
        return LimitTable(engine, {})
    return msgspec.json.decode((DATA_FOLDER / f"{engine}{LIMITS_SUFFIX}").read_bytes(), type=LimitTable)


def get_limits(release: str, engine: str = "onnxruntime") -> Limits | None:
    """Return the version limits of one exact release, or None if the release was not measured."""
    return load_limit_table(engine).releases.get(str(Version(release).public))


def accepts_versions(limits: Limits, ir_version: int, opsets: dict[str, int]) -> bool:
    """Return whether a release with these limits accepts a model with the IR version and the opsets."""
    return accepts_ir_version(limits, ir_version) and all(
        version <= limits.opsets.get(domain, version) for domain, version in opsets.items()
    )


def accepts_ir_version(limits: Limits, ir_version: int) -> bool:
    """Return whether a release with these limits accepts a model with the IR version."""
    return limits.ir is None or ir_version <= limits.ir


@functools.lru_cache(maxsize=256)
def find_first_release_for_ir(ir_version: int, engine: str = "onnxruntime") -> str:
    """Return the oldest release such that it and all newer ones accept the IR version; "" if there is none."""
    return _find_first_release(lambda limits: accepts_ir_version(limits, ir_version), engine)


@functools.lru_cache(maxsize=4096)
def find_first_release_for_opset(domain: str, version: int, engine: str = "onnxruntime") -> str:
    """Return the oldest release such that it and all newer ones accept the opset; "" if there is none."""
    return _find_first_release(lambda limits: version <= limits.opsets.get(domain, version), engine)


def _find_first_release(accepts: Callable[[Limits], bool], engine: str) -> str:
    releases = load_limit_table(engine).releases
    works = list(map(accepts, releases.values()))
    return next(iter(releases), "") if all(works) else find_support_span(list(releases), works)[0]


def find_support_span(releases: Sequence[str], works: Sequence[bool]) -> tuple[str, str]:
    """Return the oldest release since which all releases work, and the newest up to which all work.

    `releases` is in ascending order, and `works` states for each release whether it works. A result is "" if there is
    no such release. Both are "" if all releases work.
    """
    if all(works):
        return "", ""
    after = list(reversed(works)).index(False)
    before = list(works).index(False)
    return releases[-after] if after else "", releases[before - 1] if before else ""


def find_interface_type_span(type_name: str, engine: str, *, is_tensor: bool = False) -> tuple[str, str]:
    """Return the oldest release since which all accept inputs and outputs of a type, and the newest up to which all do.

    With `is_tensor`, it is the type of an initializer or constant.
    A result is "" if there is no such release. Both are "" if all releases accept them.
    """
    table = load_limit_table(engine).releases
    works = [
        not refuses_interface_type(type_name, limits, release, engine, is_tensor=is_tensor)
        for release, limits in table.items()
    ]
    return find_support_span(list(table), works) if any(works) else ("", "")


def refuses_interface_type(
    type_name: str, limits: Limits, release: str, engine: str, *, is_tensor: bool = False
) -> bool:
    """Return whether a release with these limits refuses models with an input or output of a type.

    With `is_tensor`, it is the type of an initializer or constant. OpenVINO and tract were measured for sparse ones.
    """
    if is_tensor:
        if engine == "onnxruntime":
            return interface_types.refuses_tensor_type(release, type_name)
        return engine in _WITHOUT_SPARSE_WEIGHTS and type_name.startswith("sparse_tensor(")
    if engine == "onnxruntime":
        return interface_types.refuses_interface_type(release, type_name)
    return type_name in limits.refused_interface_types


@functools.lru_cache(maxsize=256)
def is_probed_interface_type(type_name: str, engine: str) -> bool:
    """Return whether models with inputs or outputs of a type were loaded on an engine whose support was probed.

    Source: the probes have interfaces of all types of tensors, and of the types of sequences and optional values that
    Identity has, each of which the oldest releases of OpenVINO and tract refuse.
    """
    known = load_limit_table(engine).releases.values()
    return type_name.startswith("tensor(") or any(type_name in it.refused_interface_types for it in known)


def supports_layout(limits: Limits, layout: DataLayout) -> bool | None:
    """Return whether a release with these limits reads external data in this layout; None if that was not measured."""
    if layout == "inside":
        return True
    if limits.external_data is None:
        return None
    return bool(getattr(limits.external_data, layout.replace("-", "_")))


def find_layout_span(layout: DataLayout, engine: str = "onnxruntime") -> tuple[str, str]:
    """Return the oldest release since which all read external data in this layout, and the newest up to which all do.

    Only measured releases count. A result is "" if there is no such release. Both are "" if all releases read the data.
    """
    measured = {
        name: answer
        for name, row in load_limit_table(engine).releases.items()
        if (answer := supports_layout(row, layout)) is not None
    }
    return find_support_span(list(measured), list(measured.values()))


def find_spelling_span(spelling: DataSpelling, engine: str) -> tuple[str, str]:
    """Return the oldest release of an engine that accepts a spelling, and the newest; "" if there is none."""
    span = _SPELLING_SPANS.get(engine, {}).get(spelling, ("", ""))
    return ("", "") if span is _NEVER else span


def refuses_spelling(release: str, spelling: DataSpelling, engine: str) -> bool:
    """Return whether a release refuses external data with a spelling."""
    if is_spelling_unclear(release, spelling, engine):
        return False
    span = _SPELLING_SPANS.get(engine, {}).get(spelling, ("", ""))
    return span is _NEVER or not is_release_within(release, *span)


def is_spelling_unclear(release: str, spelling: DataSpelling, engine: str) -> bool:
    """Return whether a release may read other data with this spelling, or refuse it, so that nothing is predicted."""
    span = _UNCLEAR_SPELLINGS.get(engine, {}).get(spelling)
    return span is not None and is_release_within(release, *span)
