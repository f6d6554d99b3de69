"""The pytest plugin: one fixture. pytest imports this module at start-up, so it imports nothing else of onnxgate."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def assert_supported() -> Callable[..., None]:
    """
    Return a function that fails the test unless all releases in a range load a model.
    Call it as in `assert_supported(path, "onnxruntime>=1.18")`.
    """
    from onnxgate.api.predictions import assert_supported

    return assert_supported
