"""The report as data: what `onnxgate merge` and other programs read. Its JSON Schema is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxgate.formats.escape import json_text
from onnxgate.report import Report

if TYPE_CHECKING:
    import msgspec


def format(report: Report) -> str:
    """Indented JSON with a newline at its end; everything in the order in which the report has it."""
    return encoded(report)


def encoded(value: object) -> str:
    """Any value in that form, with no string in it that is obeyed."""
    import msgspec

    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file name that is no valid text
        data = msgspec.json.encode(_as_text(msgspec.to_builtins(value)))
    return json_text(msgspec.json.format(data, indent=2).decode()) + "\n"


def _as_text(value: Any) -> Any:
    """The same value, with bytes that are no text spelled out."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_as_text(key): _as_text(each) for key, each in value.items()}
        case list() | tuple():
            return [_as_text(each) for each in value]
        case _:
            return value


def parse(text: str | bytes) -> Report:
    """The report that `format` wrote."""
    import msgspec

    return msgspec.json.decode(text, type=Report)


def sealed(report: Report) -> Report:
    """A shard's report with the digest of what `format` writes of it, so that what is lost from it is missed."""
    from msgspec.structs import replace

    return report if report.shard is None else replace(report, shard=replace(report.shard, digest=_digest(report)))


def is_whole(report: Report) -> bool:
    """Whether a shard's report is what was sealed."""
    return report.shard is not None and report.shard.digest == _digest(report)


def _digest(report: Report) -> str:
    import hashlib

    from msgspec.structs import replace

    assert report.shard is not None
    blank = replace(report, shard=replace(report.shard, digest=""))
    return hashlib.sha256(encoded(blank).encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the report."""
    return titled_schema(Report, "A report of onnxgate")


def titled_schema(kind: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """The JSON Schema of a type, with a title for editors."""
    import msgspec

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **msgspec.json.schema(kind)}
