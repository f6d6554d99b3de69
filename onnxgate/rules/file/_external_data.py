"""Problems with the external data of a model, grouped by data file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from onnxgate.core.findings import Level
from onnxgate.core.text import pluralize
from onnxgate.model.reading.external_data import ExternalProblem, ExternalUse

UNUSED_FIX = "remove the unused weights from the model"


class ExternalFault(msgspec.Struct, frozen=True):
    """A problem with an external data file, and the tensors that it affects, in the order of the model."""

    location: str
    problem: ExternalProblem
    detail: str  # describes the problem of the first tensor
    pointer_sha256: str
    tensors: tuple[str, ...]
    is_unused: bool  # ONNX Runtime does not read the data

    def select_level(self, runtimes: Sequence[str]) -> Level | None:
        """Return the level of the finding for these runtimes; None is that of the rule."""
        is_accepted = self.is_unused and all(name.startswith("onnxruntime") for name in runtimes)
        return Level.WARNING if is_accepted else None


def group_external_faults(uses: Iterable[ExternalUse], *problems: ExternalProblem) -> Iterator[ExternalFault]:
    """Yield a fault for each external data file and each of the given problems that this file has."""
    concerned = [use for use in uses if use.problem in problems]
    for _, group in groupby(sorted(concerned, key=_fault_key), key=_fault_key):
        members = list(group)
        first = members[0]
        if first.problem:
            tensors = tuple(use.tensor for use in members)
            is_unused = all(use.is_unused for use in members)
            yield ExternalFault(first.location, first.problem, first.detail, first.pointer_sha256, tensors, is_unused)


def _fault_key(use: ExternalUse) -> tuple[str, str]:
    return use.location, use.problem or ""


def describe_tensors(fault: ExternalFault) -> str:
    """Describe which tensors use a faulty data file, such as "used by `fc.weight` and 147 other tensors"."""
    count = len(fault.tensors) - 1
    names = f"`{fault.tensors[0]}`" + (f" and {pluralize(count, 'other tensor')}" if count else "")
    return f"only for {names}, which no node uses" if fault.is_unused else f"used by {names}"
