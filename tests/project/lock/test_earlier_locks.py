"""Locks that an earlier onnxgate wrote, before targets could have extensions or an environment of one's own."""

from __future__ import annotations

from pathlib import Path

from onnxgate.project.config.loader import load_config
from onnxgate.project.lock.comparison import policy_differences, resolved_digest, target_policy
from onnxgate.project.lock.lock_file import load_lock, render_lock

EARLIER = Path(__file__).parents[3] / "fixtures" / "locks" / "earlier"


def test_not_stale() -> None:
    """It is still the lock of its config."""
    config = load_config(EARLIER / "onnxgate.toml").config
    lock = load_lock(EARLIER / "onnxgate.lock")

    assert policy_differences(config, lock) == ()
    assert [lock.targets[name].policy for name in sorted(config.targets)] == [
        target_policy(target) for _, target in sorted(config.targets.items())
    ]


def test_same_bytes() -> None:
    """Written again it is the same file, to the byte."""
    text = (EARLIER / "onnxgate.lock").read_bytes()

    assert text == render_lock(load_lock(EARLIER / "onnxgate.lock")).encode()


def test_same_digest_of_rows() -> None:
    """A digest of resolved rows that was written then still holds; it is part of the lock's format."""
    lock = load_lock(EARLIER / "onnxgate.lock")
    then = "e6d7bc3185018fc3f09885970490855222783e5a91fa7b0de9a7a9d7530e2ceb"

    assert then == resolved_digest(lock.targets["server"].runtimes)
