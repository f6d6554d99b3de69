"""The readers under test, each called as in onnxgate."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import numpy as np

from campaigns.hostile import mutations
from campaigns.hostile.reader_campaign import Reader
from onnxgate import __version__, rules
from onnxgate.core import report_json as json_format
from onnxgate.core.cache_entries import add_checksum, verify_checksum
from onnxgate.core.errors import ConfigError, LockError, UsageError
from onnxgate.core.jobs import CaseResult, Completed, InputCase, Load, Probe, Run, RunResult
from onnxgate.core.report import Report, Shard
from onnxgate.formats import text
from onnxgate.gate.result_cache import CacheEntry, ResultCache
from onnxgate.gate.sharding import merge, plan, shard_report
from onnxgate.github import api
from onnxgate.inputs import case_files
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.reading.file_format import parse_pointer
from onnxgate.project.config.globs import covers, matches
from onnxgate.project.config.ignore_entries import IgnoreEdit, edit_ignores
from onnxgate.project.config.loader import find_config, load_config
from onnxgate.project.config.schema import Ignore
from onnxgate.project.git import baseline
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.runtimes import protocol
from onnxgate.support.harvest import HarvestCache, HarvestRecord

ROOT = Path(__file__).parents[2]
CONFIG = b"""required-version = ">=0.0"
models = ["models/**/*.onnx"]
exclude = ["tests/**"]
ir-version = "<=10"
opset = { "ai.onnx" = 18 }
[targets.server]
runtime = "onnxruntime>=1.18,<1.32"
select = "minors"
providers = ["CPUExecutionProvider"]
optimization = ["all", "disabled"]
[targets.gpu]
runtime = "onnxruntime-gpu>=1.23"
python = ".venv"
required = false
[toolchain]
python = ".venv"
requires = ["torch==2.13.*"]
[[model]]
path = "models/a.onnx"
targets = ["server"]
source = "export/a.py:build"
sizes = { batch = [1, 3] }
inputs = "samples/*.npz"
tolerance = { rtol = 1e-3, atol = 1e-5 }
budget = { size-mib = 40, slower-than-baseline = 1.2 }
[rules]
missing-kernel = "warning"
[[ignore]]
rule = "missing-kernel"
model = "models/legacy.onnx"
reason = "moves"
until = 2027-03-31
[limits]
time-s = 300
"""


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _project(folder: Path) -> None:
    """Create the files named by the config."""
    for name in ("models/a.onnx", "models/legacy.onnx", "export/a.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()


def _config(data: bytes, folder: Path) -> None:
    _project(folder)
    project = load_config(_written(folder, "onnxgate.toml", data), rule_ids=rules.by_id)
    project.models()


def _pyproject(data: bytes, folder: Path) -> None:
    _project(folder)
    path = _written(folder, "pyproject.toml", data)
    (folder / "onnxgate.toml").unlink(missing_ok=True)
    (folder / ".git").mkdir(exist_ok=True)
    if find_config(folder):
        load_config(path, rule_ids=rules.by_id)


def _lock(data: bytes, folder: Path) -> None:
    load_lock(_written(folder, "onnxgate.lock", data))


def _edit(data: bytes, folder: Path) -> None:
    """Edit a config: only a valid config may be edited, and all other bytes must stay unchanged."""
    _project(folder)
    project = load_config(_written(folder, "onnxgate.toml", data), rule_ids=rules.by_id)
    ignore = Ignore(rule="load-failed", model="models/*.onnx", reason='a "reason"\n# x')
    listed = {index: () for index in range(len(project.config.ignore)) if index % 2}
    edited = edit_ignores(data, (), IgnoreEdit(listed, [ignore]), "onnxgate.toml")
    again = load_config(_written(folder, "onnxgate.toml", edited), rule_ids=rules.by_id)
    assert ignore in again.config.ignore
    if not listed:
        added = len(edited) - len(data)
        assert any(edited[:at] + edited[at + added :] == data for at in _cuts(data, edited)), "other bytes changed"


def _cuts(data: bytes, edited: bytes) -> range:
    same = next((at for at, (one, other) in enumerate(zip(data, edited, strict=False)) if one != other), len(data))
    return range(max(0, same - 200), same + 1)


def _report(data: bytes, folder: Path) -> None:
    """Merge a report with a valid report of another shard."""
    other, _ = _shards()
    reports = [shard_report.decode_report_file("a.json", data), shard_report.decode_report_file("b.json", other)]
    selected, gaps = shard_report.collect_reports(reports, shard_report.ExpectedCheck())
    merged = merge.merge_reports(selected, gaps, "error")
    text.format(merged)
    is_complete = len(selected) == 2 and not gaps
    assert merged.exit != 0 or is_complete, "a pass without all shards"


@cache
def _shards() -> tuple[bytes, bytes]:
    """Return the sample as two shards of one check, the first without findings."""
    report = msgspec.json.decode((ROOT / "fixtures/reports/sample.json").read_bytes(), type=Report)
    paths = tuple(sorted(model.path for model in report.models))
    division = tuple(1 + index % 2 for index in range(len(paths)))
    shards = []
    for index in (1, 2):
        own = {path for path, shard in zip(paths, division, strict=True) if shard == index}
        part = msgspec.structs.replace(
            report,
            onnxgate=__version__,
            models=tuple(sorted((model for model in report.models if model.path in own), key=lambda each: each.path)),
            cells=tuple(cell for cell in report.cells if cell.model in own),
            findings=(),
            undecided=(),
            skipped=(),
            verdict="pass",
            exit=0,
            shard=Shard(
                index=index, of=2, plan="a" * 64, key="b" * 64, config="c", lock="d", models=paths, division=division,
                scope="", locked=report.runtimes,
            ),
        )  # fmt: skip
        shards.append(json_format.format(json_format.seal_report(part)).encode())
    return shards[1], shards[0]


def _forged(random: Random, seed: bytes) -> bytes:
    """Return a report with modified values and a valid seal."""
    data = mutations.of_json(random, seed)
    try:
        report = msgspec.json.decode(data, type=Report)
        return json_format.format(json_format.seal_report(report)).encode()
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return data


def _job(folder: Path) -> Run:
    output = folder / "out"
    output.mkdir(exist_ok=True)
    fed = folder / "x.npy"
    if not fed.exists():
        np.save(fed, np.ones(3, np.float32))
    case = InputCase(name="a", origin="generated", inputs={"x": str(fed)})
    return Run(model="/m.onnx", cases=(case,), output=str(output))


REPLIES = (
    b'{"id":1,"phase":"load"}',
    b'{"id":1,"reply":{"outcome":"completed","result":{"kind":"load","providers":["CPUExecutionProvider"]}}}',
    b'{"id":1,"reply":{"outcome":"completed","result":{"kind":"run","providers":["a"],"outputs":["y","z"],"cases":'
    b'[{"outputs":["/etc/passwd",null],"failure":null,"unstable":["y"],"aliased":[]}]}}}',
    b'{"id":1,"reply":{"outcome":"refused","failure":{"type":"Fail","text":"no","memory":false,"source":"a.py:3"}}}',
    b'{"id":1,"reply":{"outcome":"unavailable","reason":"x","hint":"y"}}',
    b'{"id":1,"reply":{"outcome":"completed","result":{"kind":"probe","python":"3.11","packages":{"torch":"2"}}}}',
)


def _reply(data: bytes, folder: Path) -> None:
    line = protocol.parse_event(data, 1)
    if line.reply is not None:
        for job in (_job(folder), Load(model="/m.onnx"), Probe()):
            protocol.validate_reply(line.reply, job)
    protocol.clean_log(data.decode("utf-8", "replace"))


def _cached_seed() -> tuple[bytes, ...]:
    result = {"kind": "run", "providers": ["a"], "outputs": ["y"], "cases": [{"outputs": ["0/0.npy"]}]}
    return (json.dumps({"result": result, "files": {"0/0.npy": _sha256(_npy(np.ones(4)))}, "run": "RUN"}).encode(),)


def _read_cached_result(data: bytes, folder: Path) -> None:
    """Read a cached result that was modified: only arrays in the job folder may be used."""
    _accepts_entry(data, _npy(np.ones(4)), folder)


def _cached_array(data: bytes, folder: Path) -> None:
    """Read a modified array with a matching digest."""
    entry = json.loads(_cached_seed()[0])
    entry["files"] = {"0/0.npy": _sha256(data)}
    if _accepts_entry(json.dumps(entry).encode(), data, folder):
        np.load(folder / "out" / "0" / "0.npy", allow_pickle=False)


def _accepts_entry(entry: bytes, array: bytes, folder: Path) -> bool:
    """Return whether the cache accepts an entry that was modified after it was written."""
    from tests.gate.test_result_cache import locked_runtime

    job = _job(folder)
    output = folder / "out" / "0" / "0.npy"
    output.parent.mkdir(exist_ok=True)
    output.write_bytes(_npy(np.ones(4)))
    result = RunResult(providers=("a",), outputs=("y",), cases=(CaseResult(outputs=(str(output),)),))
    ResultCache(folder / "kept", {job.model: "1" * 64}).keep(locked_runtime(), job, Completed(result=result))
    output.unlink()
    file = next((folder / "kept").rglob("entry.json"))
    run = json.loads(verify_checksum(file.parent.name, file.read_bytes()) or b"")["run"]
    (file.parent / "0" / "0.npy").write_bytes(array)
    content = _encode_again(entry.replace(b"RUN", run.encode()), CacheEntry)
    file.write_bytes(add_checksum(file.parent.name, content))
    cached = ResultCache(folder / "kept", {job.model: "1" * 64}).find(locked_runtime(), job)
    shutil.rmtree(folder / "kept", ignore_errors=True)
    if isinstance(cached, Completed):
        protocol.validate_reply(cached, job)
    return cached is not None


def _encode_again(data: bytes, kind: type[msgspec.Struct]) -> bytes:
    """Return JSON as onnxgate writes it, since a cache refuses any other form; unchanged if it is invalid."""
    try:
        return msgspec.json.encode(msgspec.json.decode(data, type=kind))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _npy(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def _npz(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _arrays() -> tuple[bytes, ...]:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    kinds = (numbers, np.asfortranarray(numbers), np.array(["a", "bb"]), np.zeros(3, [("a", "i4"), ("b", "f8")]))
    every = (*kinds, np.array([object()], object), np.float64(1), np.zeros((0, 3)), np.array(["2027"], "M8[D]"))
    return (*map(_npy, every), _npy(np.array([{}], object)))


def _archives() -> tuple[bytes, ...]:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    plain = _npz(x=numbers)
    stored = io.BytesIO()
    np.savez(stored, x=numbers, y=np.array(["a"]))
    tricks = io.BytesIO()
    with zipfile.ZipFile(tricks, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../x.npy", _npy(numbers))
        archive.writestr("x.npy", _npy(numbers))
        archive.writestr("x.npy/", b"")
        archive.writestr("readme", b"no array")
    return (plain, stored.getvalue(), tricks.getvalue(), *_arrays())


FACTS = ModelFacts(
    path="m.onnx",
    sha256="",
    size_bytes=1,
    ir_version=8,
    opsets={},
    producer="",
    inputs=(ValueInfo(name="x", type="tensor(float)", shape=(2, 3)),),
    outputs=(),
    operators={},
    metadata_keys=(),
)


def _archive(data: bytes, folder: Path) -> None:
    _written(folder, "case.npz", data)
    shutil.rmtree(folder / "fed", ignore_errors=True)
    case_files.read_user_cases(FACTS, "case.npz", folder, folder, folder / "fed")


def _tensors() -> tuple[bytes, ...]:
    from onnx import TensorProto, helper, numpy_helper

    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    outside = numpy_helper.from_array(numbers, "x")
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    entry = outside.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"
    tensors = (
        numpy_helper.from_array(numbers, "x"),
        helper.make_tensor("x", TensorProto.STRING, [2], [b"a", b"\xff"]),
        helper.make_tensor("x", TensorProto.BFLOAT16, [2], [1.0, 2.0]),
        TensorProto(name="x", data_type=1, dims=[2**40, 2**40]),
        TensorProto(name="x", data_type=1, dims=[-1], float_data=[1.0]),
        TensorProto(name="x", data_type=99, dims=[1]),
        outside,
    )
    return tuple(tensor.SerializeToString() for tensor in tensors)


def _tensor(data: bytes, folder: Path) -> None:
    (folder / "test_data_set_0").mkdir(exist_ok=True)
    _written(folder / "test_data_set_0", "input_0.pb", data)
    shutil.rmtree(folder / "fed", ignore_errors=True)
    case_files.read_user_cases(FACTS, "test_data_set_0", folder, folder, folder / "fed")


def _costs(data: bytes, folder: Path) -> None:
    _written(folder, "a" * 64, data)
    costs = plan.load_costs(folder, "a" * 64)
    assert all(0 <= cost <= plan.MAX_COST_S for cost in costs.values())


def _shard(data: bytes, folder: Path) -> None:
    plan.parse_shard(data.decode("utf-8", "replace"))


PLANNED = plan.CheckState("0", "c", "l", tuple(f"m{index}" for index in range(5)))


def _plan(data: bytes, folder: Path) -> None:
    file = _written(folder, "plan.json", data)
    division = plan.load_division(file, PLANNED, 2)
    assert sorted(PLANNED.models) == sorted((*division.of_shard(1), *division.of_shard(2)))


def _plan_seeds() -> tuple[bytes, ...]:
    division = plan.divide_models(PLANNED, 2, dict.fromkeys(PLANNED.models, 7))
    entries = plan.ShardPlan(division, {}, 0).entries
    return (msgspec.json.encode(plan.PlanFile(entries)),)


@cache
def _table_seeds() -> tuple[bytes, ...]:
    from onnxgate.support import harvest, limits, operators

    shipped = operators.load_shipped_table()
    release = shipped.sources[-1].release
    small = harvest.select_releases(shipped, [release])
    few = msgspec.structs.replace(
        small, operators={"ai.onnx.ml": dict(list(small.operators["ai.onnx.ml"].items())[:3])}
    )
    record = harvest.HarvestRecord(limits=limits.load_limit_table().releases[release], table=few)
    return (msgspec.json.encode(record),)


def _harvest(data: bytes, folder: Path) -> None:
    from onnxgate.support import operators

    source = operators.load_shipped_table().sources[-1]
    from onnxgate.support.harvest import make_harvest_key

    name = make_harvest_key("onnxruntime", source.release, source.sha256)
    content = zlib.compress(_encode_again(data, HarvestRecord), 1)
    _written(folder, f"{name}.json.z", add_checksum(name, content))
    table = HarvestCache(folder).get(name)
    if table is not None and table.implementation is not None:
        for domain in table.implementation.domains():
            table.implementation.operators(domain)


EVENTS = (
    b'{"pull_request":{"number":1,"head":{"sha":"' + b"a" * 40 + b'","repo":{"full_name":"a/b"}},"base":{"sha":"'
    + b"b" * 40 + b'","ref":"main","repo":{"full_name":"c/d"}}},"before":"' + b"0" * 40 + b'"}',
    b'{"workflow_run":{"event":"pull_request","head_sha":"a","head_branch":null,"head_repository":{"full_name":"a/b"}}}',
)  # fmt: skip


def _event(data: bytes, folder: Path) -> None:
    environment = {"GITHUB_EVENT_PATH": str(_written(folder, "event.json", data))}
    event = baseline.read_event(environment)
    for keys in (("before",), ("pull_request", "base", "sha"), ("pull_request", "base", "ref")):
        field = baseline.read_event_text(event, *keys)
        assert not baseline.parse_branch(field).startswith("-")
        baseline.parse_commit(field)
    api.read_event(environment)


def _pointer(data: bytes, folder: Path) -> None:
    parse_pointer(data[:1023])


def _glob(data: bytes, folder: Path) -> None:
    pattern, _, path = data.decode("utf-8", "surrogateescape").partition("\0")
    matches(pattern, path)
    covers(pattern, path)


GLOBS = (
    b"models/**/*.onnx\0models/a/b/c.onnx", b"**/" * 30 + b"x\0" + b"a/" * 100 + b"y", b"*a" * 20 + b"b\0" + b"a" * 200,
    b"[a-c]?[!x]*.onnx\0abc.onnx", b"a[[]b]\0a[b]", b"**\0a/b", b"a**b**c**d**e**f\0" + b"a/b/c/d/e/" * 30,
)  # fmt: skip


def _seeds(*data: bytes) -> Callable[[], tuple[bytes, ...]]:
    return lambda: data


def _locks() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((ROOT / "fixtures/locks").glob("*.lock")))


def _pyprojects() -> tuple[bytes, ...]:
    table = (
        CONFIG.replace(b"[[", b"[[tool.onnxgate.")
        .replace(b"\n[t", b"\n[tool.onnxgate.t")
        .replace(b"\n[r", b"\n[tool.onnxgate.r")
    )
    return (b'[project]\nname = "x"\n[tool.onnxgate]\n' + table,)


READERS = (
    Reader("config", _seeds(CONFIG), _config, (ConfigError,)),
    Reader("pyproject", _pyprojects, _pyproject, (ConfigError,)),
    Reader("editing", _seeds(CONFIG), _edit, (ConfigError, UsageError)),
    Reader("lock", _locks, _lock, (LockError,)),
    Reader("reports", lambda: _shards()[1:], _report, (), _forged),
    Reader("replies", _seeds(*REPLIES), _reply, (protocol.ProtocolError,), mutations.of_json),
    Reader("kept results", _cached_seed, _read_cached_result, (), mutations.of_json),
    Reader("kept arrays", _arrays, _cached_array),
    Reader("npz", _archives, _archive, (ConfigError,)),
    Reader("test data", _tensors, _tensor, (ConfigError,)),
    Reader("costs", _seeds(b'{"onnxruntime 1.18.1":1.5,"toolchain":0.1}'), _costs, (), mutations.of_json),
    Reader("shards", lambda: (b"1/2", b"256/256"), _shard, (UsageError,)),
    Reader("plans", _plan_seeds, _plan, (UsageError,)),
    Reader("harvests", _table_seeds, _harvest, (), mutations.of_json),
    Reader("events", _seeds(*EVENTS), _event, (), mutations.of_json),
    Reader(
        "pointers",
        _seeds(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12\n"),
        _pointer,
    ),
    Reader("globs", _seeds(*GLOBS), _glob),
)
