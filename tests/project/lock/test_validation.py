"""Lock values that onnxgate never writes are rejected before they are used."""

from __future__ import annotations

import msgspec
import pytest

from onnxgate.core.errors import LockError
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.types import Lock, LockedTarget
from tests.harness.locks import MODEL, package, runtime

TARGET = LockedTarget(policy="aa" * 32, runtimes=(runtime("1.31.1"),))
TEXT = render_lock(
    Lock(targets={"server": TARGET}, models={"m.onnx": MODEL}, packages=(package("onnxruntime", "1.31.1"),))
)
WHEEL = "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl"


def refusal(text: str) -> LockError:
    """Return the error raised for a lock."""
    with pytest.raises(LockError) as caught:
        parse_lock(text, "onnxgate.lock")
    return caught.value


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        (
            'release = "1.31.1"',
            'release = "1.18.1"',
            "target `server`, onnxruntime 1.18.1: `packages` does not contain `onnxruntime==1.18.1`",
        ),
        (
            '"numpy==2.4.6", ',
            "",
            "target `server`, onnxruntime 1.31.1: `numpy` is not pinned in `packages`",
        ),
        (
            '"numpy==2.4.6", ',
            '"numpy==2.4.6", "onnxruntime==1.18.1", ',
            "target `server`, onnxruntime 1.31.1: `onnxruntime` is pinned more than once",
        ),
        (
            '"numpy==2.4.6"',
            '"numpy==new"',
            "target `server`, onnxruntime 1.31.1: `numpy==new` does not pin an exact version",
        ),
        (
            '[{ engine = "onnxruntime", release = "1.31.1", python = "3.11"',
            '[{ engine = "onnxruntime", release = "1.31.1", python = "3"',
            "target `server`, onnxruntime 1.31.1: `3` is not a valid Python minor version",
        ),
        (
            '"onnxruntime==1.31.1"] }',
            '"onnxruntime==1.31.1"], extensions = ["foo"] }',
            "target `server`, onnxruntime+foo 1.31.1: extension `foo` is not pinned in `packages`",
        ),
        (
            '"onnxruntime==1.31.1"] }',
            '"foo==1.0", "onnxruntime==1.31.1"], extensions = ["foo>1"] }',
            "target `server`, onnxruntime+foo>1 1.31.1: extension `foo>1` is not pinned in `packages`",
        ),
        (
            '"onnxruntime==1.31.1"] }',
            '"onnxruntime==1.31.1"], extensions = ["/foo.so"] }',
            "target `server`, onnxruntime+/foo.so 1.31.1: extension `/foo.so`: expected a path relative to",
        ),
        (
            'python = "3.11", packages = ["numpy==2.4.6", "onnxruntime==1.31.1"] }',
            'packages = ["numpy==new"], environment = ".venv" }',
            "target `server`, onnxruntime@.venv 1.31.1: `numpy==new` does not pin an exact version",
        ),
        (f'"{"aa" * 32}"\nsize', '"aa"\nsize', "model `m.onnx`: `aa` is not a valid SHA-256"),
        ("bb" * 32, "BB" * 32, f"model `m.onnx`: data file `weights.bin`: `{'BB' * 32}` is not a valid SHA-256"),
        ("noise = 1e-07", "noise = nan", "model `m.onnx`: the noise of output `y` is nan"),
        ("bound = 1e-06", "bound = inf", "model `m.onnx`: the bound of output `y` is inf"),
        ("bound = 1e-06", "bound = -1.0", "model `m.onnx`: the bound of output `y` is -1.0"),
        (
            'name = "onnxruntime"',
            'name = "Onnx_Runtime"',
            "package `Onnx_Runtime`: `Onnx_Runtime` is not a valid normalized",
        ),
        ('version = "1.31.1"', 'version = "new"', "package `onnxruntime`: `new` is not a valid version"),
        (WHEEL, f"../{WHEEL}", f"package `onnxruntime`: `../{WHEEL}` is not a wheel file name"),
        (
            WHEEL,
            "onnxruntime-1.31.1.tar.gz",
            "package `onnxruntime`: `onnxruntime-1.31.1.tar.gz` is not a wheel file name",
        ),
        ("cc" * 32, "cc", f"package `onnxruntime`: `{WHEEL}`: `cc` is not a valid SHA-256"),
    ],
)
def test_refused(was: str, becomes: str, expected: str) -> None:
    """Each invalid value is reported with its location."""
    text = TEXT.replace("runtimes = [\n  ", "runtimes = [")
    assert was in text

    error = refusal(text.replace(was, becomes))

    assert error.message.startswith(f"`onnxgate.lock` is damaged: {expected}")
    assert error.exit_code == 2


def test_release_of_no_version() -> None:
    """An invalid release version is reported even if its row is consistent."""
    error = refusal(TEXT.replace('release = "1.31.1"', 'release = "x"').replace("==1.31.1", "==x"))

    assert error.problems == (
        "target `server`, onnxruntime x: `x` is not a valid version",
        "target `server`, onnxruntime x: `onnxruntime==x` does not pin an exact version",
    )


def test_many() -> None:
    """All problems are counted, and only the first ones are listed."""
    models = {f"{number:02}.onnx": msgspec.structs.replace(MODEL, sha256="") for number in range(12)}

    error = refusal(render_lock(Lock(models=models)))

    assert error.message == "`onnxgate.lock` is damaged in 12 places"
    assert error.problems[0] == "model `00.onnx`: `` is not a valid SHA-256"
    assert error.problems[9:] == ("model `09.onnx`: `` is not a valid SHA-256", "and 2 more")
