"""A full check leaves the C++ code of onnx to child processes."""

from __future__ import annotations

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
