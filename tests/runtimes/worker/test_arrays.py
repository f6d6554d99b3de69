"""Outputs are stored completely, or the reason is reported."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from onnxgate.core.machine_faults import find_fault_in_text
from onnxgate.runtimes.worker.arrays import write_array
from onnxgate.runtimes.worker.failures import UnusableError


@pytest.mark.parametrize(
    "error", [OSError("600 requested and 112 written"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
)
def test_a_full_disk_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """numpy reports a short write without an error number, which is also a full disk."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(UnusableError) as caught:
        write_array(str(tmp_path / "y.npy"), np.zeros(3))
    fault = find_fault_in_text(str(caught.value), tempfile.gettempdir())

    assert fault == (
        f"cannot write to the temporary folder `{tempfile.gettempdir()}`: no space left on device",
        "free up disk space, or set `TMPDIR` to another folder",
    )
