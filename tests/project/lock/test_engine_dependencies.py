"""Dependencies that are locked with each engine, with the real uv and a local index."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.errors import ConfigError
from tests.harness.locks import project_of

from .conftest import LocalIndex
from .test_update import locked

CONFIG = """
models = ["m.onnx"]
[targets.engine]
runtime = "{}"
"""


@pytest.fixture
def published(local_index: LocalIndex) -> LocalIndex:
    """Publish engines with dependencies that inference does not need, and a numpy that is too new for one of them."""
    local_index.add("openvino", "2026.4.1", ("3.11",), requires=("numpy<2.5", "openvino-telemetry>=2023"))
    local_index.add("openvino-telemetry", "2025.2.0", ("3.11",))
    local_index.add("onnx", "1.18.0", ("3.11",), requires=("numpy", "protobuf>=4", "typing-extensions"))
    local_index.add("onnx", "1.23.2", ("3.11",), requires=("numpy", "protobuf>=6", "typing-extensions", "ml-dtypes"))
    local_index.add("tract", "0.23.9", ("3.11",), requires=("numpy",))
    local_index.add("onnxruntime", "1.31.1", ("3.11",))
    for package, version in (("protobuf", "7.0"), ("typing-extensions", "4.16.0"), ("ml-dtypes", "0.6.0")):
        local_index.add(package, version, ("3.11",))
    for version in ("1.26.4", "2.4.0", "2.6.0"):
        local_index.add("numpy", version, ("3.11",))
    return local_index


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("openvino", ("numpy==2.4.0", "openvino==2026.4.1")),
        ("tract", ("numpy==2.6.0", "tract==0.23.9")),
        ("onnx<1.19", ("numpy==2.6.0", "onnx==1.18.0", "protobuf==7.0", "typing-extensions==4.16.0")),
        (
            "onnx>=1.19",
            ("ml-dtypes==0.6.0", "numpy==2.6.0", "onnx==1.23.2", "protobuf==7.0", "typing-extensions==4.16.0"),
        ),
    ],
)
def test_companions(tmp_path: Path, runtime: str, expected: tuple[str, ...]) -> None:
    """Dependencies follow the engine's own metadata, with their wheels, except those that inference does not need."""
    lock = locked(project_of(tmp_path, CONFIG.format(runtime)))
    (row,) = lock.targets["engine"].runtimes

    assert row.packages == expected
    assert tuple(f"{package.name}=={package.version}" for package in lock.packages) == expected


def test_pins_stay(tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer dependency does not change the lock until it is upgraded explicitly."""
    project = project_of(tmp_path, CONFIG.format("tract"))
    first = locked(project)
    published.add("numpy", "2.7.0", ("3.11",))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another"))

    assert first == locked(project, first)
    upgraded = locked(project, first, upgrade=("numpy",)).targets["engine"].runtimes[0]
    assert upgraded.packages == ("numpy==2.7.0", "tract==0.23.9")


def test_shares_numpy(tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newly added engine uses the numpy that is already locked, and not the newest."""
    first = locked(project_of(tmp_path, CONFIG.format("onnxruntime")))
    published.add("numpy", "2.7.0", ("3.11",))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another"))
    both = CONFIG.format("onnxruntime") + '[targets.other]\nruntime = "tract"\n'
    second = locked(project_of(tmp_path, both), first)

    assert second.targets["other"].runtimes[0].packages == ("numpy==2.6.0", "tract==0.23.9")


def test_nothing_fits(tmp_path: Path, local_index: LocalIndex) -> None:
    """An engine whose dependencies cannot be satisfied is a config error that quotes uv's reason."""
    local_index.add("tract", "0.23.9", ("3.11",), requires=("numpy>=3",))
    local_index.add("numpy", "2.4.0", ("3.11",))

    with pytest.raises(ConfigError) as caught:
        locked(project_of(tmp_path, CONFIG.format("tract")))

    assert caught.value.message.startswith("no compatible dependencies were found for tract 0.23.9 on Python 3.11: ")
