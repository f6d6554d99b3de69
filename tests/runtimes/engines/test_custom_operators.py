"""Custom operator libraries in real environments: registration and error messages."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgate.core.jobs import Completed, InputCase, Load, Observation, Refused, Run, RunResult, Unavailable
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]

PACKAGE = "onnxruntime-extensions"
NODE = """
<ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]>
g ({type}[N] x) => ({type}[N] y) {{ y = {domain}.{name}(x) }}
"""
UPPER = NODE.format(domain="ai.onnx.contrib", name="StringUpper", type="string")


@dataclasses.dataclass
class Bench:
    """A release whose environment contains the real extensions package, and a working folder."""

    host: WorkerPool
    seat: WorkerSpec
    interpreter: Path
    folder: Path

    def model(self, text: str) -> str:
        """Write a model file and return its path."""
        path = self.folder / "model.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return str(path)

    def load(self, text: str, *extensions: str) -> Observation:
        """Return the observation of loading a model."""
        return self.host.submit(self.seat, Load(model=self.model(text), extensions=extensions)).result(200)

    def site_packages(self) -> Path:
        """Return the `site-packages` folder of the environment."""
        return next(self.interpreter.parent.parent.glob("lib/python3*/site-packages"))


@pytest.fixture(params=["1.16.3", "1.31.1"])
def bench(
    host: WorkerPool, locked: Callable[..., Locked], cache: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Bench:
    """Return a setup with an old or a new release and the extensions package."""
    runtime, packages = locked(request.param, extension=f"{PACKAGE}==0.15.2")
    interpreter = Environments(cache, offline=False).prepare(runtime, packages)
    return Bench(host, WorkerSpec.of_runtime(runtime, packages), interpreter, tmp_path)


pytestmark = pytest.mark.index


def test_package(bench: Bench) -> None:
    """A model that uses the package's operators loads and runs with the package, and is refused without it."""
    array = bench.folder / "x.npy"
    np.save(array, np.array(["a", "bC"]))
    case = InputCase(name="one", origin="user", inputs={"x": str(array)})
    job = Run(model=bench.model(UPPER), cases=(case,), output=str(bench.folder), extensions=(PACKAGE,))
    observation = bench.host.submit(bench.seat, job).result(200)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, RunResult)
    (path,) = observation.result.cases[0].outputs
    assert path is not None
    assert np.load(path, allow_pickle=False).tolist() == ["A", "BC"]
    assert isinstance(refused := bench.load(UPPER), Refused)
    assert "ai.onnx.contrib:StringUpper(-1) is not a registered function/op" in refused.failure.text


@pytest.mark.parametrize(("domain", "name"), [("ai.onnx.contrib", "NoSuchOperator"), ("my.domain", "StringUpper")])
def test_unregistered_operators_are_refused(bench: Bench, domain: str, name: str) -> None:
    """The runtime still refuses operators that the package does not register, and other domains."""
    refused = bench.load(NODE.format(domain=domain, name=name, type="string"), PACKAGE)

    assert isinstance(refused, Refused)
    assert f"{domain}:{name}(-1) is not a registered function/op" in refused.failure.text


def test_library(bench: Bench) -> None:
    """A library can be registered by its path."""
    (library,) = (bench.site_packages() / "onnxruntime_extensions").glob("*.so")
    own = bench.folder / "my libs" / "libfoo.so"
    own.parent.mkdir()
    shutil.copy(library, own)

    assert isinstance(bench.load(UPPER, str(own)), Completed)


def test_failed_registration_is_undecided(bench: Bench) -> None:
    """The job is undecided, the reason contains no path of this machine, and the worker stays usable."""
    text, math = bench.folder / "text.so", next((bench.site_packages() / "numpy").glob("_core/_multiarray*.so"), None)
    text.write_text("no library")
    other = math or next((bench.site_packages() / "numpy").glob("core/_multiarray_umath*.so"))
    wrong = {
        str(bench.folder / "absent.so"): "`absent.so` cannot be registered: the file does not exist",
        str(text): "`text.so` cannot be registered: Fail: ",
        str(other): f"`{other.name}` cannot be registered: Fail: ",
        "numpy": "`numpy` cannot be registered: its module `numpy` has no function `get_library_path`",
        "not-installed": "`not-installed` cannot be registered: ",
    }
    for extension, expected in wrong.items():
        observation = bench.load(UPPER, PACKAGE, extension)
        assert isinstance(observation, Unavailable), extension
        assert f"extension {expected}" in observation.reason
        assert os.sep + "site-packages" not in observation.reason
        assert str(bench.folder) not in observation.reason

    assert isinstance(bench.load(UPPER, PACKAGE), Completed)
