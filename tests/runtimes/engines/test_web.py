"""ONNX Runtime Web itself: its environment by integrity, and what it makes of models."""

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
    """Why npm can fetch nothing here, "" where it can."""
    argv = [need("npm"), "view", f"{COMPANION}@{RELEASE}", "dist.integrity", "--fetch-retries", "0"]
    asked = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if asked.returncode == 0 else f"no npm registry: {' '.join(asked.stderr.split())}"


@pytest.fixture(autouse=True)
def registry() -> None:
    """Node, npm and a registry; the test is skipped where one is missing."""
    need("node")
    if trouble := npm_trouble():
        pytest.skip(trouble)


@pytest.fixture
def web(cache: Path) -> Iterator[WorkerPool]:
    """A host of the real engine."""
    with WorkerPool(Environments(cache, offline=False), 1, JobLimits(time_s=60)) as host:
        yield host


def ask(host: WorkerPool, job: Load | Run | Probe, limits: JobLimits | None = None) -> Observation:
    """What becomes of a job."""
    return host.submit(WorkerSpec.of_runtime(RUNTIME, NPM), job, limits=limits).result(300)


def model(folder: Path, text: str, head: str = HEAD) -> str:
    """A model's path."""
    onnx.save(onnx.parser.parse_model(head + text), folder / "m.onnx")
    return str(folder / "m.onnx")


def run(host: WorkerPool, folder: Path, path: str, *cases: dict[str, object]) -> Observation:
    """A model on some inputs, at no optimisation."""
    made = []
    for index, inputs in enumerate(cases):
        files = {name: str(folder / f"{index}-{name}.npy") for name in inputs}
        for name, value in inputs.items():
            np.save(files[name], np.asarray(value), allow_pickle=False)
        made.append(InputCase(name=f"case {index}", origin="generated", inputs=files))
    (folder / "out").mkdir()
    job = Run(model=path, cases=tuple(made), output=str(folder / "out"), optimization="disabled", providers=())
    return ask(host, job)


def result(observation: Observation) -> RunResult:
    """What a run that completed gave."""
    assert isinstance(observation, Completed), observation
    assert isinstance(observation.result, RunResult)
    return observation.result


def arrays(found: RunResult, case: int = 0) -> list[object]:
    """A case's outputs."""
    return [None if path is None else np.load(path) for path in found.cases[case].outputs]


def test_the_environment_has_what_is_locked(web: WorkerPool) -> None:
    """And nothing else of what the packages' own manifests name."""
    found = ask(web, Probe(packages=(COMPANION, "flatbuffers", "protobufjs")))

    assert isinstance(found, Completed)
    said = msgspec.to_builtins(found.result)["packages"]
    assert {COMPANION: RELEASE, ENGINE: RELEASE, "node": said["node"]} == said


@pytest.mark.parametrize("name", TYPES)
def test_every_type_goes_through(web: WorkerPool, tmp_path: Path, name: str) -> None:
    """Unchanged, and as numpy's own type."""
    value = np.array([[0, 1, 1], [1, 0, 1]]).astype(TYPES[name])
    path = model(tmp_path, f"g ({name}[N, 3] x) => ({name}[N, 3] y) {{ y = Identity (x) }}")
    (found,) = arrays(result(run(web, tmp_path, path, {"x": value})))

    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(value, found)
    assert value.dtype == found.dtype


def test_strings_go_through(web: WorkerPool, tmp_path: Path) -> None:
    """Of any length and any plane of Unicode."""
    path = model(tmp_path, "g (string[N] x) => (string[N] y) { y = Identity (x) }")
    (found,) = arrays(result(run(web, tmp_path, path, {"x": ["", "zwölf", "😀"]})))

    assert isinstance(found, np.ndarray)
    assert found.tolist() == ["", "zwölf", "😀"]


def test_outputs_are_in_the_graph_s_order(web: WorkerPool, tmp_path: Path) -> None:
    """What is no tensor has no array; the others have."""
    text = (
        "g (float[N] x) => (float[N] z, seq(float[N]) s, float[N] a) "
        "{ z = Neg (x) s = SequenceConstruct (x) a = Abs (x) }"
    )
    found = result(run(web, tmp_path, model(tmp_path, text), {"x": np.array([1, -2], "f4")}))
    z, s, a = arrays(found)

    assert ("z", "s", "a") == found.outputs
    assert s is None
    assert isinstance(z, np.ndarray)
    assert isinstance(a, np.ndarray)
    assert ([-1, 2], [1, 2]) == (z.tolist(), a.tolist())


def test_a_failing_case_does_not_stop_the_next(web: WorkerPool, tmp_path: Path) -> None:
    """Its failure has the runtime's words."""
    path = model(tmp_path, "g (float[N] x, int64[K] s) => (float[A] y) { y = Reshape (x, s) }")
    good, bad = {"x": np.ones(4, "f4"), "s": np.array([2, 2])}, {"x": np.ones(5, "f4"), "s": np.array([7, 7])}
    found = result(run(web, tmp_path, path, bad, good))

    assert found.cases[0].failure is not None
    assert "The input tensor cannot be reshaped to the requested shape" in found.cases[0].failure.text
    assert found.cases[1].failure is None


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
    """Which are matched as those of the Python package."""
    path = model(tmp_path, f"g (float[N] x) => (float[N] y) {{ y = {text} (x) }}", head)
    found = ask(web, Load(model=path, providers=()))

    assert isinstance(found, Refused)
    assert expected in found.failure.text


@pytest.mark.parametrize(
    ("content", "expected"), [(b"garbage" * 9, "protobuf parsing failed"), (b"", "No graph was found")]
)
def test_garbage_is_refused(web: WorkerPool, tmp_path: Path, content: bytes, expected: str) -> None:
    """And the worker does the next job."""
    (tmp_path / "bad.onnx").write_bytes(content)
    bad = ask(web, Load(model=str(tmp_path / "bad.onnx"), providers=()))
    good = ask(web, Load(model=model(tmp_path, "g (float[N] x) => (float[N] y) { y = Neg (x) }"), providers=()))

    assert isinstance(bad, Refused)
    assert expected in bad.failure.text
    assert isinstance(good, Completed)


def test_external_data_is_read(web: WorkerPool, tmp_path: Path) -> None:
    """From the file beside the model; without it the runtime refuses."""
    proto = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Add (x, w) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([10, 20], "f4"), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (found,) = arrays(result(run(web, tmp_path, str(tmp_path / "m.onnx"), {"x": np.ones(2, "f4")})))
    (tmp_path / "w.bin").unlink()

    assert isinstance(found, np.ndarray)
    assert found.tolist() == [11, 21]
    assert isinstance(ask(web, Load(model=str(tmp_path / "m.onnx"), providers=())), Refused)


def test_memory_is_limited(web: WorkerPool, tmp_path: Path) -> None:
    """What goes beyond the limit ends the job, whatever the engine is doing, and no other."""
    limits = JobLimits(time_s=60, memory_mib=20)
    np.save(tmp_path / "x.npy", np.ones(4, "f4"))
    (tmp_path / "out").mkdir()
    case = InputCase(name="endless", origin="generated", inputs={"x": str(tmp_path / "x.npy")})
    job = Run(model=model(tmp_path, ENDLESS), cases=(case,), output=str(tmp_path / "out"), providers=())
    found, after = ask(web, job, limits), ask(web, Probe())

    assert isinstance(found, Refused)
    assert found.failure.memory
    assert isinstance(after, Completed)


# The environment


def prepare(cache: Path, packages: tuple[NpmPackage, ...] = NPM, *, offline: bool = False) -> Path:
    """The folder of the package in a cache."""
    return Environments(cache, offline=offline).prepare(RUNTIME, packages)


def leftovers(cache: Path) -> list[str]:
    """What a failed build left, but for its lock."""
    return [str(path) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_it_is_built_once(tmp_path: Path) -> None:
    """And built anew where it was distrusted; not in the cache that other tests use meanwhile."""
    first, second = prepare(tmp_path), prepare(tmp_path)
    environments = Environments(tmp_path, offline=False)
    environments.discard(RUNTIME, NPM)
    third = environments.prepare(RUNTIME, NPM)

    assert first == second != third
    assert not first.exists()
    assert json.loads((third / "package.json").read_text())["version"] == RELEASE
    assert sorted(path.name for path in third.parent.iterdir() if not path.name.startswith(".")) == [COMPANION, ENGINE]


def test_other_content_is_refused(tmp_path: Path) -> None:
    """Nothing of it is left, and nothing of it was run."""
    tampered = msgspec.structs.replace(NPM[0], integrity=NPM[0].integrity.replace("7fdV", "7fdW"))
    with pytest.raises(UnavailableError, match=r"`onnxruntime-web 1\.30\.0` does not match the lock: .*[Ii]ntegrity"):
        prepare(tmp_path, (tampered, NPM[1]))

    assert leftovers(tmp_path) == []


def test_a_lock_without_integrity(tmp_path: Path) -> None:
    """Nothing is installed that the lock does not say."""
    with pytest.raises(UnavailableError, match=r"the lock has no integrity hash for `onnxruntime-web==1\.30\.0`"):
        prepare(tmp_path, NPM[:1])


def test_offline_takes_npm_s_cache_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so where that has it not."""
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(UnavailableError, match=r"is not in npm's cache and cannot be downloaded with `--offline`"):
        prepare(tmp_path / "cache", offline=True)

    assert leftovers(tmp_path / "cache") == []


def test_no_registry_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told from a package that is not there."""
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")

    with pytest.raises(
        UnavailableError, match=r"cannot be downloaded: the npm registry is unreachable \(.*ECONNREFUSED"
    ):
        prepare(tmp_path / "cache")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", "`node` was not found on PATH"),
        ('echo \'{"path": "/x", "version": "16.20.2"}\'', "`node` is version 16.20.2, which is too old"),
        ("echo nonsense", "`node` did not report its version"),
    ],
)
def test_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: str) -> None:
    """What to do about it is said, and it is an observation like any other."""
    if program:
        (tmp_path / "node").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    with WorkerPool(Environments(tmp_path / "cache", offline=True), 1) as host:
        found = ask(host, Probe())

    assert isinstance(found, Unavailable)
    assert found.reason.startswith(expected)
    assert found.hint == "install Node.js 18 or newer, with `node` and `npm` on PATH"


def test_what_node_is_told_elsewhere_is_not_heard(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker loads what is locked, and nothing that the user's own Node is told to."""
    prepare(cache)
    environments = Environments(cache, offline=False)
    environments.node.node()
    monkeypatch.setenv("NODE_OPTIONS", f"--require {tmp_path / 'nothing.js'}")
    with WorkerPool(environments, 1) as host:
        assert isinstance(ask(host, Probe()), Completed)
