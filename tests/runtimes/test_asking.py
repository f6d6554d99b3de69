"""Builds that are asked what they implement, and do not say it."""

from __future__ import annotations

import pytest

from onnxgate.runtimes.host import Host, Seat
from onnxgate.stages.harvest import UntoldError, ask
from onnxgate.support.table import Source

SOURCE = Source(release="1.0", wheel="", sha256="0" * 64)


def test_a_build_that_fails_is_not_harvested(fake_host: Host, fake: Seat) -> None:
    """The reason is what can be said of it."""
    with pytest.raises(UntoldError, match=r"^it fails on the question for its kernels: answered nonsense$"):
        ask(fake_host, fake, SOURCE)


def test_a_build_that_is_not_there_says_nothing(fake_host: Host) -> None:
    """The runtime stage says so."""
    with pytest.raises(UntoldError, match=r"^$"):
        ask(fake_host, Seat("nothing 1.0", engine="absent"), SOURCE)
