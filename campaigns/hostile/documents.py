"""Documents with hostile strings, and their twins with harmless strings in the same places."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from onnxgate.core.matrix import Matrix
from onnxgate.core.report import AddedRuntime, Preview, Report
from onnxgate.model.diff.result import Difference
from onnxgate.project.config.schema import Ignore
from onnxgate.project.lock.lock_file import load_lock
from tests.harness.reports.sample_reports import FOLDER

OURS = frozenset({
    *("rule", "stage", "stages", "metric", "command", "bound_from"),
    *("engine", "version", "runtime", "runtimes", "pins"),
})  # fmt: skip
"""Fields that only onnxgate writes. Tame documents keep them, because lines written by onnxgate begin with them."""
PINNED = frozenset({"targets", "toolchain", "packages", "npm", "sha256"})
"""Parts of a lock with strings that must be versions, digests or package names."""


@dataclass(frozen=True)
class Pair:
    """A document, its harmless twin, and its hostile strings."""

    kind: str
    hostile: Any
    twin: Any
    texts: tuple[str, ...]
    tame: bool


class Ignores(msgspec.Struct, frozen=True):
    """The ignore entries of a config."""

    entries: tuple[Ignore, ...]


@cache
def samples() -> Mapping[str, Any]:
    """Return one document of each kind, which contains all possible parts."""
    report = msgspec.json.decode((FOLDER / "sample.json").read_bytes(), type=Report)
    remarks = (
        "models/encoder.onnx: loaded on 1.18.1; there is no prediction for the current version",
        "a remark of onnxgate",
    )
    report = msgspec.structs.replace(report, remarks=remarks, scope="export skipped", folder="sub/project")
    return {
        "report": report,
        "matrix": msgspec.json.decode((FOLDER / "matrix.json").read_bytes(), type=Matrix),
        "diff": msgspec.json.decode((FOLDER / "diff.json").read_bytes(), type=Difference),
        "preview": _preview(report),
        "lock": load_lock(FOLDER.parent / "locks" / "sample.lock"),
        "ignores": Ignores((
            Ignore(rule="load-failed", model="models/a.onnx", reason="in March", until=datetime.date(2027, 3, 31)),
            Ignore(rule="missing-kernel", reason="known", sha256="0" * 64, fingerprints=("1a", "2b", "3c", "4d", "5e")),
        )),
    }  # fmt: skip


def _preview(report: Report) -> Preview:
    findings = report.findings
    runtimes = [f"{runtime.engine} {runtime.version}" for runtime in report.runtimes]
    arrivals = [
        AddedRuntime(
            model=model.path,
            runtime=runtime,
            state="fail",
            breaks=findings[:2],
            outputs=report.measured,
            before=runtimes[0],
        )
        for model in report.models
        for runtime in runtimes[:2]
    ]
    arrivals.append(
        AddedRuntime(model="models/new.onnx", runtime=runtimes[-1], state="pass", unlike="it has other outputs")
    )
    return Preview(
        pins=("onnxruntime 1.31.1 comes", "numpy 2.4.6 comes"),
        arrivals=tuple(arrivals),
        others=findings[2:3],
        repairs=findings[3:4],
        remains=findings[4:],
        undecided=report.undecided,
        after=report,
    )


def strings(document: Any) -> list[str]:
    """Return every distinct non-empty string that may come from a model, in document order."""
    texts: dict[str, None] = {}

    def note(text: str) -> str:
        texts.setdefault(text)
        return text

    replaced(document, note, frozenset())
    return [text for text in texts if text]


def pair(kind: str, replacements: Mapping[str, str], *, tame: bool = False) -> Pair:
    """Return the sample document of a kind, with its strings replaced by these strings."""
    sample = samples()[kind]
    own = (OURS if tame else frozenset()) | (PINNED if kind == "lock" else frozenset())
    harmless = {old: f"w{index:05d}x" for index, old in enumerate(replacements)}
    return Pair(
        kind,
        replaced(sample, _renamed(sample, replacements), own),
        replaced(sample, _renamed(sample, harmless), own),
        tuple(replacements.values()),
        tame,
    )


def _renamed(sample: Any, replacements: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that maps old strings to new ones and keeps runtimes consistent with engine and release."""
    names = {f"{runtime.engine} {runtime.version}": (runtime.engine, runtime.version) for runtime in _runtimes(sample)}

    def rename(old: str) -> str:
        if old in names:
            return " ".join(replacements.get(part, part) for part in names[old])
        return replacements.get(old, old)

    return rename


def _runtimes(sample: Any) -> Iterator[Any]:
    yield from (
        sample.runtimes if isinstance(sample, Report) else sample.after.runtimes if isinstance(sample, Preview) else ()
    )


def replaced(document: Any, rename: Callable[[str], str], own: frozenset[str]) -> Any:
    """Rename the strings in a document wherever its type accepts any string, except in the fields `own`."""
    plain = msgspec.to_builtins(document)
    return msgspec.convert(_walked(plain, _type(document), rename, own), type(document), str_keys=True)


def _type(document: object) -> inspect.Type:
    return inspect.type_info(type(document))


def _walked(value: Any, kind: Any, rename: Callable[[str], str], own: frozenset[str]) -> Any:
    match value, kind:
        case _, inspect.UnionType():
            return _walked(value, _member(value, kind), rename, own)
        case str(), inspect.StrType():
            return rename(value) if value else value
        case dict(), inspect.StructType():
            return {
                field.encode_name: value[field.encode_name]
                if field.encode_name in own
                else _walked(value[field.encode_name], field.type, rename, own)
                for field in kind.fields
                if field.encode_name in value
            }
        case dict(), inspect.DictType():
            return {
                _walked(k, kind.key_type, rename, own): _walked(v, kind.value_type, rename, own)
                for k, v in value.items()
            }
        case ((list() | tuple()), inspect.VarTupleType() | inspect.ListType()):
            return [_walked(item, kind.item_type, rename, own) for item in value]
        case _:
            return value


def _member(value: Any, union: inspect.UnionType) -> Any:
    wanted: tuple[type, ...] = (
        (inspect.StrType,) if isinstance(value, str) else (inspect.StructType, inspect.DictType)
        if isinstance(value, dict) else (inspect.VarTupleType,) if isinstance(value, list | tuple) else ()
    )  # fmt: skip
    return next((member for member in union.types if isinstance(member, wanted)), None) if wanted else None
