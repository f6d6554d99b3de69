"""The report as JSON, for `onnxgate merge` and other programs. Its JSON Schema is published."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from onnxgate.core.escape import escape_json
from onnxgate.core.report import Report


def format(report: Report) -> str:
    """Return the report as indented JSON with a trailing newline. Fields are in the order of their definition."""
    return encode_json(report)


def encode_json(value: object) -> str:
    """Return any value as indented JSON in which control characters are escaped."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file name that is not valid UTF-8
        data = msgspec.json.encode(_escape_surrogates(msgspec.to_builtins(value)))
    return escape_json(msgspec.json.format(data, indent=2).decode()) + "\n"


def _escape_surrogates(value: Any) -> Any:
    """Return the value with undecodable bytes in its strings replaced by escapes."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_escape_surrogates(item) for item in value]
        case _:
            return value


def seal_report(report: Report) -> Report:
    """Return a shard's report with the digest of its JSON, so that changes can be detected."""
    if report.shard is None:
        return report
    return replace(report, shard=replace(report.shard, digest=_digest_report(report)))


def is_intact(report: Report) -> bool:
    """Return whether the digest in a shard's report matches the report."""
    return report.shard is not None and report.shard.digest == _digest_report(report)


def _digest_report(report: Report) -> str:
    assert report.shard is not None
    blank = replace(report, shard=replace(report.shard, digest=""))
    return hashlib.sha256(encode_json(blank).encode()).hexdigest()


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of the report."""
    return build_schema(Report, "An onnxgate report")


def build_schema(kind: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a type, with a title that editors show."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **msgspec.json.schema(kind)}
