"""What became of a model since its baseline, in words for a reviewer, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.evidence.changes import Minimum, ModelChange, MovedWeights
from onnxgate.findings import name_runtimes
from onnxgate.lock.changes import ONLY_BYTES, entry_of, model_changes
from onnxgate.model.facts import ModelFacts
from onnxgate.support import limits, releases

MIB = 1024 * 1024
KIB = 1024
SIZE_SAID = 0.01
"""A size that is another by less than this part is not worth a word."""


def said(change: ModelChange) -> tuple[str, ...]:
    """One difference each."""
    differences = model_changes(entry_of(change.before), entry_of(change.after))
    if change.weights is not None:
        differences = tuple(each for each in differences if each != ONLY_BYTES)
    return (*_releases(change.minimum), *differences, *_weights(change.weights), *_size(change.before, change.after))


def _releases(minimum: Minimum | None) -> Iterator[str]:
    if minimum is None:
        return
    engine = limits.table().engine
    if minimum.before != minimum.after:
        now = f"from {engine} {minimum.after} on" if minimum.after else f"on no known release of {engine}"
        yield f"loads {now} instead of from {minimum.before} on" if minimum.before else f"loads {now}, and did on none"
    if minimum.lost:
        yield f"no longer loads on {releases_in_words(minimum.lost)}, which a target promises"


def releases_in_words(found: Sequence[str]) -> str:
    """Releases of ONNX Runtime: `onnxruntime 1.17.0 to 1.17.3`."""
    engine = limits.table().engine
    return name_runtimes((f"{engine} {each}" for each in found), [f"{engine} {each}" for each in releases.known()])


def _weights(moved: MovedWeights | None) -> Iterator[str]:
    if moved is None:
        return
    if moved.changed:
        most = f", at most by {moved.largest:.3g} (`{moved.name}`)" if moved.largest is not None else ""
        yield f"{moved.changed} of {moved.of} weights changed{most}"
    if moved.added:
        yield f"{moved.added} weight{'s are' if moved.added > 1 else ' is'} new"
    if moved.removed:
        yield f"{moved.removed} weight{'s are' if moved.removed > 1 else ' is'} gone"


def _size(before: ModelFacts, after: ModelFacts) -> Iterator[str]:
    then, now = total_bytes(before), total_bytes(after)
    if abs(now - then) > SIZE_SAID * then and _bytes(now) != _bytes(then):
        yield f"takes {_bytes(now)} instead of {_bytes(then)}"


def total_bytes(facts: ModelFacts) -> int:
    """The file and its data."""
    return facts.size_bytes + sum(each.size_bytes for each in facts.external)


def _bytes(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count / KIB:.1f} KiB"
