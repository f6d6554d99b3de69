"""Compatibility with locks that were written before targets had extensions and user environments."""

from __future__ import annotations

from pathlib import Path

from onnxgate.project.config.loader import load_config
from onnxgate.project.lock.comparison import policy_differences, resolved_digest, target_policy
from onnxgate.project.lock.lock_file import load_lock, render_lock

EARLIER = Path(__file__).parents[3] / "fixtures" / "locks" / "earlier"


def test_not_stale() -> None:
    """The old lock is not stale."""
    config = load_config(EARLIER / "onnxgate.toml").config
    lock = load_lock(EARLIER / "onnxgate.lock")

    assert policy_differences(config, lock) == ()
    assert [lock.targets[name].policy for name in sorted(config.targets)] == [
        target_policy(target) for _, target in sorted(config.targets.items())
    ]


def test_same_bytes() -> None:
    """Rewriting the old lock produces the same bytes."""
    text = (EARLIER / "onnxgate.lock").read_bytes()

    assert text == render_lock(load_lock(EARLIER / "onnxgate.lock")).encode()


def test_same_digest_of_rows() -> None:
    """The old digest of the resolved rows is still valid, because it is part of the lock's format."""
    lock = load_lock(EARLIER / "onnxgate.lock")
    then = "e6d7bc3185018fc3f09885970490855222783e5a91fa7b0de9a7a9d7530e2ceb"

    assert then == resolved_digest(lock.targets["server"].runtimes)
