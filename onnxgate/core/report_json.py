"""The report as data: what `onnxgate merge` and other programs read. Its JSON Schema is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxgate.core.escape import escape_json
from onnxgate.core.report import Report

if TYPE_CHECKING:
    import msgspec


def format(report: Report) -> str:
    """Indented JSON with a newline at its end; everything in the order in which the report has it."""
    return encode_json(report)


def encode_json(value: object) -> str:
    """Any value in that form, with no string in it that is obeyed."""
    import msgspec

    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file name that is no valid text
        data = msgspec.json.encode(_escape_surrogates(msgspec.to_builtins(value)))
    return escape_json(msgspec.json.format(data, indent=2).decode()) + "\n"


def _escape_surrogates(value: Any) -> Any:
    """The same value, with bytes that are no text spelled out."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_escape_surrogates(key): _escape_surrogates(each) for key, each in value.items()}
        case list() | tuple():
            return [_escape_surrogates(each) for each in value]
        case _:
            return value


def decode_report(text: str | bytes) -> Report:
    """The report that `format` wrote."""
    import msgspec

    return msgspec.json.decode(text, type=Report)


def seal_report(report: Report) -> Report:
    """A shard's report with the digest of what `format` writes of it, so that what is lost from it is missed."""
    from msgspec.structs import replace

    return (
        report if report.shard is None else replace(report, shard=replace(report.shard, digest=_digest_report(report)))
    )


def is_intact(report: Report) -> bool:
    """Whether a shard's report is what was sealed."""
    return report.shard is not None and report.shard.digest == _digest_report(report)


def _digest_report(report: Report) -> str:
    import hashlib

    from msgspec.structs import replace

    assert report.shard is not None
    blank = replace(report, shard=replace(report.shard, digest=""))
    return hashlib.sha256(encode_json(blank).encode()).hexdigest()


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the report."""
    return build_schema(Report, "A report of onnxgate")


def build_schema(kind: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """The JSON Schema of a type, with a title for editors."""
    import msgspec

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **msgspec.json.schema(kind)}
