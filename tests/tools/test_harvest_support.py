"""The script `tools/harvest_support.py`, which generates the shipped data."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import msgspec
import onnx
import pytest
from packaging.version import Version

from onnxgate.project.lock.npm import NpmClient
from onnxgate.project.lock.types import NpmPackage
from onnxgate.support import harvest as joining
from onnxgate.support import operators
from onnxgate.support.harvest import BuildDump
from onnxgate.support.limits import get_limits
from onnxgate.support.operators import (
    SINGLE,
    FormalParameter,
    Implementation,
    Kernel,
    Operator,
    Schema,
    TableSource,
    decode_table,
    encode_table,
)
from tests.conftest import need

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from harvest import data, measuring, probed, web
from harvest.measuring import DESCRIPTION

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "harvest_support.py"
DATA = ROOT / "onnxgate" / "support" / "data"


ENGINES = [measuring.DESCRIPTION, web.DESCRIPTION, probed.OPENVINO.DESCRIPTION, probed.TRACT.DESCRIPTION]


@pytest.mark.parametrize("description", ENGINES, ids=lambda it: it.engine)
def test_every_shipped_file_follows_from_the_data(description: data.Description) -> None:
    """The page for reviewers is generated from the shipped data."""
    made = data.files(data.read(DATA, description))

    assert dict.fromkeys(made, True) == {name: data.is_same(DATA / name, content) for name, content in made.items()}
    assert {description.kernels, description.limits, description.summary} == made.keys()


FLOAT, DOUBLE, HALF = "tensor(float)", "tensor(double)", "tensor(float16)"
VALUE = FormalParameter("x", "T", SINGLE)
KERNEL = Kernel(7, 0, "CPUExecutionProvider", {"T": frozenset({FLOAT, DOUBLE})})
ADD = Operator(
    "ai.onnx",
    "Add",
    tuple(
        Schema(since, False, (VALUE, VALUE), (VALUE,), {"T": frozenset({FLOAT, DOUBLE})}, {}, 2, 2, 1, 1, False)
        for since in (6, 7)
    ),
    (KERNEL,),
)


def test_only_web_releases_with_a_known_counterpart_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data of ONNX Runtime Web follows from that of ONNX Runtime, which may be harvested later."""
    published = ["1.31.0", "1.32.0", "1.99.0"]
    pool = {
        f"{name}=={release}": NpmPackage(name=name, version=release, integrity=f"sha512-{'A' * 86}==")
        for name in ("onnxruntime-web", "onnxruntime-common")
        for release in published
    }
    monkeypatch.setattr(NpmClient, "releases", lambda *_: [Version(release) for release in published])
    monkeypatch.setattr(
        NpmClient,
        "needed",
        lambda _, engine, release: {name: pool[f"{name}=={release}"] for name in (engine, "onnxruntime-common")},
    )

    assert ["1.31.0", "1.32.0"] == [it.release for it in web.find(())]
    assert ["1.99.0"] == [it.release for it in web.find(["1.99.0"])]


def probe(version: int, value_type: str, *, loads: bool) -> web.ProbeResult:
    """Return the result of a model with one node of `Add`."""
    return web.ProbeResult("ai.onnx", "Add", version, (value_type, value_type), (value_type,), loads)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], {"T": []}),
        ([probe(7, FLOAT, loads=True), probe(7, DOUBLE, loads=True)], {"T": []}),
        ([probe(7, FLOAT, loads=True), probe(7, DOUBLE, loads=False)], {"T": [DOUBLE]}),
        ([probe(7, FLOAT, loads=False), probe(7, DOUBLE, loads=False)], None),
        ([probe(6, FLOAT, loads=False), probe(7, HALF, loads=False)], {"T": []}),
    ],
    ids=["not probed", "all", "a type", "none", "of other kernels"],
)
def test_kernels_that_load_no_model_are_left_out(
    results: list[web.ProbeResult], expected: dict[str, list[str]] | None
) -> None:
    """A kernel without a model that loads is missing; otherwise, the types that no model loads with are."""
    missing = web._reduce_kernel(ADD, KERNEL, results)

    assert expected == (missing and {key: sorted(types) for key, types in missing.items()})


def test_a_refusal_that_types_do_not_explain_ends_the_harvest() -> None:
    """A wrong table would be worse than none."""
    with pytest.raises(SystemExit, match="for another reason"):
        web._reduce_kernel(ADD, KERNEL, [probe(7, FLOAT, loads=True), probe(7, FLOAT, loads=False)])


def test_types_that_inputs_cannot_have_are_cast() -> None:
    """The kernel still gets its type, but the model has inputs and outputs of float."""
    text = '<ir_version: 8, opset_import: ["" : 18]> g (bfloat16[1] x, float[1] z) => (bfloat16[1] y) { y = Neg (x) }'
    wrapped = web._wrap(onnx.parser.parse_model(text), ["tensor(bfloat16)"])
    onnx.checker.check_model(wrapped, full_check=True)

    assert ["Cast", "Neg", "Cast"] == [node.op_type for node in wrapped.graph.node]
    assert {onnx.TensorProto.FLOAT} == {
        value.type.tensor_type.elem_type for value in (*wrapped.graph.input, *wrapped.graph.output)
    }


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_file_is_the_same_whatever_the_order_of_sets(seed: str) -> None:
    """The output does not depend on the order of sets, which differs between Python processes."""
    code = (
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r})\n"
        "import hashlib; from pathlib import Path; from harvest import data\n"
        "from harvest.measuring import DESCRIPTION\n"
        f"made = data.files(data.read(Path({str(DATA)!r}), DESCRIPTION))\n"
        "print(hashlib.sha256(made[DESCRIPTION.summary]).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert hashlib.sha256((DATA / DESCRIPTION.summary).read_bytes()).hexdigest() == done.stdout.strip()


def test_every_release_and_change_is_on_the_page() -> None:
    """The page has the wheel of each release, and the changes from one to the next."""
    page = (DATA / DESCRIPTION.summary).read_text(encoding="utf-8")
    known = data.read(DATA, DESCRIPTION)

    assert known.table is not None
    releases = [source.release for source in known.table.sources]
    steps = [f"## {newer} after {older}\n" for older, newer in pairwise(releases)]
    assert [step for step in steps if step not in page] == []
    assert [each.release for each in known.sources.values() if each.sha256 not in page] == []
    assert known.limits.keys() == known.sources.keys()


def test_releases_with_equal_limits_share_a_row() -> None:
    """Equal rows in a row, some of them with a hundred types, would hide what changed."""
    page = (DATA / probed.TRACT.DESCRIPTION.summary).read_text(encoding="utf-8")
    rows = page.partition("## Limits\n")[2].partition("##")[0].strip().splitlines()[2:]

    assert len({row.split("|", 2)[2] for row in rows}) == len(rows)
    assert rows[0].startswith("| 0.21.8–0.23.9 | any | any | ")
    assert "tensor(" not in rows[0].replace("sparse_tensor(", "")


def test_record_is_reused_only_for_its_wheel_and_recipe(tmp_path: Path) -> None:
    """Records of other code, another wheel or an interrupted run are not reused."""
    from harvest import measuring
    from harvest.releases import Installable

    from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel

    runtime = LockedRuntime(engine="onnxruntime", release="1.0.0", python="3.11", packages=("onnxruntime==1.0.0",))
    wheel = Wheel(file="onnxruntime-1.0.0-py3-none-any.whl", sha256="0" * 64)
    package = LockedPackage(name="onnxruntime", version="1.0.0", python="3.11", wheels=(wheel,))
    installable = Installable(runtime, (package, package))
    dump = BuildDump(registry=False, release="1.0.0", commit="", platform="", schemas=(), kernels=())
    source = TableSource(release="1.0.0", wheel=wheel.file, sha256=wheel.sha256)
    record = measuring.Record(recipe=measuring.recipe(), source=source, loads={}, dump=dump)
    others = {
        "another tool": msgspec.structs.replace(record, recipe=""),
        "another wheel": msgspec.structs.replace(record, source=msgspec.structs.replace(source, sha256="1" * 64)),
    }
    actual = {}
    for name, each in {**others, "the same": record}.items():
        (tmp_path / "1.0.0.json").write_bytes(msgspec.json.encode(each))
        actual[name] = measuring.recorded(tmp_path, installable) is not None
    (tmp_path / "1.0.0.json").write_bytes(msgspec.json.encode(record)[:-1])
    actual["killed"] = measuring.recorded(tmp_path, installable) is not None

    assert {"another tool": False, "another wheel": False, "the same": True, "killed": False} == actual


def run_tool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the tool."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-B", str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.index
@pytest.mark.skipif(sys.platform != "linux", reason="the shipped data are of Linux")
def test_a_release_that_is_taken_out_is_harvested_as_it_was(tmp_path: Path) -> None:
    """The first run measures the real package; the second one reuses its record."""
    copy, work, release = tmp_path / "data", tmp_path / "work", "1.25.1"
    shutil.copytree(DATA, copy)
    _forget(copy, DESCRIPTION, release)
    arguments = ("--engine", DESCRIPTION.engine, "--data", copy, "--work", work, release)
    missed = run_tool("--check", *arguments)
    written = run_tool(*arguments)

    assert (1, f"{release} is being measured") == (missed.returncode, missed.stdout.splitlines()[0]), missed.stderr
    assert (0, f"{release} is already measured") == (written.returncode, written.stdout.splitlines()[0]), written.stderr
    assert [] == [path.name for path in sorted(DATA.iterdir()) if not data.is_same(copy / path.name, path.read_bytes())]


@pytest.mark.index
@pytest.mark.skipif(sys.platform != "linux", reason="the shipped data are of Linux")
def test_a_web_release_is_measured_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the real package, and the kernels of every fifth operator, are those of the shipped data."""
    need("node")
    in_force = web.in_force
    monkeypatch.setattr(
        web,
        "in_force",
        lambda *given: [it for it in in_force(*given) if zlib.crc32(it[0].name.encode()) % 5 == 0],
    )
    (release,) = web.find(["1.30.0"])
    record = web.measure(tmp_path, release)
    shipped = operators.get_implementation(release.release, web.ENGINE)
    assert shipped is not None
    opsets = {release.release: dict(record.harvest.limits.opsets)}
    measured = operators.build_implementations(record.harvest.table, opsets)[release.release]
    probed = {(it.domain, it.operator) for it in record.results}

    assert record == web.recorded(tmp_path, release)
    assert record.harvest.limits == get_limits(release.release, web.ENGINE)
    assert len(probed) > 50
    assert [] == [name for name in sorted(probed) if list_kernels(measured, name) != list_kernels(shipped, name)]


def list_kernels(known: Implementation, name: tuple[str, str]) -> list[tuple[object, ...]]:
    """Return the versions and types of an operator's kernels."""
    operator = known.operator(*name)
    assert operator is not None
    return [(kernel.start, kernel.end, kernel.provider, kernel.constraints) for kernel in operator.kernels]


def _forget(folder: Path, description: data.Description, release: str) -> None:
    """Return a copy of the data without the release."""
    table = decode_table((folder / description.kernels).read_bytes())
    others = [source.release for source in table.sources if source.release != release]
    (folder / description.kernels).write_bytes(encode_table(joining.select_releases(table, others)))
    limits = json.loads((folder / description.limits).read_text(encoding="utf-8"))
    del limits["releases"][release]
    limits["sources"] = [source for source in limits["sources"] if source["release"] != release]
    (folder / description.limits).write_text(json.dumps(limits), encoding="utf-8")
