"""JSON Schema of the config, for editors."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from onnxgate.project.config.schema import json_schema
from onnxgate.project.toml import loads

from .test_loader import FULL

RULES = ("opset-too-new", "missing-kernel")


def errors(text: str) -> list[str]:
    """Return a validator's errors for a config, with dates as strings as editors read them."""
    values: dict[str, Any] = loads(text)
    for ignore in values.get("ignore", ()):
        if "until" in ignore:
            ignore["until"] = ignore["until"].isoformat()
    validator = jsonschema.Draft202012Validator(json_schema(RULES))
    return [error.message for error in validator.iter_errors(values)]


def test_valid() -> None:
    """The schema is a valid JSON Schema and accepts every config that the loader accepts."""
    jsonschema.Draft202012Validator.check_schema(json_schema())

    assert errors(FULL) == []


@pytest.mark.parametrize(
    "text",
    [
        "unknown = 1",
        "[targets.a]\nselect = 'minors'",
        "[targets.a]\nruntime = 'onnxruntime'\nselect = 'some'",
        "[targets.a]\nruntime = 'onnxruntime'\npython = 3",
        "[targets.a]\nruntime = 'onnxruntime'\nextensions = 'foo'",
        "[[model]]\nsource = 'a.py:b'",
        "[rules]\nfoo = 'off'",
        "[[ignore]]\nrule = 'foo'\nreason = 'x'",
        "[limits]\ntime_s = 3",
    ],
)
def test_invalid(text: str) -> None:
    """The schema rejects configs that the loader rejects for their structure."""

    assert errors(text)
