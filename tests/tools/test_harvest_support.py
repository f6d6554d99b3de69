"""The script `tools/harvest_support.py`, which generates the shipped data."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from onnxgate.support import harvest as joining
from onnxgate.support.harvest import BuildDump
from onnxgate.support.operators import TableSource, decode_table, encode_table

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from harvest import data
from harvest.measuring import DESCRIPTION

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "harvest_support.py"
DATA = ROOT / "onnxgate" / "support" / "data"


def test_every_shipped_file_follows_from_the_data() -> None:
    """The page for reviewers is generated from the shipped data."""
    made = data.files(data.read(DATA, DESCRIPTION))

    assert dict.fromkeys(made, True) == {name: data.is_same(DATA / name, content) for name, content in made.items()}
    assert {DESCRIPTION.kernels, DESCRIPTION.limits, DESCRIPTION.summary} == made.keys()


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
    """The first run measures the real wheel; the second one reuses its record."""
    copy, work = tmp_path / "data", tmp_path / "work"
    shutil.copytree(DATA, copy)
    _forget(copy, "1.25.1")
    missed = run_tool("--check", "--data", copy, "--work", work, "1.25.1")
    written = run_tool("--data", copy, "--work", work, "1.25.1")

    assert (1, "1.25.1 is being measured") == (missed.returncode, missed.stdout.splitlines()[0]), missed.stderr
    assert (0, "1.25.1 is already measured") == (written.returncode, written.stdout.splitlines()[0]), written.stderr
    assert [] == [path.name for path in sorted(DATA.iterdir()) if not data.is_same(copy / path.name, path.read_bytes())]


def _forget(folder: Path, release: str) -> None:
    """Return a copy of the data without the release."""
    table = decode_table((folder / DESCRIPTION.kernels).read_bytes())
    others = [source.release for source in table.sources if source.release != release]
    (folder / DESCRIPTION.kernels).write_bytes(encode_table(joining.select_releases(table, others)))
    limits = json.loads((folder / DESCRIPTION.limits).read_text(encoding="utf-8"))
    del limits["releases"][release]
    limits["sources"] = [source for source in limits["sources"] if source["release"] != release]
    (folder / DESCRIPTION.limits).write_text(json.dumps(limits), encoding="utf-8")
