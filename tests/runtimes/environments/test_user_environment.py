"""User-provided environments: found by folder or interpreter, and compared with the lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import onnx
import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Completed, Load, LoadResult, Observation, Unavailable
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.user_environment import build_identity, find_user_build
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]

EXTENSIONS = ("onnxruntime-extensions>=0.13", "libs/foo.so")
ADD = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Add(x, x) }'
FAKE = """
from unittest import mock
__version__ = "{version}"
InferenceSession = OrtValue = mock.MagicMock()
"""
NUMPY = """
def __getattr__(name):
    return type(name, (), {"__init__": lambda *_: None})
"""


@pytest.fixture
def own(locked: Callable[..., Locked], cache: Path, tmp_path: Path) -> Path:
    """Return a project folder whose `.venv` contains a real release and the real extensions package."""
    locked_runtime = locked("1.31.1", extension="onnxruntime-extensions==0.15.2")
    made = Environments(cache, offline=False).prepare(*locked_runtime)
    (tmp_path / ".venv").symlink_to(made.parent.parent)
    return tmp_path


def target(runtime: str = "onnxruntime>=1.23", python: str = ".venv", extensions: tuple[str, ...] = ()) -> Target:
    """Return a target with a user-provided environment."""
    return Target(runtime=runtime, python=python, extensions=extensions)


def fake_environment(folder: Path, version: str) -> None:
    """Create an environment whose engine reports this version, or exits on import if the version is empty."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    (site,) = (folder / ".venv").glob("lib/python3*/site-packages")
    text = FAKE.format(version=version) if version else "raise SystemExit('it is\\nbroken')"
    for module, code in (("onnxruntime", text), ("numpy", NUMPY)):
        (site / f"{module}.py").write_text(code)


def load(folder: Path, runtime: LockedRuntime, cache: Path, providers: tuple[str, ...] = ()) -> Observation:
    """Return the observation of loading a model in the environment."""
    model = folder / "add.onnx"
    onnx.save(onnx.parser.parse_model(ADD), model)
    job = Load(model=str(model), providers=(*providers, "CPUExecutionProvider"))
    with WorkerPool(Environments(cache, offline=True), 1) as host:
        return host.submit(WorkerSpec.of_runtime(runtime, (), folder), job).result(200)


@pytest.mark.index
@pytest.mark.parametrize("python", [".venv", ".venv/bin/python"])
def test_found(own: Path, tmp_path: Path, python: str) -> None:
    """The release and the extensions are read from the environment; the runtime uses it and creates no other one."""
    user_build = find_user_build(own, target(python=python, extensions=EXTENSIONS))

    assert user_build == LockedRuntime(
        engine="onnxruntime",
        release="1.31.1",
        packages=("onnxruntime-extensions==0.15.2",),
        extensions=EXTENSIONS,
        environment=python,
    )
    cache = tmp_path / "empty"
    assert Completed(result=LoadResult(providers=("CPUExecutionProvider",))) == load(own, user_build, cache)
    assert not cache.exists()


@pytest.mark.index
@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (target("onnxruntime<1.31"), "`.venv` has onnxruntime 1.31.1, but the target requires `onnxruntime<1.31`"),
        (
            target(extensions=("onnxruntime_extensions>1",)),
            "`.venv` has onnxruntime-extensions 0.15.2, but the target requires `onnxruntime-extensions>1`",
        ),
        (target(extensions=("foo",)), "`.venv` has no foo, but the target requires `foo`"),
        (target(python="absent"), "`absent` does not exist"),
        (target(python="."), "`.` contains no Python interpreter"),
    ],
)
def test_unmet_requirement_is_reported(own: Path, requested: Target, expected: str) -> None:
    """The message reports what the environment contains if it does not meet the target's requirements."""
    with pytest.raises(UnavailableError) as caught:
        find_user_build(own, requested)

    assert expected == caught.value.message


@pytest.mark.index
@pytest.mark.parametrize(
    ("changed", "reason", "hint"),
    [
        (
            {"release": "1.30.0"},
            "`.venv` has onnxruntime 1.31.1, but the lock pins 1.30.0",
            "install onnxruntime 1.30.0 in this environment, "
            "or lock the installed version: `onnxgate lock --upgrade onnxruntime=1.31.1`",
        ),
        (
            {"packages": ("onnxruntime-extensions==0.14.0",)},
            "`.venv` has onnxruntime-extensions 0.15.2, but the lock pins 0.14.0",
            "install onnxruntime-extensions 0.14.0 in this environment, "
            "or lock the installed version: `onnxgate lock --upgrade onnxruntime-extensions=0.15.2`",
        ),
        (
            {"packages": ("foo==1.0",)},
            "`.venv` has no foo, but the lock pins 1.0",
            "install foo 1.0 in this environment",
        ),
        (
            {"environment": "absent"},
            "`absent` does not exist",
            "set `python` to a Python interpreter, or to the folder of an",
        ),
    ],
)
def test_environment_must_match_the_lock(
    own: Path, cache: Path, changed: dict[str, str], reason: str, hint: str
) -> None:
    """A runtime is unavailable if the environment does not match the lock."""
    locked = LockedRuntime(engine="onnxruntime", release="1.31.1", environment=".venv")

    observation = load(own, msgspec.structs.replace(locked, **changed), cache)

    assert isinstance(observation, Unavailable)
    assert observation.reason == reason
    assert observation.hint.startswith(hint)


@pytest.mark.index
def test_provider_that_the_build_has_not(own: Path, cache: Path) -> None:
    """A missing provider leaves the model undecided and is not replaced by another provider."""
    locked = LockedRuntime(engine="onnxruntime", release="1.31.1", environment=".venv")

    observation = load(own, locked, cache, ("CUDAExecutionProvider",))

    assert isinstance(observation, Unavailable)
    assert observation.reason.startswith("this build has no `CUDAExecutionProvider`; available: `")


@pytest.mark.parametrize(("version", "release"), [("1.24.0", "1.24.0"), ("1.24.0+cu128.mine", "1.24.0")])
def test_local_builds(tmp_path: Path, version: str, release: str) -> None:
    """A local version matches its public release."""
    fake_environment(tmp_path, version)

    assert release == find_user_build(tmp_path, target()).release


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("", "onnxruntime in `.venv` does not work: the worker process failed to start: broken"),
        ("main", "onnxruntime in `.venv` reports an invalid version: Invalid version: 'main'"),
    ],
)
def test_builds_that_do_not_work(tmp_path: Path, version: str, expected: str) -> None:
    """An engine that cannot be imported or reports an invalid version is unavailable; its message is the reason."""
    fake_environment(tmp_path, version)

    with pytest.raises(UnavailableError) as caught:
        find_user_build(tmp_path, target())

    assert expected == caught.value.message


def test_an_environment_without_an_engine(tmp_path: Path) -> None:
    """An environment without an engine is unavailable."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)

    with pytest.raises(UnavailableError, match="does not work: ModuleNotFoundError"):
        find_user_build(tmp_path, target())


def build_of(folder: Path, libraries: dict[str, bytes], site: str = "lib/python3.11/site-packages") -> Path:
    """Create an environment that contains native libraries of an engine."""
    capi = folder / site / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    for name, content in libraries.items():
        (capi / name).write_bytes(content)
    return folder


STATE = {"onnxruntime_pybind11_state.so": b"one"}


def test_identity(tmp_path: Path) -> None:
    """A build is identified by the bytes and names of all its native libraries, and by nothing else."""
    one = build_of(tmp_path / "one", {**STATE, "_ld_preload.py": b"", "libfoo.so.1": b"two"})
    same = build_of(tmp_path / "same", {**STATE, "libfoo.so.1": b"two"}, "Lib/site-packages")
    others = [
        build_of(tmp_path / "a", STATE),
        build_of(tmp_path / "b", {**STATE, "libfoo.so.1": b"tow"}),
        build_of(tmp_path / "c", {**STATE, "libbar.so.1": b"two"}),
        build_of(tmp_path / "d", {"onnxruntime_pybind11_state.so": b"onetwo"}),
    ]
    (one / "bin").mkdir()
    (one / "bin" / "python").touch()

    assert build_identity(one) == build_identity(same) == build_identity(one / "bin" / "python")
    assert len({build_identity(each) for each in (one, *others)}) == 1 + len(others)


def test_no_identity(tmp_path: Path) -> None:
    """Without a build, or with more than one, there is no identity."""
    several = build_of(build_of(tmp_path / "several", STATE), STATE, "lib/python3.12/site-packages")

    assert build_identity(tmp_path / "absent") == ""
    assert build_identity(build_of(tmp_path / "empty", {})) == ""
    assert build_identity(several) == ""


@pytest.mark.index
def test_identity_of_a_real_build(own: Path) -> None:
    """The identity is the same for folder and interpreter."""
    identity = build_identity(own / ".venv")

    assert len(identity) == 64
    assert identity == build_identity(own / ".venv" / "bin" / "python")


def test_build_under_another_name(tmp_path: Path) -> None:
    """A build of ONNX Runtime is identified by its distribution name, because all builds have the same module name."""
    fake_environment(tmp_path, "1.23.2")
    (site,) = (tmp_path / ".venv").glob("lib/python3*/site-packages")
    info = site / "onnxruntime_gpu-1.23.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.23.2\n")

    assert find_user_build(tmp_path, target("onnxruntime-gpu")).name == "onnxruntime-gpu@.venv 1.23.2"
    with pytest.raises(UnavailableError, match=r"`\.venv` has no onnxruntime-qnn, but the target requires"):
        find_user_build(tmp_path, target("onnxruntime-qnn"))
