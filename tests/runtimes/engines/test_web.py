"""ONNX Runtime Web: environments verified by integrity hash, and model runs."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Completed, InputCase, Load, Observation, Probe, Refused, Run, RunResult, Unavailable
from onnxgate.project.lock.types import LockedRuntime, NpmPackage
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.conftest import need

pytestmark = pytest.mark.surface

ENGINE, COMPANION, RELEASE = "onnxruntime-web", "onnxruntime-common", "1.30.0"
RUNTIME = LockedRuntime(engine=ENGINE, release=RELEASE, packages=(f"{COMPANION}=={RELEASE}", f"{ENGINE}=={RELEASE}"))
NPM = (
    NpmPackage(
        name=COMPANION,
        version=RELEASE,
        integrity="sha512-7fdVWjAID1dVhH/G8qK3APARunV4VkBFoCQAP7qp4Wkab0mrorvmc+sqiT+mKXOzDqdjN5j+/Z9nb4gzNPWcyA==",
    ),
    NpmPackage(
        name=ENGINE,
        version=RELEASE,
        integrity="sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    ),
)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
ENDLESS = (
    "g (float[N] x) => (float[N] y) <int64 rounds = {9223372036854775807}, bool go = {1}> {"
    " y = Loop(rounds, go, x) <body = body (int64 round, bool on, float[N] state) => (bool still, float[N] next)"
    " { still = Identity(on) next = Neg(state) }> }"
)
TYPES = {
    "float": "f4",
    "double": "f8",
    "float16": "f2",
    "bool": "?",
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
}


@functools.cache
def npm_trouble() -> str:
    """Return why npm cannot download packages, or an empty string if it can."""
    argv = [need("npm"), "view", f"{COMPANION}@{RELEASE}", "dist.integrity", "--fetch-retries", "0"]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 else f"no npm registry: {' '.join(result.stderr.split())}"


@pytest.fixture(autouse=True)
def registry() -> None:
    """Skip the test if Node, npm or the registry is unavailable."""
    need("node")
    if trouble := npm_trouble():
        pytest.skip(trouble)


@pytest.fixture
def web(cache: Path) -> Iterator[WorkerPool]:
    """Yield a worker pool for the real engine."""
    with WorkerPool(Environments(cache, offline=False), 1, JobLimits(time_s=60)) as host:
        yield host


def run_job(host: WorkerPool, job: Load | Run | Probe, limits: JobLimits | None = None) -> Observation:
    """Return the observation of a job."""
    return host.submit(WorkerSpec.of_runtime(RUNTIME, NPM), job, limits=limits).result(300)


def model(folder: Path, text: str, head: str = HEAD) -> str:
    """Write a model and return its path."""
    onnx.save(onnx.parser.parse_model(head + text), folder / "m.onnx")
    return str(folder / "m.onnx")


def run(host: WorkerPool, folder: Path, path: str, *cases: dict[str, object]) -> Observation:
    """Run a model on some inputs, without graph optimization."""
    made = []
    for index, inputs in enumerate(cases):
        files = {name: str(folder / f"{index}-{name}.npy") for name in inputs}
        for name, value in inputs.items():
            np.save(files[name], np.asarray(value), allow_pickle=False)
        made.append(InputCase(name=f"case {index}", origin="generated", inputs=files))
    (folder / "out").mkdir()
    job = Run(model=path, cases=tuple(made), output=str(folder / "out"), optimization="disabled", providers=())
    return run_job(host, job)


def result(observation: Observation) -> RunResult:
    """Return the result of a completed run."""
    assert isinstance(observation, Completed), observation
    assert isinstance(observation.result, RunResult)
    return observation.result


def arrays(actual: RunResult, case: int = 0) -> list[object]:
    """Return the output arrays of a case."""
    return [None if path is None else np.load(path) for path in actual.cases[case].outputs]


def test_environment_contains_only_locked_packages(web: WorkerPool) -> None:
    """The environment contains only locked packages, not other dependencies from the packages' manifests."""
    response = run_job(web, Probe(packages=(COMPANION, "flatbuffers", "protobufjs")))

    assert isinstance(response, Completed)
    actual = msgspec.to_builtins(response.result)["packages"]
    assert {COMPANION: RELEASE, ENGINE: RELEASE, "node": actual["node"]} == actual


@pytest.mark.parametrize("name", TYPES)
def test_every_type_round_trips(web: WorkerPool, tmp_path: Path, name: str) -> None:
    """Each element type is passed through unchanged, with its numpy type."""
    value = np.array([[0, 1, 1], [1, 0, 1]]).astype(TYPES[name])
    path = model(tmp_path, f"g ({name}[N, 3] x) => ({name}[N, 3] y) {{ y = Identity (x) }}")
    (found,) = arrays(result(run(web, tmp_path, path, {"x": value})))

    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(value, found)
    assert value.dtype == found.dtype


def test_strings_go_through(web: WorkerPool, tmp_path: Path) -> None:
    """Strings of any length and from any Unicode plane are passed through unchanged."""
    path = model(tmp_path, "g (string[N] x) => (string[N] y) { y = Identity (x) }")
    (found,) = arrays(result(run(web, tmp_path, path, {"x": ["", "zwölf", "😀"]})))

    assert isinstance(found, np.ndarray)
    assert found.tolist() == ["", "zwölf", "😀"]


def test_outputs_are_in_the_graph_s_order(web: WorkerPool, tmp_path: Path) -> None:
    """Outputs are in graph order; only a non-tensor output has no array."""
    text = (
        "g (float[N] x) => (float[N] z, seq(float[N]) s, float[N] a) "
        "{ z = Neg (x) s = SequenceConstruct (x) a = Abs (x) }"
    )
    actual = result(run(web, tmp_path, model(tmp_path, text), {"x": np.array([1, -2], "f4")}))
    z, s, a = arrays(actual)

    assert ("z", "s", "a") == actual.outputs
    assert s is None
    assert isinstance(z, np.ndarray)
    assert isinstance(a, np.ndarray)
    assert ([-1, 2], [1, 2]) == (z.tolist(), a.tolist())


def test_a_failing_case_does_not_stop_the_next(web: WorkerPool, tmp_path: Path) -> None:
    """The failure message is the runtime's."""
    path = model(tmp_path, "g (float[N] x, int64[K] s) => (float[A] y) { y = Reshape (x, s) }")
    good, bad = {"x": np.ones(4, "f4"), "s": np.array([2, 2])}, {"x": np.ones(5, "f4"), "s": np.array([7, 7])}
    actual = result(run(web, tmp_path, path, bad, good))

    assert actual.cases[0].failure is not None
    assert "The input tensor cannot be reshaped to the requested shape" in actual.cases[0].failure.text
    assert actual.cases[1].failure is None


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (
            '<ir_version: 99, opset_import: ["" : 17]> ',
            "Neg",
            "Unsupported model IR version: 99, max supported IR version: 13",
        ),
        ('<ir_version: 8, opset_import: ["" : 17, "d" : 1]> ', "d.MyOp", "d:MyOp(-1) is not a registered function/op"),
    ],
)
def test_a_refusal_has_the_runtime_s_words(
    web: WorkerPool, tmp_path: Path, head: str, text: str, expected: str
) -> None:
    """The messages have the same form as those of the Python package, so the same patterns match them."""
    path = model(tmp_path, f"g (float[N] x) => (float[N] y) {{ y = {text} (x) }}", head)
    response = run_job(web, Load(model=path, providers=()))

    assert isinstance(response, Refused)
    assert expected in response.failure.text


@pytest.mark.parametrize(
    ("content", "expected"), [(b"garbage" * 9, "protobuf parsing failed"), (b"", "No graph was found")]
)
def test_garbage_is_refused(web: WorkerPool, tmp_path: Path, content: bytes, expected: str) -> None:
    """Invalid files are refused, and the worker runs the next job."""
    (tmp_path / "bad.onnx").write_bytes(content)
    bad = run_job(web, Load(model=str(tmp_path / "bad.onnx"), providers=()))
    good = run_job(web, Load(model=model(tmp_path, "g (float[N] x) => (float[N] y) { y = Neg (x) }"), providers=()))

    assert isinstance(bad, Refused)
    assert expected in bad.failure.text
    assert isinstance(good, Completed)


def test_external_data_is_read(web: WorkerPool, tmp_path: Path) -> None:
    """External data in the model's folder is loaded; if the file is missing, the runtime refuses the model."""
    proto = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Add (x, w) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([10, 20], "f4"), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (found,) = arrays(result(run(web, tmp_path, str(tmp_path / "m.onnx"), {"x": np.ones(2, "f4")})))
    (tmp_path / "w.bin").unlink()

    assert isinstance(found, np.ndarray)
    assert found.tolist() == [11, 21]
    assert isinstance(run_job(web, Load(model=str(tmp_path / "m.onnx"), providers=())), Refused)


def test_memory_is_limited(web: WorkerPool, tmp_path: Path) -> None:
    """Exceeding the memory limit ends only that job."""
    limits = JobLimits(time_s=60, memory_mib=20)
    np.save(tmp_path / "x.npy", np.ones(4, "f4"))
    (tmp_path / "out").mkdir()
    case = InputCase(name="endless", origin="generated", inputs={"x": str(tmp_path / "x.npy")})
    job = Run(model=model(tmp_path, ENDLESS), cases=(case,), output=str(tmp_path / "out"), providers=())
    found, after = run_job(web, job, limits), run_job(web, Probe())

    assert isinstance(found, Refused)
    assert found.failure.memory
    assert isinstance(after, Completed)


# The environment


def prepare(cache: Path, packages: tuple[NpmPackage, ...] = NPM, *, offline: bool = False) -> Path:
    """Return the package's folder in a cache."""
    return Environments(cache, offline=offline).prepare(RUNTIME, packages)


def leftovers(cache: Path) -> list[str]:
    """Return the files that a failed build left behind, except its lock file."""
    return [str(path) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_it_is_built_once(tmp_path: Path) -> None:
    """The environment is built once, and again after it was discarded; the test uses its own cache."""
    first, second = prepare(tmp_path), prepare(tmp_path)
    environments = Environments(tmp_path, offline=False)
    environments.discard(RUNTIME, NPM)
    third = environments.prepare(RUNTIME, NPM)

    assert first == second != third
    assert not first.exists()
    assert json.loads((third / "package.json").read_text())["version"] == RELEASE
    assert sorted(path.name for path in third.parent.iterdir() if not path.name.startswith(".")) == [COMPANION, ENGINE]


def test_other_content_is_refused(tmp_path: Path) -> None:
    """A package with the wrong hash is not installed and leaves no files."""
    tampered = msgspec.structs.replace(NPM[0], integrity=NPM[0].integrity.replace("7fdV", "7fdW"))
    with pytest.raises(UnavailableError, match=r"`onnxruntime-web 1\.30\.0` does not match the lock: .*[Ii]ntegrity"):
        prepare(tmp_path, (tampered, NPM[1]))

    assert leftovers(tmp_path) == []


def test_a_lock_without_integrity(tmp_path: Path) -> None:
    """A package without an integrity hash in the lock is not installed."""
    with pytest.raises(UnavailableError, match=r"the lock has no integrity hash for `onnxruntime-web==1\.30\.0`"):
        prepare(tmp_path, NPM[:1])


def test_offline_uses_only_npms_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, only npm's cache is used; the message reports a missing package."""
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(UnavailableError, match=r"some packages are not in npm's cache"):
        prepare(tmp_path / "cache", offline=True)

    assert leftovers(tmp_path / "cache") == []


def test_unreachable_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable registry is reported as such, not as a missing package."""
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")

    with pytest.raises(
        UnavailableError, match=r"cannot be downloaded: the npm registry is unreachable \(.*ECONNREFUSED"
    ):
        prepare(tmp_path / "cache")


def fail_as_npm(folder: Path, text: str) -> None:
    """Put an `npm` into the folder that fails with this error."""
    (folder / "npm").write_text(f"#!/bin/sh\nprintf '{text}' >&2\nexit 1\n")
    (folder / "npm").chmod(0o755)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "`npm` was not found on PATH"),
        (
            "npm error code ECONNREFUSED\\nnpm error request to http://r/PACKAGE failed, reason: connect ECONNREFUSED",
            "packages cannot be downloaded: the npm registry is unreachable (connect ECONNREFUSED)",
        ),
        (
            "npm error code ENOSPC\\nnpm error syscall write\\nnpm error ENOSPC: no space left on device, write",
            "the environment cannot be created: cannot write to `CACHE/environments`: no space left on device",
        ),
        (
            "npm error code ENOTFOUND\\nnpm error network request to http://r/PACKAGE failed, reason: getaddrinfo r",
            "packages cannot be downloaded: the npm registry is unreachable (getaddrinfo r)",
        ),
        (
            "npm error code EAI_AGAIN\\nnpm error FetchError: request to http://r/PACKAGE failed, reason: getaddrinfo",
            "packages cannot be downloaded: the npm registry is unreachable (getaddrinfo)",
        ),
        (
            "npm error code ENETUNREACH\\nnpm error request to http://r/PACKAGE failed, reason: connect ENETUNREACH",
            "packages cannot be downloaded: the npm registry is unreachable (connect ENETUNREACH)",
        ),
        (
            "npm error code ENOSPC\\nnpm error path /home/u/.npm/_cacache/tmp/PACKAGE\\nnpm error ENOSPC: no space",
            "the environment cannot be created: cannot write to `/home/u/.npm`: no space left on device",
        ),
        (
            "npm error code EACCES\\nnpm error path /home/u/.npm\\nnpm error\\nnpm error Your cache folder",
            "the environment cannot be created: `/home/u/.npm`: permission denied",
        ),
        (
            "npm error code ENOENT\\nnpm error path /a/PACKAGE\\nnpm error dest /b/PACKAGE\\nnpm error no such file",
            "`onnxruntime-web RELEASE` cannot be installed: no such file",
        ),
        ("npm error code ENOTCACHED", "some packages are not in npm's cache, and `--offline` prevents their download"),
    ],
)
def test_a_fault_of_several_releases_has_one_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str | None, reason: str
) -> None:
    """Reports merge entries with the same reason, so it names neither the release nor its files."""
    programs, cache = tmp_path / "programs", tmp_path / "cache"
    programs.mkdir()
    (programs / "node").symlink_to(need("node"))
    monkeypatch.setenv("PATH", f"{programs}:/nowhere")
    environments = Environments(cache, offline=error is not None and "ENOTCACHED" in error)
    found, releases = [], ("1.29.0", RELEASE)
    for release in releases:
        if error is not None:
            fail_as_npm(programs, error.replace("PACKAGE", release))
        packages = tuple(msgspec.structs.replace(package, version=release) for package in NPM)
        pins = tuple(f"{package.name}=={release}" for package in packages)
        with pytest.raises(UnavailableError) as caught:
            environments.prepare(LockedRuntime(engine=ENGINE, release=release, packages=pins), packages)
        found.append(caught.value.message)

    assert found == [reason.replace("CACHE", str(cache)).replace("RELEASE", release) for release in releases]


@pytest.mark.parametrize(
    ("first", "retried"),
    [
        ("ECONNREFUSED\\nnpm error connect ECONNREFUSED", False),
        ("ECONNRESET\\nnpm error read ECONNRESET", True),
        ("E404\\nnpm error 404 Not Found - GET https://my-network-mirror.corp/x", True),
    ],
)
def test_a_registry_that_fails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, retried: bool) -> None:
    """Only an error that all requests would have makes npm run offline, and later errors keep their own reason."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "node").symlink_to(need("node"))
    monkeypatch.setenv("PATH", f"{programs}:/nowhere")
    environments = Environments(tmp_path / "cache", offline=False)
    found, pins = [], tuple(f"{package.name}=={package.version}" for package in NPM)
    for error in (f"npm error code {first}", "npm error code E500\\nnpm error 500 Internal Server Error"):
        fail_as_npm(programs, error)
        with pytest.raises(UnavailableError) as caught:
            environments.prepare(LockedRuntime(engine=ENGINE, release=RELEASE, packages=pins), NPM)
        found.append(caught.value.message)
    calls = [call for call in environments.commands.executed if call.startswith("npm ")]

    assert ("unreachable" in found[0]) == ("E404" not in first)
    assert found[1] == f"`{ENGINE} {RELEASE}` cannot be installed: 500 Internal Server Error"
    assert ["--offline" in call for call in calls] == [False, not retried]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", "`node` was not found on PATH"),
        ('echo \'{"path": "/x", "version": "16.20.2"}\'', "`node` is version 16.20.2, which is too old"),
        ("echo nonsense", "`node` did not report its version"),
    ],
)
def test_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: str) -> None:
    """A missing or unusable Node makes the runtime unavailable, with a hint."""
    if program:
        (tmp_path / "node").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    with WorkerPool(Environments(tmp_path / "cache", offline=True), 1) as host:
        response = run_job(host, Probe())

    assert isinstance(response, Unavailable)
    assert response.reason.startswith(expected)
    assert response.hint == "install Node.js 18 or newer, with `node` and `npm` on PATH"


def test_node_options_are_ignored(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker ignores NODE_OPTIONS, so that only locked code is loaded."""
    prepare(cache)
    environments = Environments(cache, offline=False)
    environments.node.node()
    monkeypatch.setenv("NODE_OPTIONS", f"--require {tmp_path / 'nothing.js'}")
    with WorkerPool(environments, 1) as host:
        assert isinstance(run_job(host, Probe()), Completed)
