"""The commands leave the C++ code of onnx to child processes, whose crashes and huge allocations cost one model."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from pathlib import Path

import onnx
import onnx.parser
import pytest

from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository
from tests.model.test_onnx_functions import CONVERTED, WATCHED

pytestmark = pytest.mark.index

RANKED = "g (float[N, 9] x) => (float[N, 3] y, int64[N, 3] i) <int64[1] k = {3}> { y, i = TopK (x, k) }"
HALF = "g (float16[N, 4] x) => (float16[N, 4] y) <float16[4] w = {11878, 11878, 11878, 11878}> { y = Mul (x, w) }"
QUANTIZED = """g (float[N, 4] x) => (float[N, 4] y) <float s = {0.5}, uint8 z = {128}> {
    q = QuantizeLinear (x, s, z)
    y = DequantizeLinear (q, s, z)
}"""
MAIN = """
    from onnxgate.__main__ import main
    from onnxgate.model import onnx_functions

    real = onnx_functions._OnnxProcess.run
    def run(process, request):
        with log.with_suffix(".requests").open("a") as file:
            print(request[0], file=file)
        return real(process, request)
    onnx_functions._OnnxProcess.run = run
    sys.argv[1:] = sys.argv[2:]
    main()
"""


CRASHING = {
    "eye": '<ir_version: 8, opset_import: ["" : 22]> g (i) => (o) { o = EyeLike <dtype = 3> (i) }',
    "regex": '<ir_version: 8, opset_import: ["" : 20]> g () => () { o = RegexFullMatch ("") }',
    "gather": """<ir_version: 8, opset_import: ["" : 12]>
        g (float[1, 3, 4, 4] x, int64[-1] i) => (float y) { y = GatherND (x, i) }""",
    "split": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[4] x) => (float y) { y = Split <num_outputs = 1000000000> (x) }""",
}
"""Models of at most 104 bytes on which inference crashes or, for the last one, allocates without end.

Source: onnx 1.23.2. When the gate itself ran inference, the first two ended `check --against HEAD` with SIGSEGV and an
empty report, the first three ended `fix` with SIGSEGV, and the last one made it allocate 10 GB in 11 s.
"""

OPAQUE = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[N, 4] x) => (float[N, 4] y) { h = com.microsoft.Gelu (x) y = EyeLike <dtype = 1> (h) }"""
"""A valid model on which strict inference crashes, because it knows no type of `h`. Source: onnx 1.23.2."""


@pytest.fixture
def changed(small: Repository) -> Repository:
    """Return the small repository with more models, which crash onnx since the last commit."""
    for name in CRASHING:
        write(small.folder / "models" / f"{name}.onnx")
    small.run("lock", "--offline")
    commit(small.folder)
    for name, text in CRASHING.items():
        onnx.save(onnx.parser.parse_model(text), small.folder / "models" / f"{name}.onnx")
    return small


def test_crashes_during_a_comparison(changed: Repository) -> None:
    """Each model on which onnx crashes is named as undecided; the other one passes, and the report is complete."""
    report = changed.report("--static", "--against", "HEAD", "--no-cache", status=1)

    assert {f"models/{name}.onnx" for name in (*CRASHING, "small")} == {it["path"] for it in report["models"]}
    assert {
        ("eye", "support", "the support prediction crashed (SIGSEGV)"),
        ("regex", "support", "the support prediction crashed (SIGSEGV)"),
        ("gather", "support", "onnx's shape inference crashed (SIGSEGV)"),
        ("split", "support", "onnx's shape inference needed more than 4096 MiB of memory"),
    } == {(Path(it["model"]).stem, it["stage"], it["reason"]) for it in report["undecided"] if it["stage"] == "support"}
    assert not [it for it in (*report["findings"], *report["undecided"]) if "small" in json.dumps(it)]


def test_crashes_during_a_fix(changed: Repository) -> None:
    """Each model on which onnx crashes is named with what happened; the other one is still judged."""
    result = changed.run("fix", status=1)

    assert 2 == result.out.count("undecided: the support prediction crashed (SIGSEGV)")
    assert 1 == result.out.count("undecided: onnx's shape inference crashed (SIGSEGV)")
    assert 1 == result.out.count("undecided: onnx's shape inference needed more than 4096 MiB of memory")
    assert "1 model with nothing to fix, 2 models not repaired, 2 models that could not be checked" in result.out


def test_runs_decide_what_inference_could_not(small: Repository) -> None:
    """A valid model on which inference crashes is undecided without runs, and passes if all runtimes run it."""
    onnx.save(onnx.parser.parse_model(OPAQUE), small.folder / "models" / "opaque.onnx")
    small.run("lock", "--offline")
    crash = [("models/opaque.onnx", stage, "onnx's shape inference crashed (SIGSEGV)") for stage in ("file", "support")]

    predicted = small.report("--static", status=3)
    decided = small.report()

    assert crash == [(it["model"], it["stage"], it["reason"]) for it in predicted["undecided"]]
    assert [] == decided["undecided"] == decided["findings"]
    assert crash == [(it["model"], it["stage"], it["reason"]) for it in decided["skipped"]]
    assert {"pass"} == {cell["state"] for cell in decided["cells"]}


def test_full_check(small: Repository, tmp_path: Path) -> None:
    """Inputs, runs, comparisons and the comparison with a revision call it only in a child process."""
    for name, graph in {"ranked": RANKED, "half": HALF, "quantized": QUANTIZED}.items():
        write(small.folder / "models" / f"{name}.onnx", parse(graph))
    onnx.save(onnx.parser.parse_model(CONVERTED), small.folder / "models" / "branches.onnx")
    small.run("lock", "--offline")
    commit(small.folder)
    write(small.folder / "models" / "half.onnx", parse(HALF.replace("Mul", "Add")))
    onnx.save(onnx.parser.parse_model(CONVERTED.replace("Abs", "Neg")), small.folder / "models" / "branches.onnx")
    small.run("lock", "--offline")
    python = replace(small, program=small.program.with_name("python"))
    log = tmp_path / "called"
    script = textwrap.dedent(WATCHED) + textwrap.dedent(MAIN)
    arguments = ("check", "--against", "HEAD", "--no-cache", "--output", "json")
    with python.start("-c", script, str(log), *arguments) as process:
        out, err = process.communicate(timeout=300)

    assert process.returncode in (0, 1), err
    assert '"undecided":[]' in out.replace(" ", "").replace("\n", "")
    assert not log.exists(), log.read_text()
    assert {"infer", "inline"} <= set(log.with_suffix(".requests").read_text().split())
