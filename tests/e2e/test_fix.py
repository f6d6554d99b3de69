"""`onnxgate fix` on real runtimes: it writes only verified repairs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.conftest import ROOT
from tests.harness.models import make_external, parse, write
from tests.harness.repositories.user_repository import Repository
from tests.model.reading.test_file_format import POINTER

PROVEN = """\
  verified: 2 input cases on 4 runtimes
    onnxruntime 1.18.1: now runs; result of comparison with the original on onnxruntime 1.31.1: bit-identical
    onnxruntime 1.19.2: now runs; result of comparison with the original on onnxruntime 1.31.1: bit-identical
    onnxruntime 1.24.4: bit-identical
    onnxruntime 1.31.1: bit-identical
"""
NOT_CHECKED = "note: problems that occur only on some releases were not checked; use `--target` to fix these as well\n"
BROKEN = ROOT / "fixtures" / "projects" / "broken" / "models"


@pytest.mark.parametrize(
    ("name", "target", "summary"),
    [
        (
            "frames",
            "onnxruntime>=1.16",
            "1 model repaired; 1 finding remains: `missing-kernel` (no automatic fix)",
        ),
        (
            "mixed-precision",
            "onnxruntime>=1.16",
            "1 model not repaired; 1 finding remains: `type-mismatch` (no automatic fix)",
        ),
        (
            "trees",
            "onnxruntime",
            "1 model not repaired; 3 findings remain: `ir-version-too-new` (not fixed), `opset-too-new` (not fixed)",
        ),
    ],
)
def test_remaining(name: str, target: str, summary: str, files: Repository) -> None:
    """Findings that remain are named, and the command fails; a model that would not load anyway is unchanged."""
    before = (BROKEN / f"{name}.onnx").read_bytes()
    path = files.folder / f"{name}.onnx"
    path.write_bytes(before)
    result = files.run("fix", path.name, "--target", target, status=1)

    assert result.out.endswith(f"\n{summary}\n")
    assert (path.read_bytes() == before) == summary.startswith("1 model not repaired")


@pytest.mark.parametrize("name", ["model.onnx", "w.bin"])
def test_a_pointer(name: str, files: Repository) -> None:
    """A model that is a Git LFS pointer, or whose data is one, is undecided, with the words and the hint of `check`."""
    model = parse("g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Mul(x, w) }")
    make_external(model, "w.bin")
    write(files.folder / "model.onnx", model)
    files.write(name, POINTER)
    undecided, *others = files.report("model.onnx", status=3)["undecided"]
    out = files.run("fix", "model.onnx", "--target", "onnxruntime>=1.18", status=3).out

    assert {(it["reason"], it["hint"]) for it in others} <= {(undecided["reason"], undecided["hint"])}
    assert out.startswith(f"model.onnx\n  not written: {undecided['reason']}\n    hint: {undecided['hint']}\n\n")
    assert out.endswith("\n1 model could not be read\n")


@pytest.mark.index
def test_broken(project: Callable[[str], Repository]) -> None:
    """A model that loads on two of four runtimes is repaired for all; a second run changes nothing."""
    broken = project("broken")
    model = broken.folder / "models" / "ir-13.onnx"
    before = model.read_bytes()
    output = broken.run("fix", "models/ir-13.onnx", "models/ceil-pool.onnx").out

    assert PROVEN in output
    assert output.endswith("1 model with nothing to fix, 1 model repaired; run `onnxgate lock` next\n")
    kept = next(line for line in output.splitlines() if "backup of the old file" in line).rpartition(": ")[2]
    assert (Path(kept).read_bytes(), onnx.load(model).ir_version) == (before, 10)
    assert broken.run("fix", "models/ir-13.onnx").out == "nothing to fix in 1 model; run `onnxgate lock` next\n"
    broken.run("check", "models/ir-13.onnx", "--stage", "file,support,runtime,parity")


def test_unavailable(small: Repository, cold: dict[str, str | Path | None]) -> None:
    """If no runtime can be installed, the repair is not verified and not written."""
    model = parse()
    model.ir_version = 13
    path = write(small.folder / "models" / "small.onnx", model)
    before = path.read_bytes()
    output = small.with_environment(**cold).run("fix", "--offline", status=3).out

    assert "not written: the repair could not be verified on every locked runtime" in output
    assert path.read_bytes() == before


def test_files(files: Repository) -> None:
    """Without a config, only fixes that do not depend on a target are applied, verified by the reference evaluator."""
    model = parse()
    model.doc_string = "/home/ada/net.py"
    path = write(files.folder / "m.onnx", model)

    assert "not written (dry run)" in files.run("fix", "m.onnx", "--dry-run", status=1).out
    assert onnx.load(path).doc_string == "/home/ada/net.py"
    assert files.run("fix", "m.onnx").out.endswith(f"\n1 model repaired\n{NOT_CHECKED}")
    assert onnx.load(path).doc_string == "net.py"
    assert files.run("fix", "m.onnx").out == f"nothing to fix in 1 model\n{NOT_CHECKED}"


def test_nothing_to_fix(small: Repository) -> None:
    """A path that is not a model and an ignored finding have nothing to fix, and the output gives the reason."""
    (small.folder / "notes.md").write_text("#\n", encoding="utf-8")
    result = small.run("fix", "notes.md").out
    assert result == "nothing to fix: the paths match no model in this project\n"

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
    """Without a config, `--target` determines the IR version."""
    model = parse()
    model.ir_version = 13
    path = write(files.folder / "m.onnx", model)
    assert files.run("fix", "m.onnx").out == f"nothing to fix in 1 model\n{NOT_CHECKED}"

    files.run("fix", "m.onnx", "--target", "onnxruntime>=1.18")
    assert onnx.load(path).ir_version == 10


def test_misused(files: Repository) -> None:
    """`--rule` with a rule that has no automatic fix, or does not exist, is a usage error."""
    assert "`run-failed` has no automatic fix" in files.run("fix", "m.onnx", "--rule", "run-failed", status=2).err
    unknown = files.run("fix", "m.onnx", "--rule", "ir-version-to-new", status=2).err
    assert unknown.startswith("error: unknown rule `ir-version-to-new`; did you mean `ir-version-too-new`?\n")


def test_without_a_lock(files: Repository) -> None:
    """A model that cannot be locked is repaired by the command in the hint, which needs no lock."""
    (files.folder / "onnxgate.toml").write_text('[targets.a]\nruntime = "onnxruntime>=1.18,<1.20"\n')
    model = parse()
    model.ir_version = 13
    path = write(files.folder / "m.onnx", model)
    output = files.run("fix", "m.onnx", status=2).err
    unnamed = files.run("fix", "--target", "onnxruntime", status=2).err
    assert unnamed.startswith("error: `--target` requires paths to models\n")
    command = shlex.split(output.partition("cannot be locked, run `")[2].partition("`")[0])

    assert command == ["onnxgate", "fix", "--target", "onnxruntime>=1.18,<1.20", "m.onnx"]
    files.run(*command[1:])
    assert onnx.load(path).ir_version == 10
