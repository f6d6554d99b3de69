"""ONNX's backend test models: those of older wheels, and those that the installed `onnx` generates."""

from __future__ import annotations

import hashlib
import subprocess
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from uv import find_uv_bin

# Source: the newest patch of each minor of onnx with a Linux wheel, and a Python that the wheel is for.
WHEELS = {
    "1.2.2": "3.6",
    "1.3.0": "3.6",
    "1.4.1": "3.6",
    "1.5.0": "3.7",
    "1.6.0": "3.7",
    "1.7.0": "3.8",
    "1.8.1": "3.8",
    "1.9.0": "3.8",
    "1.10.2": "3.9",
    "1.11.0": "3.9",
    "1.12.0": "3.9",
    "1.13.1": "3.10",
    "1.14.1": "3.11",
    "1.15.0": "3.11",
    "1.16.2": "3.11",
    "1.17.0": "3.11",
    "1.18.0": "3.11",
    "1.19.1": "3.11",
    "1.20.1": "3.11",
    "1.21.0": "3.11",
    "1.22.0": "3.11",
}
PLATFORM = "x86_64-unknown-linux-gnu"
DATA = "onnx/backend/test/data"


def every(cache: Path) -> dict[str, bytes]:
    """Return all distinct models by name, `1.14.1/node/test_abs`, with the oldest onnx that has this content."""
    return distinct(models(WHEELS, cache))


def distinct(models: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Yield the models without duplicates of earlier ones."""
    by_name: dict[str, bytes] = {}
    known: set[bytes] = set()
    for name, data in models:
        content = _content(data)
        if content not in known:
            known.add(content)
            by_name[name] = data
    return by_name


def models(wheels: Iterable[str], cache: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the models of some wheels, then those of the installed onnx."""
    for release in wheels:
        yield from _shipped(release, _unpacked(release, cache))
    yield from generated()


def _unpacked(release: str, cache: Path) -> Path:
    """Return the folder of a wheel's test data, downloaded once; the package is never imported."""
    home = cache / "onnx" / release
    if not (home / "ready").exists():
        for_wheel = ["--python-version", WHEELS[release], "--python-platform", PLATFORM, "--only-binary", ":all:"]
        command = [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", *for_wheel, "--target", str(home)]
        subprocess.run([*command, f"onnx=={release}"], check=True, stdin=subprocess.DEVNULL)
        (home / "ready").touch()
    return home / DATA


def _shipped(release: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*.onnx")):
        within = path.relative_to(folder)
        name = within.parent if path.name == "model.onnx" else within.with_suffix("")
        yield f"{release}/{name.as_posix()}", path.read_bytes()


def generated() -> Iterator[tuple[str, bytes]]:
    """Yield the models that the installed onnx generates; its stored files are also in the wheels."""
    import onnx
    from onnx.backend.test.case import model, node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of numpy about intended overflows
        cases = [*node.collect_testcases(), *model.collect_testcases()]
    for case in sorted(cases, key=lambda case: (case.kind, case.name)):
        if case.model is not None:
            yield f"{onnx.__version__}/{case.kind}/{case.name}", case.model.SerializeToString()
    folder = Path(onnx.__file__).parent / "backend/test/data"
    yield from _shipped(onnx.__version__, folder)


def _content(data: bytes) -> bytes:
    """Return the content of a model without producer and name."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        model.ClearField(field)
    for field in ("name", "doc_string"):
        model.graph.ClearField(field)
    return hashlib.sha256(model.SerializeToString(deterministic=True)).digest()
