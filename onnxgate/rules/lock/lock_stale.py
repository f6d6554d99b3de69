"""The rule `lock-stale`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import LockConfigComparison
from onnxgate.rules.definition import rule


@rule(LockConfigComparison, "lock-stale", level=Level.ERROR, since="0.1.0")
def lock_stale(subject: LockConfigComparison) -> Iterator[Hit]:
    """
    `onnxgate.lock` is not the lock of this `onnxgate.toml`: targets, the toolchain or the list of models differ.

    ## Why it matters
    The gate proves what is locked. Where the config has moved on, it proves another promise than the one that is made.
    That a newer release of a runtime exists does not make a lock stale.

    ## What to do
    Run `onnxgate lock` and commit the lock. Pins that still fit stay as they are.
    """
    for difference in subject.differences:
        yield Hit(subject.place, difference, fix="run `onnxgate lock` and commit the lock")
    for path, place in subject.vanished.items():
        yield Hit(
            place,
            f"`{path}` is locked, and the project has it no longer",
            fix="run `onnxgate lock` and commit the lock, or restore the model",
        )
