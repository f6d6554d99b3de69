"""A hostile library attempts everything in `adversary`: as an extension library, and in locked packages."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from onnxgate.core.jobs import Load, Observation, Unavailable
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, NpmPackage, Wheel
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker import linux_sandbox
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.conftest import ROOT, need
from tests.harness.models import write
from tests.project.lock.npm_registry import COMPANION, ENGINE, serve, use_registry
from tests.runtimes.adversary import ATTEMPTS, format_table
from tests.runtimes.conftest import Locked

SOURCE = Path(__file__).parent / "adversary" / "attempts.c"
KEYS = (".env.local", ".git-credentials", ".git/config", ".vault-token", "id_rsa", "sub/.env")
TOKENS = (".cache/huggingface/token", ".cargo/credentials.toml", ".ssh/id_rsa")
COMPILER = shutil.which("gcc") or shutil.which("cc")
PACKAGE = "hostile-extension"
METADATA = b"Metadata-Version: 2.1\nName: hostile-extension\nVersion: 1.0\n"
MODULE = """import ctypes, pathlib
library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("attempts.so")))
library.attempt_results.restype = ctypes.c_char_p

def get_library_path():
    raise RuntimeError(library.attempt_results().decode())
"""
WEB_MANIFEST = b'{"name": "%s", "version": "1.0.0", "main": "index.js"}'
WEB_MODULE = """
const values = (tensor) => (tensor.data.length === 3 ? tensor.data.map((value) => -value) : tensor.data);
const run = async ({ x }) => ({ y: { type: "float32", data: values(x), dims: x.dims } });
exports.env = { wasm: {}, versions: { web: "1.0.0" } };
exports.Tensor = class { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } };
exports.InferenceSession = { create: async () => ({ outputNames: ["y"], run, release: async () => {} }) };
"""
"""An engine that passes the health check."""
WEB_ATTEMPTS = """
if (process.env.OUTSIDE) {
  try {
    process.dlopen({ exports: {} }, require("path").join(__dirname, "attempts.so"));
  } catch {}  // it is not an add-on for Node.js
  throw new Error("cannot be registered: " + process.env.ATTEMPTS);
}
"""

NEED_CAPABILITIES = {
    *("read_handle", "create_device", "change_kernel_setting", "open_netlink", "trace_gate", "enter_namespace"),
    *("mount_folder", "change_root", "load_bpf", "count_events", "handle_page_faults", "use_keyring"),
    *("read_kernel_log", "change_clock", "change_host_name", "compare_process", "copy_memory", "read_memory"),
    *("open_io_uring", "change_attributes"),
}
"""Attempts that a container may deny, even to root."""

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or linux_sandbox.landlock_version() < 6, reason="needs Landlock 6"
    ),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Create a folder with a model, keys and the hostile library."""
    folder = tmp_path / "outside"
    for file in (*(f"models/{key}" for key in KEYS), *(f"home/{token}" for token in TOKENS)):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("secret")
    for name in ("key", "spare", "renamed"):
        (folder / name).write_text("secret")
    (folder / "pointer").symlink_to("key")
    write(folder / "models" / "x.onnx")
    assert COMPILER is not None
    command = [COMPILER, "-O1", "-shared", "-fPIC", "-o", str(folder / "attempts.so"), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return folder


def attempt(outside: Path, cache: Path, runtime: Locked, extension: str, port: int, *, limited: bool) -> dict[str, int]:
    """Load a model with the hostile extension, and return the error number of each attempt; 0 for success."""
    locked, packages = runtime
    variables = (("OUTSIDE", str(outside)), ("PORT", str(port)))
    spec = WorkerSpec("hostile 1.0", "onnxruntime", locked, packages, environment=variables)
    with WorkerPool(Environments(cache, offline=False), 1, JobLimits(time_s=60), limited=limited) as host:
        job = Load(model=str(outside / "models" / "x.onnx"), extensions=(extension,))
        return parse(host.submit(spec, job).result(120))


def parse(observation: Observation) -> dict[str, int]:
    """Return the results in the text of an extension that cannot be registered."""
    assert isinstance(observation, Unavailable), observation
    assert "cannot be registered" in observation.reason, observation
    pairs = (word.partition("=") for word in observation.reason.split() if word.partition("=")[2].isdigit())
    return {name.rpartition(":")[2]: int(error) for name, _, error in pairs}


def expect(results: dict[str, int], library: Path) -> None:
    """Compare the results with the table."""
    possible = {name for attempt in ATTEMPTS if attempt.result == "possible" for name in attempt.names}

    assert set(results) == {name for attempt in ATTEMPTS for name in attempt.names}
    assert {name for name, error in results.items() if error == 0} == possible
    assert library.with_name("spare").read_text() == "secret"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials in the environment."""
    monkeypatch.setenv("GITHUB_TOKEN", "secret")


def test_an_extension_library_gets_nothing(
    outside: Path, cache: Path, locked: Callable[..., Locked], port: int
) -> None:
    """Each attempt of a library of custom operators has the documented result."""
    library = outside / "attempts.so"

    expect(attempt(outside, cache, locked("1.31.1"), str(library), port, limited=True), library)


def test_the_attempts_succeed_without_the_sandbox(
    outside: Path, cache: Path, locked: Callable[..., Locked], port: int
) -> None:
    """It is the sandbox that denies the attempts, except for those that fail in every worker."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    results = attempt(outside, cache, locked("1.31.1"), str(outside / "attempts.so"), port, limited=False)

    assert {name for name, error in results.items() if error} <= {"inherited_files", "open_terminal", *_unsupported()}


def _unsupported() -> set[str]:
    """Return the attempts that containers forbid to root."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)
    return set() if capabilities >> 21 & 1 else NEED_CAPABILITIES  # CAP_SYS_ADMIN


@pytest.fixture
def package(outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LockedPackage:
    """Build a wheel that contains the library and loads it when it is imported, and make uv find it."""
    name, version = PACKAGE.replace("-", "_"), "1.0"
    wheel = tmp_path / "wheels" / f"{name}-{version}-py3-none-any.whl"
    wheel.parent.mkdir()
    files: dict[str, bytes] = {
        f"{name}/__init__.py": MODULE.encode(),
        f"{name}/attempts.so": (outside / "attempts.so").read_bytes(),
        f"{name}-{version}.dist-info/METADATA": METADATA,
        f"{name}-{version}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{name}-{version}.dist-info/RECORD"] = "".join(f"{file},,\n" for file in files).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel.parent))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return LockedPackage(name=PACKAGE, version=version, python="3.11", wheels=(Wheel(file=wheel.name, sha256=digest),))


def test_a_locked_package_gets_nothing(
    outside: Path, tmp_path: Path, locked: Callable[..., Locked], package: LockedPackage, port: int
) -> None:
    """Each attempt of a package that is imported into the worker has the documented result."""
    runtime, packages = locked("1.31.1")
    pins = tuple(sorted((*runtime.packages, f"{PACKAGE}=={package.version}")))
    hostile = replace(runtime, packages=pins, extensions=(PACKAGE,))

    results = attempt(outside, tmp_path / "cache", (hostile, (*packages, package)), PACKAGE, port, limited=True)

    expect(results, outside / "attempts.so")


@pytest.mark.surface
def test_an_npm_package_gets_nothing(outside: Path, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt of a package that Node.js runs has the documented result."""
    need("node")
    need("npm")
    library = (outside / "attempts.so").read_bytes()
    files = {"index.js": (WEB_MODULE + WEB_ATTEMPTS).encode(), "attempts.so": library}
    with serve() as registry:
        use_registry(monkeypatch, registry.url, tmp_path / "npm")
        hashes = {
            name: registry.publish(name, "1.0.0", {"package.json": WEB_MANIFEST % name.encode(), **files})
            for name in (COMPANION, ENGINE)
        }
        pins = tuple(NpmPackage(name=name, version="1.0.0", integrity=hashes[name]) for name in sorted(hashes))
        pinned = tuple(f"{pin.name}=={pin.version}" for pin in pins)
        runtime = LockedRuntime(engine=ENGINE, release="1.0.0", packages=pinned)
        variables = (("OUTSIDE", str(outside)), ("PORT", str(port)))
        spec = WorkerSpec(runtime.name, ENGINE, runtime, pins, environment=variables)
        with WorkerPool(Environments(tmp_path / "cache", offline=False), 1, JobLimits(time_s=60)) as host:
            observation = host.submit(spec, Load(model=str(outside / "models" / "x.onnx"), providers=())).result(120)

    expect(parse(observation), outside / "attempts.so")


def test_the_docs_contain_the_table() -> None:
    """The docs claim what the tests show."""
    assert format_table() in (ROOT / "docs" / "concepts" / "trust.md").read_text(encoding="utf-8")
