"""Answers about support that several modules need."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock

from onnxgate.support.answers.operator_answers import OperatorSupport

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import generate_support_page as tool


@pytest.fixture(scope="session")
def support_answers(shared_folder: Path) -> dict[str, list[OperatorSupport]]:
    """Collect the support of all operators by each engine once for all pytest-xdist processes of this run."""
    file = shared_folder / "support-answers.json"
    with FileLock(shared_folder / "support-answers.lock"):
        if not file.exists():
            file.write_bytes(msgspec.json.encode(tool.collect_answers()))
    return msgspec.json.decode(file.read_bytes(), type=dict[str, list[OperatorSupport]])
