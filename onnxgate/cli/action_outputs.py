"""Outputs of a step, as the runner reads them."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def write_outputs(path: Path, *values: DataclassInstance) -> None:
    """Append the outputs; a delimiter that nobody can guess keeps one value from setting another."""
    with path.open("a", encoding="utf-8", newline="\n") as file:
        for name, value in (item for each in values for item in asdict(each).items()):
            delimiter = f"onnxgate_{uuid.uuid4()}"
            file.write(f"{name.replace('_', '-')}<<{delimiter}\n{value}\n{delimiter}\n")
