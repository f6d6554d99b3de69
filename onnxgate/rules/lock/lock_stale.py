"""The rule `lock-stale`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import quote_path
from onnxgate.evidence.lock import LockConfigComparison
from onnxgate.rules.definition import rule


@rule(LockConfigComparison, "lock-stale", level=Level.ERROR, since="0.1.0")
def lock_stale(subject: LockConfigComparison) -> Iterator[Hit]:
    """
    `onnxgate.lock` does not match `onnxgate.toml`.

    ## Why it matters
    Models are checked on the locked runtimes, which differ from the runtimes that the config requires now.

    ## What to do
    Run `onnxgate lock` and commit the lock. Locked versions that still match the config do not change.
    """
    for difference in subject.differences:
        # Without an identity, because it cannot be ignored: several differences are numbered.
        yield Hit(subject.place, difference, fix="run `onnxgate lock` and commit the lock")
    for path, place in subject.vanished.items():
        yield Hit(
            place,
            f"`{path}` is locked but no longer in the project",
            fix=f"run `onnxgate lock {quote_path(path)}` and commit the lock, or restore the model",
            identity=path,
        )
