"""Provoke errors in code that was generated for a different release of protobuf."""

from __future__ import annotations

from pathlib import Path

from tools.harvest_texts import snippets
from tools.harvest_texts.environments import environment

CASES = (
    ("import", "protobuf-mismatch", "import onnx"),
    (
        "prototype",
        "protobuf-mismatch",
        "from google.protobuf.message_factory import MessageFactory\nprint(MessageFactory().GetPrototype)",
    ),
)


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error texts of a pair of releases: `1.18.0+3.20.3` is onnx 1.18.0 with protobuf 3.20.3."""
    onnx, _, protobuf = release.partition("+")
    python = "3.9" if int(onnx.split(".")[1]) < 13 else "3.11"
    numpy = "numpy<1.24" if python == "3.9" else "numpy<2.1"
    packages = [f"onnx=={onnx}", f"protobuf=={protobuf}", numpy, "typing_extensions", "ml_dtypes"]
    return snippets.run(environment(f"protobuf-{release}", python, *packages), CASES, folder)


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return snippets.expected(CASES)
