"""Models are repaired and verified with the ONNX reference evaluator; wrong repairs are rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import onnx
import pytest
from msgspec.structs import replace

from onnxgate.commands.fix.definition import Change, Fix, FixRequest
from onnxgate.commands.fix.fixes import FIXES
from onnxgate.commands.fix.pipeline import FixOptions, FixResult, fix_models
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.gate import pipeline
from onnxgate.gate.request import GateOutcome, GateRequest, StageResult
from tests.harness import fix_cases
from tests.harness.models import parse, write

ALL = FixOptions(unsafe=True)
TOO_NEW = "ir-version-too-new/stamped-by-newest-onnx"


class Repairs(Protocol):
    """Repair the single model of a project without starting runtimes."""

    def __call__(
        self, request: GateRequest, scratch: Path, wish: FixOptions = ALL, fixes: tuple[Fix, ...] = FIXES
    ) -> FixResult:
        """Return the result for the model."""
        ...


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repairs]:
    """Yield a function that repairs models; all share a host, which starts the evaluator once."""
    folder = tmp_path_factory.mktemp("host")
    with fix_cases.make(TOO_NEW, folder).open_host() as host:

        def only(
            request: GateRequest, scratch: Path, wish: FixOptions = ALL, fixes: tuple[Fix, ...] = FIXES
        ) -> FixResult:
            scratch.mkdir()
            (one,) = fix_models(request, wish, host, scratch, fixes, runs=False)
            return one

        yield only


def edit_fix(edit: Callable[[onnx.ModelProto], object]) -> Fix:
    """Return a fix for IR versions that also applies `edit`."""

    def propose(request: FixRequest) -> Change:
        """Lower the IR version and apply the edit."""
        proto = onnx.ModelProto()
        proto.CopyFrom(request.proto)
        proto.ir_version = 10
        edit(proto)
        return Change((proto.SerializeToString(),), ("all is well",))

    return Fix("wrong", frozenset({"ir-version-too-new"}), propose)


def negate(proto: onnx.ModelProto) -> None:
    """Change the result of the model."""
    proto.graph.node[0].op_type = "Neg"


def keep(proto: onnx.ModelProto) -> None:
    """Restore the IR version, so that nothing is repaired."""
    proto.ir_version = 13


def break_it(proto: onnx.ModelProto) -> None:
    """Make the repaired model invalid."""
    proto.graph.node[0].op_type = "NoSuchOperator"


def rename(proto: onnx.ModelProto) -> None:
    """Rename the output of the repaired model."""
    proto.graph.output[0].name = proto.graph.node[0].output[0] = "other"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (negate, "the outputs of the repaired model differ from the original"),
        (keep, "`wrong` does not resolve the finding"),
        (break_it, "the repaired model has a new finding: `"),
        (rename, "the outputs of the repaired model differ from the original"),
    ],
)
def test_wrong_repairs(
    edit: Callable[[onnx.ModelProto], object], reason: str, repaired: Repairs, tmp_path: Path
) -> None:
    """A wrong fix is detected by comparing outputs and by checking the rules again."""
    (tmp_path / "r").mkdir()
    request = fix_cases.make(TOO_NEW, tmp_path / "r")
    before = dict(fix_cases.files(tmp_path / "r"))
    repairs = repaired(request, tmp_path / "s", fixes=(edit_fix(edit),))

    assert (repairs.state, repairs.reason[: len(reason)]) == ("failed", reason)
    assert dict(fix_cases.files(tmp_path / "r")) == before


@pytest.mark.parametrize(("name", "state"), [("opset-too-new/one-too-new", "unchecked"), (TOO_NEW, "repaired")])
@pytest.mark.parametrize("runs", ["first", "later", "all"])
def test_undecided_checks(
    name: str, state: str, runs: str, repaired: Repairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that could not be checked is not said to be in order, nor is such a repair accepted."""
    (tmp_path / "r").mkdir()
    request = fix_cases.make(name, tmp_path / "r")
    run = pipeline.run
    outcomes: list[GateOutcome] = []

    def run_in_part(request: GateRequest) -> GateOutcome:
        outcome = run(request)
        if runs == "all" or (runs == "first") == (not outcomes):
            undone = IncompleteCheck(Stage.SUPPORT, outcome.planned[0].path, "", "the support prediction crashed")
            gathered = replace(outcome.gathered, unchecked=StageResult(undone=(undone, undone)))
            outcome = replace(outcome, gathered=gathered)
        outcomes.append(outcome)
        return outcome

    monkeypatch.setattr(pipeline, "run", run_in_part)
    result = repaired(request, tmp_path / "s")
    reasons = [undone.reason for undone in result.unchecked]

    match state, runs:
        case "unchecked", "later":
            assert ("unchanged", []) == (result.state, reasons)
        case "repaired", "later":
            assert "the repaired model has a new undecided check: the support prediction crashed" == result.reason
        case "repaired", "first":
            assert ("repaired", []) == (result.state, reasons)
        case _:
            assert (state, ["the support prediction crashed"]) == (result.state, reasons)


STATES = {
    "opset-too-new/no-release-yet": "unfixable",  # nor does the onnx version converter support it
    "external-data-escapes/absolute": "unfixable",
    "external-data-refused/accepted-absolute-path": "unfixable",
    "external-data-refused/hexadecimal-length": "unverified",  # onnx cannot read the original either
    "external-data-refused/other-engines": "unverified",
    "external-data-refused/signed-numbers": "unverified",
    "invalid-model/nodes-not-sorted": "unfixable",
    "invalid-model/operator-newer-than-opset": "unfixable",
    "invalid-model/shapes-contradict": "unfixable",
    "invalid-model/two-nodes-of-one-name": "unfixable",
    "invalid-model/unused-function": "unfixable",
    "invalid-model/types-that-do-not-fit": "unverified",
    "invalid-model/wrong-declared-shape": "unfixable",
    "ir-version-mismatch/not-the-one": "unfixable",
    "opset-too-new/in-a-local-function": "unfixable",
}
SOUND = (
    *("ignore-expired/last-day", "ignore-expired/past", "ignore-unused/listed-one-is-gone", "ignore-unused/used"),
    *("ignore-unused/other-content", "unknown-operator/opset-too-new-says-it"),
    *("external-data-refused/hugging-face-cache", "opset-too-new/machine-learning-domain"),
    "opset-too-new/one-too-new",
)
"""Cases without a fault on the four runtimes."""


@pytest.mark.parametrize("name", fix_cases.names())
def test_every_case(name: str, repaired: Repairs, tmp_path: Path) -> None:
    """Each case has its expected result, and a repaired model has nothing left to fix."""
    folder = tmp_path / "r"
    folder.mkdir()
    request = fix_cases.make(name, folder)
    before = dict(fix_cases.files(folder))
    repairs = repaired(request, tmp_path / "s")

    assert repairs.state == ("unchanged" if name in SOUND else STATES.get(name, "repaired"))
    assert dict(fix_cases.files(folder)) == before
    if repairs.state == "repaired":
        assert repairs.repaired is not None
        assert repairs.proof is not None
        assert repairs.proof.verdict == "verified"
        repairs.model.absolute.write_bytes(repairs.repaired.path.read_bytes())
        assert repaired(request, tmp_path / "again").state == ("unfixable" if repairs.remaining else "unchanged")


def test_only_selected_findings_are_fixed(repaired: Repairs, tmp_path: Path) -> None:
    """Other rules and ignored findings are not repaired, and renames require `--unsafe`."""
    folder = tmp_path / "r"
    folder.mkdir()
    request = fix_cases.make("input-passthrough/input-is-output", folder)

    assert repaired(request, tmp_path / "1", FixOptions(frozenset({"path-leaked"}), unsafe=True)).state == "unchanged"
    waiting = repaired(request, tmp_path / "2", FixOptions())
    assert (waiting.state, waiting.repaired) == ("unsafe", None)
    ignored = (folder / "onnxgate.toml").read_text() + '\n[[ignore]]\nrule = "input-passthrough"\nreason = "known"\n'
    (folder / "onnxgate.toml").write_text(ignored)
    assert repaired(fix_cases.request(folder, None), tmp_path / "3").state == "unchanged"


def test_several_at_once(repaired: Repairs, tmp_path: Path) -> None:
    """All faults of a model are repaired and verified together."""
    folder = tmp_path / "r"
    folder.mkdir()
    fix_cases.make(TOO_NEW, folder)
    model = parse("g (float[N, 4] x, float[N, 4] m) => (float[N, 4] y, float[N, 4] m) { y = Relu (x) }")
    model.ir_version = 13
    model.doc_string = "/home/ada/net.py"
    write(folder / "model.onnx", model)
    repairs = repaired(fix_cases.request(folder, None), tmp_path / "s")

    assert repairs.state == "repaired"
    assert {finding.rule for finding in repairs.findings} == {"ir-version-too-new", "input-passthrough", "path-leaked"}
    assert repairs.repaired is not None
    proto = onnx.load(str(repairs.repaired.path))
    assert (proto.ir_version, proto.doc_string, proto.graph.output[1].name) == (10, "net.py", "m_out")


def refused_model(folder: Path) -> None:
    """Write a model that no release loads, with an IR version that some do not support, and with a leaked path."""
    folder.mkdir()
    fix_cases.make(TOO_NEW, folder)
    head = '<ir_version: 13, opset_import: ["" : 18]>\n'
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = NoSuchOperator (x) }", head)
    model.doc_string = "/home/ada/net.py"
    write(folder / "model.onnx", model)


def test_no_gain(repaired: Repairs, tmp_path: Path) -> None:
    """The versions of a model are unchanged if the repaired model would still not load on any required release."""
    folder = tmp_path / "r"
    refused_model(folder)
    repairs = repaired(fix_cases.request(folder, None), tmp_path / "s")

    assert (
        dict(repairs.unfixed)["ir-version"].reason == "the repaired model would still not load on any required release"
    )
    assert {each.rule for each in repairs.remaining} >= {"ir-version-too-new", "unknown-operator"}
    assert repairs.repaired is None or onnx.load(str(repairs.repaired.path)).ir_version == 13


def test_rule_limits_changes(repaired: Repairs, tmp_path: Path) -> None:
    """With `--rule`, only its finding is fixed and only its findings remain."""
    folder = tmp_path / "r"
    folder.mkdir()
    fix_cases.make(TOO_NEW, folder)
    model = parse("g (float[N, 4] x, float[N, 4] m) => (float[N, 4] y, float[N, 4] m) { y = Relu (x) }")
    model.opset_import[0].version = 25
    model.ir_version = 13
    model.doc_string = "/home/ada/net.py"
    write(folder / "model.onnx", model)
    request = fix_cases.request(folder, None)
    repairs = repaired(request, tmp_path / "s", FixOptions(frozenset({"path-leaked"}), unsafe=True))

    assert repairs.repaired is not None
    made = onnx.load(str(repairs.repaired.path))
    model.doc_string = "net.py"
    assert (made, repairs.remaining) == (model, ())


def test_types_before_opset(repaired: Repairs, tmp_path: Path) -> None:
    """Types are added before the opset is converted, because a conversion that adds types itself is rejected."""
    folder = tmp_path / "r"
    folder.mkdir()
    fix_cases.make(TOO_NEW, folder)
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }", '<ir_version: 13, opset_import: ["" : 25]>')
    model.graph.output[0].ClearField("type")
    write(folder / "model.onnx", model)
    repairs = repaired(fix_cases.request(folder, None), tmp_path / "s")

    assert (repairs.state, repairs.unfixed) == ("repaired", ())
    assert {finding.rule for finding in repairs.findings} == {"invalid-model", "ir-version-too-new", "opset-too-new"}


def test_pointer(repaired: Repairs, tmp_path: Path) -> None:
    """A Git LFS pointer is not repaired; the hint fetches it."""
    folder = tmp_path / "r"
    folder.mkdir()
    request = fix_cases.make(TOO_NEW, folder)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 99\n"
    (folder / "model.onnx").write_text(pointer)
    repairs = repaired(request, tmp_path / "s")

    assert (repairs.state, repairs.remaining) == ("unreadable", ())
    assert repairs.reason.startswith("the file is a Git LFS pointer")
    assert repairs.hint.startswith('run `git lfs pull --include "model.onnx"`')


def test_rules_about_runs_must_be_selected(repaired: Repairs, tmp_path: Path) -> None:
    """The fix of a finding that only a run can show is applied if its rule is selected, and verified by runs."""
    folder = tmp_path / "r"
    folder.mkdir()
    request = fix_cases.make("invalid-model/wrong-declared-shape", folder)
    selected = FixOptions(frozenset({"output-shape-wrong"}))

    assert repaired(request, tmp_path / "1").state == "unfixable"
    repairs = repaired(request, tmp_path / "2", selected)
    assert repairs.state == "repaired"
    assert repairs.repaired is not None
    assert repairs.repaired.words == ("declares the shape of `y` as (N, 4) instead of (N, 5)",)
    repairs.model.absolute.write_bytes(repairs.repaired.path.read_bytes())
    assert repaired(request, tmp_path / "3", selected).state == "unchanged"
