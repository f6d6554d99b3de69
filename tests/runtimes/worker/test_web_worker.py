"""The JavaScript worker: tensor files, the protocol, and a misbehaving engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxgate.core import subprocesses
from onnxgate.core.jobs import (
    Completed,
    Crashed,
    Harvest,
    InputCase,
    Job,
    Load,
    Observation,
    Probe,
    ProbeResult,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.runtimes.protocol import WORKER_FOLDER, WorkerSession
from onnxgate.runtimes.worker import failures
from tests.conftest import need

from .test_worker import SIGNATURES

pytestmark = pytest.mark.surface

WEB = WORKER_FOLDER / "web"
FAKE = Path(__file__).parents[1] / "fakes" / "onnxruntime-web"
ELEMENTS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
COPY = """
import { decode, encode, read, write } from "WEB/npy.mjs";
import { clean } from "WEB/failures.mjs";
import { dataFiles, locations } from "WEB/external.mjs";
import fs from "node:fs";
const [what, ...rest] = process.argv.slice(1);
const say = (value) => console.log(JSON.stringify(value));
if (what === "copy") say(rest.map((file) => write(file + ".copy.npy", read(file))));
if (what === "decode") say(Array.from(decode(fs.readFileSync(rest[0])).data, String));
if (what === "clean") say(rest.map(clean));
if (what === "data") say(dataFiles(rest[0], fs.readFileSync(rest[0])).map(({ path, data }) => [path, String(data)]));
if (what === "locations") say([...locations(fs.readFileSync(rest[0]))]);
""".replace("WEB", WEB.as_uri())


@pytest.fixture(scope="session")
def node() -> str:
    """Return the Node executable on PATH, or skip the test."""
    result = subprocess.run([need("node"), "-p", "process.execPath"], check=True, capture_output=True, text=True)
    return result.stdout.strip()


def script(node: str, *arguments: object) -> list[Any]:
    """Return the results of the worker's own modules."""
    argv = [node, "--input-type=module", "-e", COPY, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    decoded: list[Any] = json.loads(done.stdout)
    return decoded


def tensors() -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """Return arrays of every type, shape and order that a `.npy` file may have."""
    draw = np.random.default_rng(0)
    found = {name: draw.integers(0, 100, (2, 3)).astype(name) for name in ELEMENTS}
    extremes = {"i8": [-(2**63), 2**63 - 1], "u8": [0, 2**64 - 1], "f2": [65504, -6e-8], "f8": [np.nan, -np.inf]}
    found |= {f"extreme {name}": np.array(values, name) for name, values in extremes.items()}
    found |= {f"big-endian {name}": found[name].astype(f">{name}") for name in ("f2", "f4", "i8")}
    shapes = {"scalar": (), "empty": (0, 4), "long": (5,), "deep": (2, 3, 4, 5)}
    found |= {name: draw.random(shape).astype("f4") for name, shape in shapes.items()}
    found["fortran"] = np.asfortranarray(draw.random((3, 4, 5)))
    found["strings"] = np.array([["a", "zwölf", ""], ["😀x", "\u2028", "two\nlines"]])
    found["fortran strings"] = np.asfortranarray(found["strings"])
    found["no strings"] = np.array([], dtype="<U1")
    found["empty strings"] = np.array(["", ""])
    return found


def test_tensors_come_back_as_they_were(node: str, tmp_path: Path) -> None:
    """Every type is read and written correctly, in either byte order and either axis order."""
    files = {name: tmp_path / f"{name}.npy" for name in tensors()}
    for name, array in tensors().items():
        np.save(files[name], array, allow_pickle=False)
    copied = script(node, "copy", *files.values())
    back = {name: np.load(f"{file}.copy.npy", allow_pickle=False) for name, file in files.items()}

    assert copied == [True] * len(files)
    for name, array in tensors().items():
        np.testing.assert_array_equal(array, back[name], err_msg=name)
        assert (array.dtype.newbyteorder("="), array.shape) == (back[name].dtype, back[name].shape), name


def test_strings_are_not_filled_up(node: str, tmp_path: Path) -> None:
    """The padding that numpy writes after short strings is removed."""
    np.save(tmp_path / "x.npy", np.array(["a", "zwölf", ""]), allow_pickle=False)

    assert ["a", "zwölf", ""] == script(node, "decode", tmp_path / "x.npy")


def test_all_versions_of_the_format(node: str, tmp_path: Path) -> None:
    """All versions of the `.npy` format can be read."""
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "x.npy").open("wb") as file:
            np.lib.format.write_array(file, np.array([1.5, 2.5]), version=version)

        assert ["1.5", "2.5"] == script(node, "decode", tmp_path / "x.npy")


@pytest.mark.parametrize("printed", [*SIGNATURES, "\x1b[31mred\x1b[0m", "\x9b31mred\x07", "a\r\nb\rc\td\n", "x" * 5000])
def test_texts_are_cleaned_as_those_of_other_engines(node: str, printed: str) -> None:
    """The text is cleaned by the same rules as in Python."""
    assert [failures.clean_text(printed)] == script(node, "clean", printed)


def external(folder: Path) -> Path:
    """Write a model with external weights of an initializer, a constant, a subgraph and a function."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17, "d" : 1]> g (bool c, float[2] x) => (float[2] y) {'
        " y = If(c) <then_branch = a () => (float[2] t) { t = Constant <value = float[2] {1, 2}> () },"
        " else_branch = b () => (float[2] e) { e = Constant <value = float[2] {3, 4}> () }> }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, "f4"), "w"))
    function = onnx.helper.make_function("d", "F", [], ["f"], [], [onnx.helper.make_opsetid("", 17)])
    inside = onnx.numpy_helper.from_array(np.ones(2, "f4"), "")
    function.node.append(onnx.helper.make_node("Constant", [], ["f"], value=inside))
    model.functions.append(function)
    inner = model.graph.node[0].attribute[0].g.node[0].attribute[0].t
    inner.CopyFrom(inside)
    places = {
        "w.bin": model.graph.initializer[0],
        "below/t.bin": inner,
        "f.bin": model.functions[0].node[0].attribute[0].t,
    }
    for location, tensor in places.items():
        onnx.external_data_helper.set_external_data(tensor, location)
    (folder / "below").mkdir()
    (folder / "w.bin").write_text("weights")
    (folder / "below" / "t.bin").write_text("inner")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def test_data_files_are_found(node: str, tmp_path: Path) -> None:
    """External data is found anywhere in the model; a missing file is left to the runtime."""
    actual = script(node, "data", external(tmp_path))

    assert sorted([["below/t.bin", "inner"], ["w.bin", "weights"]]) == sorted(actual)
    assert {"below/t.bin", "w.bin", "f.bin"} == set(script(node, "locations", tmp_path / "m.onnx"))


def test_nothing_outside_of_the_folder_is_read(node: str, tmp_path: Path) -> None:
    """A file outside the model's folder is not read, neither by `..` nor through a link."""
    (tmp_path / "inside").mkdir()
    model = external(tmp_path / "inside")
    (tmp_path / "secret.b").write_text("secret")
    (tmp_path / "inside" / "w.bin").unlink()
    (tmp_path / "inside" / "w.bin").symlink_to(tmp_path / "secret.b")
    text = model.read_bytes().replace(b"below/t.bin", b"../secret.b")
    model.write_bytes(text)

    assert "../secret.b" in script(node, "locations", model)
    assert script(node, "data", model) == []


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x3a\xff\xff\xff\x7f", b"\x3a\x05\x2a\x7f\x00\x00\x00"])
def test_invalid_model_has_no_external_data(node: str, tmp_path: Path, content: bytes) -> None:
    """An invalid model has no external data."""
    (tmp_path / "m.onnx").write_bytes(content)

    assert script(node, "locations", tmp_path / "m.onnx") == []


# The protocol, with a misbehaving engine


Start = Callable[..., WorkerSession]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the fake engine in a `node_modules` folder."""
    return shutil.copytree(FAKE, tmp_path_factory.mktemp("web") / "node_modules" / FAKE.name)


@pytest.fixture
def start(node: str, package: Path) -> Iterator[Start]:
    """Yield a function that starts workers of the fake engine."""
    talks = []

    def started(folder: Path = package) -> WorkerSession:
        argv = [node, str(WEB / "main.mjs"), str(folder), str(os.getpid())]
        talks.append(
            WorkerSession(
                subprocesses.WorkerProcess(subprocesses.start_program(argv, bound="group")), "onnxruntime_web"
            )
        )
        assert talks[-1].wait_until_ready() is None
        return talks[-1]

    yield started
    for session in talks:
        session.end()


def load(folder: Path, text: str) -> Load:
    """Return a load job for the fake engine."""
    (folder / "m.onnx").write_text(text)
    return Load(model=str(folder / "m.onnx"), providers=())


def run(folder: Path, text: str, cases: int = 2) -> Run:
    """Return a run job with cases without inputs."""
    output = folder / "out"
    output.mkdir(exist_ok=True)
    named = tuple(InputCase(name=f"case {index}", origin="generated", inputs={}) for index in range(cases))
    return Run(model=load(folder, text).model, cases=named, output=str(output), providers=())


def run_job(session: WorkerSession, job: Job, time_s: float = 20, memory_mib: int | None = None) -> Observation:
    """Return the observation of a job."""
    return session.run(job, time_s, memory_mib)


def test_probe_reports_versions(start: Start) -> None:
    """A probe reports the engine's version, Node's version and those of requested packages that are installed."""
    response = run_job(start(), Probe(packages=("onnxruntime-web", "nothing")))

    assert isinstance(response, Completed)
    assert isinstance(response.result, ProbeResult)
    assert {"onnxruntime-web": "0.0.1", "node": response.result.packages["node"]} == response.result.packages
    assert response.result.python == ""


def test_one_worker_does_many_jobs(start: Start, tmp_path: Path) -> None:
    """One worker completes several jobs."""
    session = start()
    actual = [run_job(session, job) for job in (load(tmp_path, "good"), run(tmp_path, "good"), load(tmp_path, "good"))]

    assert all(isinstance(each, Completed) for each in actual), actual
    assert not session.ended


@pytest.mark.parametrize("phase", ["load", "run"])
def test_printed_text_is_not_a_response(start: Start, tmp_path: Path, phase: str) -> None:
    """Printed text is not taken for a response."""
    assert isinstance(run_job(start(), run(tmp_path, f"{phase} print")), Completed)


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("trap", "RuntimeError: memory access out of bounds"),
        ("overflow", "RangeError: Maximum call stack size exceeded"),
    ],
)
@pytest.mark.parametrize(("phase", "during"), [("load", "load"), ("run", "case case 0")])
def test_a_trap_is_a_crash(start: Start, tmp_path: Path, phase: str, during: str, deed: str, message: str) -> None:
    """A WebAssembly trap ends the worker, so that no other job runs in a damaged instance."""
    session = start()

    assert Crashed(signal="exit status 1", during=during, log=message) == run_job(
        session, run(tmp_path, f"{phase} {deed}")
    )
    assert session.ended


def test_unhandled_rejection_is_a_crash(start: Start, tmp_path: Path) -> None:
    """An unhandled rejection ends the Node process before or after the response."""
    session = start()
    run_job(session, load(tmp_path, "load reject"))
    response = run_job(session, load(tmp_path, "good"))

    assert isinstance(response, Unavailable | Crashed)


def test_an_exception_of_cpp_is_a_refusal(start: Start, tmp_path: Path) -> None:
    """The text of a C++ exception is unknown, and its WebAssembly instance is not used again."""
    session = start()
    refused = run_job(session, load(tmp_path, "load throw"))
    ran = run_job(session, run(tmp_path, "run throw"))
    after = run_job(session, run(tmp_path, "good", cases=1))

    text = "C++ exception without a message (onnxruntime-web reports messages since 1.24; this is 0.0.1)"
    assert isinstance(refused, Refused)
    assert text == refused.failure.text
    assert isinstance(ran, Completed)
    assert isinstance(ran.result, RunResult)
    assert [text, text] == [case.failure.text if case.failure else "" for case in ran.result.cases]
    assert isinstance(after, Completed)
    assert isinstance(after.result, RunResult)
    assert [3, 2] == np.load(str(after.result.cases[0].outputs[0])).tolist()  # its second session, in a new instance


def test_time_is_limited(start: Start, tmp_path: Path) -> None:
    """The time limit also applies while the engine blocks the event loop."""
    response = run_job(start(), load(tmp_path, "load hang"), time_s=0.5)

    assert isinstance(response, TimedOut)
    assert response.during == "load"


def test_memory_is_limited(start: Start, tmp_path: Path) -> None:
    """A job that exceeds its memory limit ends; the next job has its own limit."""
    response = run_job(start(), load(tmp_path, "load grow"), memory_mib=400)

    assert isinstance(response, Refused)
    assert (True, "the job's memory limit was exceeded") == (response.failure.memory, response.failure.text)


def test_unsupported_requests(start: Start, tmp_path: Path) -> None:
    """Unsupported jobs, providers and extensions make the runtime unavailable."""
    job = load(tmp_path, "good")
    foreign = Load(model=job.model, providers=("CUDAExecutionProvider",))
    extended = Load(model=job.model, providers=(), extensions=("onnxruntime-extensions",))
    actual = [run_job(start(), each) for each in (Harvest(output=str(tmp_path / "x.json")), foreign, extended)]

    assert [
        "`onnxruntime_web` does not support the job `harvest`",
        "this build has no `CUDAExecutionProvider`; available: `CPUExecutionProvider`",
        "ONNX Runtime Web does not support libraries of custom operators",
    ] == [each.reason if isinstance(each, Unavailable) else each for each in actual]


def test_an_engine_that_is_not_there(start: Start, tmp_path: Path) -> None:
    """A missing engine makes the worker unable to start."""
    session = start(tmp_path / "onnxruntime-web")
    response = run_job(session, Probe())

    assert isinstance(response, Unavailable)
    assert response.reason.startswith("Error: Cannot find module 'onnxruntime-web'")
    assert session.cannot_start


HOSTS = """
import os, subprocess, sys
child = subprocess.Popen([*sys.argv[1:], str(os.getpid())], stdin=subprocess.PIPE, start_new_session=True)
job = '{"id": 1, "engine": "onnxruntime_web", "memory_mib": null, "job": {"kind": "load", "model": "%s", '
job += '"optimization": "all", "providers": [], "extensions": []}}\\n'
child.stdin.write((job % os.environ["MODEL"]).encode())
child.stdin.flush()
print(child.pid, flush=True)
child.wait()
"""


def test_the_worker_dies_with_its_host(
    node: str, package: Path, tmp_path: Path, is_alive: Callable[[int], bool]
) -> None:
    """The worker ends with the process that started it, even while the engine is busy."""
    environment = {**os.environ, "MODEL": load(tmp_path, "load hang").model}
    argv = [sys.executable, "-c", HOSTS, node, str(WEB / "main.mjs"), str(package)]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    assert host.stdout is not None
    worker = int(host.stdout.readline())
    output = [host.stdout.readline() for _ in range(3)]
    before = is_alive(worker)
    host.kill()
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + 10
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert '"phase":"load"' in output[-1]
    assert (True, False) == (before, is_alive(worker))
