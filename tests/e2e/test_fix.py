"""`onnxgate fix` on real runtimes: what is broken is repaired and proven, and what is not proven is not written."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository

PROVEN = """\
  verified: 2 input cases on 4 runtimes
    onnxruntime 1.18.1: now runs; compared with the original on onnxruntime 1.31.1: bit-identical
    onnxruntime 1.19.2: now runs; compared with the original on onnxruntime 1.31.1: bit-identical
    onnxruntime 1.24.4: bit-identical
    onnxruntime 1.31.1: bit-identical
"""


@pytest.mark.index
def test_broken(project: Callable[[str], Repository]) -> None:
    """What no runtime of two could load, loads on all four; a second run changes nothing, and the gate is content."""
    broken = project("broken")
    model = broken.folder / "models" / "ir-13.onnx"
    before = model.read_bytes()
    said = broken.run("fix", "models/ir-13.onnx", "models/ceil-pool.onnx").out

    assert PROVEN in said
    assert said.endswith("1 model with nothing to fix, 1 model repaired; run `onnxgate lock` next\n")
    kept = next(line for line in said.splitlines() if "backup of the old file" in line).rpartition(": ")[2]
    assert (Path(kept).read_bytes(), onnx.load(model).ir_version) == (before, 10)
    assert broken.run("fix", "models/ir-13.onnx").out == "nothing to fix in 1 model\n"
    broken.run("check", "models/ir-13.onnx", "--stage", "file,support,runtime,parity")


def test_unavailable(small: Repository, cold: dict[str, str | Path | None]) -> None:
    """Where no runtime can be made, nothing is proven and nothing is written."""
    model = parse()
    model.ir_version = 13
    path = write(small.folder / "models" / "small.onnx", model)
    before = path.read_bytes()
    said = small.given(**cold).run("fix", "--offline", status=3).out

    assert "not written: the repair could not be verified on every locked runtime" in said
    assert path.read_bytes() == before


def test_files(files: Repository) -> None:
    """Without a config: what depends on no target is repaired, proven by the reference evaluator."""
    model = parse()
    model.doc_string = "/home/ada/net.py"
    path = write(files.folder / "m.onnx", model)

    assert "not written (dry run)" in files.run("fix", "m.onnx", "--dry-run", status=1).out
    assert onnx.load(path).doc_string == "/home/ada/net.py"
    assert files.run("fix", "m.onnx").out.endswith("\n1 model repaired\n")
    assert onnx.load(path).doc_string == "net.py"
    assert files.run("fix", "m.onnx").out == "nothing to fix in 1 model\n"


def test_nothing_asked(small: Repository) -> None:
    """What is no model of the project is said to be none, and what somebody accepted is said to be left."""
    (small.folder / "notes.md").write_text("#\n", encoding="utf-8")
    asked = small.run("fix", "notes.md").out
    assert asked == "nothing to fix: the paths match no model in this project\n"

    model = parse()
    model.ir_version = 13
    write(small.folder / "models" / "small.onnx", model)
    with (small.folder / "onnxgate.toml").open("a", encoding="utf-8") as config:
        config.write('\n[[ignore]]\nmodel = "models/small.onnx"\nrule = "ir-version-too-new"\nreason = "known"\n')
    assert (
        "ignored by `[[ignore]]`; use `--no-ignores`"
        in small.run("fix", "--rule", "ir-version-too-new", "--dry-run").out
    )


def test_target(files: Repository) -> None:
    """Without a config, a target says what the stamp must be for."""
    model = parse()
    model.ir_version = 13
    path = write(files.folder / "m.onnx", model)
    assert files.run("fix", "m.onnx").out == "nothing to fix in 1 model\n"

    files.run("fix", "m.onnx", "--target", "onnxruntime>=1.18")
    assert onnx.load(path).ir_version == 10


def test_misused(files: Repository) -> None:
    """A rule that no fix answers is a mistake of whoever asks."""
    assert "`run-failed` has no automatic fix" in files.run("fix", "m.onnx", "--rule", "run-failed", status=2).err


def test_without_a_lock(files: Repository) -> None:
    """A model that cannot be locked can be repaired without a lock, by the command in the hint."""
    (files.folder / "onnxgate.toml").write_text('[targets.a]\nruntime = "onnxruntime>=1.18,<1.20"\n')
    model = parse()
    model.ir_version = 13
    path = write(files.folder / "m.onnx", model)
    said = files.run("fix", "m.onnx", status=2).err
    unnamed = files.run("fix", "--target", "onnxruntime", status=2).err
    assert unnamed.startswith("error: `--target` is for models that are named\n")
    command = shlex.split(said.partition("cannot be locked, run `")[2].partition("`")[0])

    assert command == ["onnxgate", "fix", "--target", "onnxruntime>=1.18,<1.20", "m.onnx"]
    files.run(*command[1:])
    assert onnx.load(path).ir_version == 10
