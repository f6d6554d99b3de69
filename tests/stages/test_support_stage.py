"""The support stage: predictions for each runtime, and notes about missing predictions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.support import (
    ExternalDataOnRuntime,
    ModelOnRuntime,
    PredictionGap,
    ProviderFallback,
    RefusedOperation,
)
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.project.config.project import MergedSettings, SelectedModel
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.rules.support.ir_version_too_new import ir_version_too_new
from onnxgate.rules.support.opset_too_new import opset_too_new
from onnxgate.stages.file import read_checked_model
from onnxgate.stages.support.operator_predictions import LocatedModel
from onnxgate.stages.support.runtime_data import HARVEST_HINT, RUN_HINT, UPDATE_HINT, collect_prediction_gaps
from onnxgate.stages.support.stage import ModelPrediction, collect_model_evidence
from onnxgate.support import limits
from onnxgate.support import operators as tables_operators
from onnxgate.support.harvest import BuildSupport, select_releases
from onnxgate.support.matching.operations import OpsetChange
from tests.harness.models import parse, write

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
DOUBLE_CONV = "g (double[1, 3, 8, 8] x, double[4, 3, 3, 3] w) => (double[1, 4, 6, 6] y) { [n] y = Conv (x, w) }"
CUSTOM = '<ir_version: 8, opset_import: ["" : 18, "acme" : 1]>\n'
PLACE = Place("onnxgate.lock", 7)


def planned(
    release: str, *, engine: str = "onnxruntime", providers: tuple[str, ...] = (CPU,), **more: object
) -> PlannedRuntime:
    """Return a planned runtime."""
    runtime = LockedRuntime(engine=engine, release=release, environment=str(more.get("environment", "")))
    extensions = ("acme-operators",) if more.get("extended") else ()
    return PlannedRuntime(runtime, ("all",), ("all",), providers, required=True, extensions=extensions)


def gather(folder: Path, *runtimes: PlannedRuntime, kept: dict[str, BuildSupport] | None = None) -> ModelPrediction:
    """Return the evidence about the model in the folder."""
    path = folder / "m.onnx"
    model = LocatedModel(SelectedModel("m.onnx", path, MergedSettings(), PLACE), PLACE, folder, folder)
    return collect_model_evidence(model, read_facts(path, "m.onnx"), read_checked_model(path), runtimes, kept or {})


def select_subjects(predicted: ModelPrediction, kind: type) -> list[object]:
    """Return the subjects of one type."""
    return [subject for subject in predicted.subjects if type(subject) is kind]


def unpredicted(*runtimes: PlannedRuntime) -> list[tuple[str, str]]:
    """Return the runtimes and what is not predicted for them."""
    return [
        (prediction_gap.runtime, prediction_gap.what) for prediction_gap in collect_prediction_gaps(runtimes, PLACE)
    ]


def test_predictions_are_handed_on(tmp_path: Path) -> None:
    """Each runtime with known kernels has a prediction, even if it loads the model."""
    write(tmp_path / "m.onnx")
    evidence = gather(tmp_path, planned("1.16.3"), planned("1.31.1"), planned("1.15.1"))

    assert {name: each.verdict for name, each in evidence.predictions.items()} == {
        "onnxruntime 1.16.3": "loads",
        "onnxruntime 1.31.1": "loads",
    }


def test_equal_refusals_have_equal_suggestions(tmp_path: Path) -> None:
    """Suggestions and spans are the same for all runtimes, so that one subject names all of them."""
    write(tmp_path / "m.onnx", DOUBLE_CONV)
    (refused,) = select_subjects(gather(tmp_path, planned("1.16.3"), planned("1.31.1")), RefusedOperation)

    assert isinstance(refused, RefusedOperation)
    assert refused.runtimes == ("onnxruntime 1.16.3", "onnxruntime 1.31.1")


def test_refusals_of_a_release_are_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    """A refusal that an older release lacks comes first if its node does, because reasons are listed in this order."""
    write(tmp_path / "m.onnx", "g (double[2] x) => (double[2] y) { a = Cos (x) b = Unknown (a) y = Relu (b) }")
    evidence = gather(tmp_path, planned("1.31.1"), planned("1.16.3"))
    refused = [it for it in select_subjects(evidence, RefusedOperation) if isinstance(it, RefusedOperation)]

    assert [(it.operator, it.runtimes) for it in refused] == [
        ("Cos", ("onnxruntime 1.16.3",)),
        ("Unknown", ("onnxruntime 1.31.1", "onnxruntime 1.16.3")),
    ]


def test_nodes_with_wrong_constants_are_the_same_on_all_releases(tmp_path: Path) -> None:
    """A release that ends at the first of two nodes does not divide the same problem into two findings."""
    graph = "g (int64[2] x) => (int64[2] y) <int64[2] c = {1, 1}, int64[2] d = {0, 1}>"
    write(tmp_path / "m.onnx", f"{graph} {{ [a] z = Div (c, d) [b] w = Div (x, d) y = Add (z, w) }}")
    found = gather(tmp_path, planned("1.22.1"), planned("1.31.1"))
    refused = select_subjects(found, RefusedOperation)

    assert ["node `a`, and 1 more"] * 2 == [it.nodes.words for it in refused if isinstance(it, RefusedOperation)]


def test_equal_gaps_are_merged(tmp_path: Path) -> None:
    """The first node is named, and the others are counted."""
    text = (
        "g (double[N, 3, 3] x) => (double[N] a, double[N] b, double[N] c) { [n] a = Det (x) b = Det (x) c = Det (x) }"
    )
    write(tmp_path / "m.onnx", text)
    (found,) = select_subjects(gather(tmp_path, planned("1.31.1")), RefusedOperation)

    assert isinstance(found, RefusedOperation)
    assert found.nodes.words == "node `n`, and 2 more"


def test_a_function_that_is_called_twice_counts_once(tmp_path: Path) -> None:
    """A node in a function is counted once, regardless of the number of calls."""
    head = '<ir_version: 8, opset_import: ["" : 18, "my" : 1]>\n'
    text = """
    g (double[N, 3, 3] x, double[N, 3, 3] z) => (double[N] a, double[N] b) { a = my.Volume (x) b = my.Volume (z) }
    <domain: "my", opset_import: ["" : 18]> Volume (s) => (t) { [det] d = Det (s) t = Abs (d) }"""
    write(tmp_path / "m.onnx", parse(text, head))
    (found,) = select_subjects(gather(tmp_path, planned("1.31.1")), RefusedOperation)

    assert isinstance(found, RefusedOperation)
    assert found.nodes.words == "node `det` in the local function `my.Volume`"


def test_extensions_may_register_an_operator(tmp_path: Path) -> None:
    """An extension may register the operator, so nothing is refused and the gap is reported."""
    write(tmp_path / "m.onnx", parse("g (float[N] x) => (float[N] y) { [n] y = acme.Do (x) }", CUSTOM))
    plain, extended = gather(tmp_path, planned("1.31.1")), gather(tmp_path, planned("1.31.1", extended=True))
    (open_one,) = select_subjects(extended, PredictionGap)

    assert [type(subject) for subject in plain.subjects] == [ModelOnRuntime, RefusedOperation]
    assert select_subjects(extended, RefusedOperation) == []
    assert [prediction.verdict for prediction in extended.predictions.values()] == ["unknown"]
    assert isinstance(open_one, PredictionGap)
    assert open_one.what.startswith("has no prediction for node `n`: ")
    assert open_one.what.endswith("but an extension may register this operator; the runtime stage checks this")


def test_a_doubt_about_the_whole_model_is_noted(tmp_path: Path) -> None:
    """A model that tract may refuse as a whole has a note instead of a prediction, without the name of a node."""
    write(tmp_path / "m.onnx", "g (float[?, 4] x) => (float[?, 4] y) { [n] y = Relu (x) }")
    found = gather(tmp_path, planned("0.23.9", engine="tract"))
    (gap,) = select_subjects(found, PredictionGap)

    assert [prediction.verdict for prediction in found.predictions.values()] == ["unknown"]
    assert isinstance(gap, PredictionGap)
    assert (gap.runtime, gap.node) == ("tract 0.23.9", "")
    assert gap.what == "input `x` has a size with neither a value nor a name, which tract usually refuses"
    assert gap.fix.startswith("run `onnxgate check` without `--static`")


def test_another_provider_may_have_a_kernel(tmp_path: Path) -> None:
    """A kernel that is missing on CPU is not a refusal if another provider with unknown kernels is configured."""
    write(tmp_path / "m.onnx", DOUBLE_CONV)
    evidence = gather(tmp_path, planned("1.31.1", providers=(CUDA, CPU)))

    assert select_subjects(evidence, RefusedOperation) == []
    assert [prediction.verdict for prediction in evidence.predictions.values()] == ["unknown"]


def test_another_provider_changes_no_schema(tmp_path: Path) -> None:
    """An invalid attribute is refused regardless of the provider."""
    write(tmp_path / "m.onnx", "g (float[N] x) => (float[N] y) { [n] y = Relu <alpha = 1.0> (x) }")
    evidence = gather(tmp_path, planned("1.31.1", providers=(CUDA, CPU)))

    assert [prediction.verdict for prediction in evidence.predictions.values()] == ["refused"]


def test_gpu_builds_have_limits_and_schemas(tmp_path: Path) -> None:
    """Kernels of a GPU build are unknown, so only limits and schemas are predicted, and a note reports this."""
    gpu = planned("1.31.1", engine="onnxruntime-gpu", providers=(CUDA, CPU))
    write(tmp_path / "m.onnx", DOUBLE_CONV)
    kernel = gather(tmp_path, gpu)
    write(tmp_path / "m.onnx", "g (float[N] x) => (float[N] y) { [n] y = NoSuch (x) }")
    schema = gather(tmp_path, gpu)

    assert ([type(subject) for subject in kernel.subjects], kernel.predictions) == ([ModelOnRuntime], {})
    assert [prediction.verdict for prediction in schema.predictions.values()] == ["refused"]
    assert unpredicted(gpu) == [("onnxruntime-gpu 1.31.1", "kernel support is not predicted")]


@pytest.mark.parametrize(
    ("runtime", "what"),
    [
        (planned("1.31.1"), None),
        (planned("1.15.1"), "operator support is not predicted"),
        (planned("1.31.1", environment=".venv"), "operator support is not predicted"),
        (planned("1.99.0"), "nothing can be predicted"),
        (planned("2026.1.0", engine="openvino"), None),
        (planned("2023.3.0", engine="openvino"), "nothing can be predicted"),
        (planned("4.13.0.90", engine="opencv-python-headless"), "nothing can be predicted"),
    ],
)
def test_missing_support_data_is_noted(tmp_path: Path, runtime: PlannedRuntime, what: str | None) -> None:
    """A runtime without data has a note instead of a prediction."""
    write(tmp_path / "m.onnx", DOUBLE_CONV)
    evidence = gather(tmp_path, runtime)

    assert unpredicted(runtime) == ([(runtime.name, what)] if what else [])
    assert bool(evidence.predictions) == (what is None)


def test_version_fields_can_predict_a_refusal(tmp_path: Path) -> None:
    """If kernels are unknown, version fields can predict a refusal, but never a load."""
    write(tmp_path / "m.onnx", parse(head='<ir_version: 8, opset_import: ["" : 20]>\n'))
    evidence = gather(tmp_path, planned("1.15.1"))

    assert {name: each.verdict for name, each in evidence.predictions.items()} == {"onnxruntime 1.15.1": "refused"}


def test_a_model_that_is_not_here_is_judged_by_the_lock(tmp_path: Path) -> None:
    """If the file is a pointer, version fields from the lock are checked, and a note reports that operators are not."""
    path = write(tmp_path / "m.onnx", parse(head='<ir_version: 8, opset_import: ["" : 20]>\n'))
    facts = read_facts(path, "m.onnx")
    path.unlink()
    model = LocatedModel(SelectedModel("m.onnx", path, MergedSettings(), PLACE), PLACE, tmp_path, tmp_path)
    model_evidence = collect_model_evidence(model, facts, None, [planned("1.16.3"), planned("1.31.1")])
    (unread,) = select_subjects(model_evidence, PredictionGap)

    assert {name: each.verdict for name, each in model_evidence.predictions.items()} == {
        "onnxruntime 1.16.3": "refused"
    }
    assert isinstance(unread, PredictionGap)
    assert (unread.what, unread.follows_from) == (
        "operator support cannot be predicted: the file is a Git LFS pointer (content not fetched)",
        ("lfs-pointer",),
    )


def test_external_data_locations(tmp_path: Path) -> None:
    """Each runtime that cannot read external data in its place is reported, with the tensors."""
    text = """g (float[2] x) => (float[2] y)
        <float[2] w = ["location": "../w.bin", "offset": "0", "length": "8"]> { y = Add (x, w) }"""
    (tmp_path / "w.bin").write_bytes(bytes(8))
    write(tmp_path / "models" / "m.onnx", text)
    actual = select_subjects(gather(tmp_path / "models", planned("1.23.2"), planned("1.24.1")), ExternalDataOnRuntime)

    assert actual == [
        ExternalDataOnRuntime("m.onnx", PLACE, "onnxruntime 1.24.1", "../w.bin", "outside", ("w",), "", "1.23.2")
    ]


def harvested(operators: tuple[str, ...]) -> BuildSupport:
    """Return a build with CUDA kernels for these operators, copied from the CPU kernels."""
    release = "1.31.1"
    whole = select_releases(tables_operators.load_shipped_table(), [release])
    rows = dict(whole.operators["ai.onnx"])
    for name in operators:
        own = msgspec.json.decode(rows[name], type=tables_operators.OperatorRows)
        more = [msgspec.structs.replace(kernel, provider=CUDA) for kernel in own.kernels]
        changed = msgspec.structs.replace(own, kernels=(*own.kernels, *more))
        rows[name] = msgspec.Raw(msgspec.json.encode(changed))
    made = msgspec.structs.replace(whole, operators={**whole.operators, "ai.onnx": rows})
    known = limits.load_limit_table().releases[release]
    return BuildSupport(known, tables_operators.build_implementations(made, {release: known.opsets})[release])


def test_cpu_fallbacks_are_counted(tmp_path: Path) -> None:
    """Nodes that fall back to the CPU are counted by operator, unless the provider runs all nodes."""
    write(tmp_path / "m.onnx", "g (float[N, 3, 3] x) => (float[N] y) { [a] a = Relu (x) [d] d = Det (a) y = Neg (d) }")
    gpu = planned("1.31.1", engine="onnxruntime-gpu", providers=(CUDA, CPU))
    some = gather(tmp_path, gpu, kept={gpu.name: harvested(("Relu",))})
    every = gather(tmp_path, gpu, kept={gpu.name: harvested(("Relu", "Det", "Neg"))})
    (fallback,) = select_subjects(some, ProviderFallback)

    assert isinstance(fallback, ProviderFallback)
    assert (fallback.operators, fallback.nodes.words) == ({"Det": 1, "Neg": 1}, "node `d`, and 1 more")
    assert select_subjects(every, ProviderFallback) == []
    assert [prediction.verdict for prediction in every.predictions.values()] == ["loads"]


WEB = "onnxruntime-web"


def test_an_engine_with_a_table_is_predicted(tmp_path: Path) -> None:
    """Releases of ONNX Runtime Web are predicted from their own table; a release without data is noted."""
    write(tmp_path / "m.onnx", DOUBLE_CONV)
    found = gather(tmp_path, planned("1.30.0", engine=WEB), planned("1.99.0", engine=WEB))

    assert {"onnxruntime-web 1.30.0": "refused"} == {it: each.verdict for it, each in found.predictions.items()}
    assert [] == list(collect_prediction_gaps([planned("1.30.0", engine=WEB)], PLACE))


def test_a_release_without_data_may_be_too_old_or_too_new() -> None:
    """An update of onnxgate helps only for newer releases."""
    runtimes = [planned("1.99.0", engine=WEB), planned("1.17.0", engine=WEB)]
    new, old = collect_prediction_gaps(runtimes, PLACE)

    assert (new.reason, new.fix) == ("is unknown to this version of onnxgate", f"{UPDATE_HINT}, or {RUN_HINT}")
    assert (old.reason, old.fix) == ("is older than 1.20.0, the first release with support data", RUN_HINT)


def test_works_since_is_a_release_of_the_same_engine(tmp_path: Path) -> None:
    """Equal problems on several engines name the first release of each."""
    head = '<ir_version: 10, opset_import: ["" : 22]>\n'
    write(tmp_path / "m.onnx", parse("g (float[N] x) => (float[N] y) { [n] y = Relu (x) }", head))
    native, web = select_subjects(gather(tmp_path, planned("1.20.1"), planned("1.20.1", engine=WEB)), ModelOnRuntime)

    assert isinstance(native, ModelOnRuntime)
    assert isinstance(web, ModelOnRuntime)
    assert ("1.18.0", "1.20.0") == (native.ir_works_since, web.ir_works_since)
    assert {"ai.onnx": "1.21.0"} == native.opset_works_since == web.opset_works_since


def test_an_engine_without_limits_does_not_limit_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that accepts every version refuses nothing because of it, and lowers no common version."""
    write(tmp_path / "m.onnx")
    web = limits.load_limit_table(WEB)
    unlimited = {release: limits.Limits(ir=None, opsets={}) for release in web.releases}
    known = limits.load_limit_table
    tables = {WEB: limits.LimitTable(WEB, unlimited)}
    monkeypatch.setattr(limits, "load_limit_table", lambda engine="onnxruntime": tables.get(engine) or known(engine))
    found = gather(tmp_path, planned("1.30.0", engine=WEB), planned("1.20.1"))
    free, bound = select_subjects(found, ModelOnRuntime)
    (alone,) = select_subjects(gather(tmp_path, planned("1.30.0", engine=WEB)), ModelOnRuntime)

    assert isinstance(free, ModelOnRuntime)
    assert isinstance(bound, ModelOnRuntime)
    assert isinstance(alone, ModelOnRuntime)
    assert (free.runtime.max_ir, free.common_ir, free.common_opsets["ai.onnx"]) == (None, 10, 21)
    assert (alone.common_ir, alone.common_opsets) == (None, {})
    assert ["loads", "loads"] == [prediction.verdict for prediction in found.predictions.values()]
    assert [*ir_version_too_new.judge(alone), *opset_too_new.judge(alone)] == []


def test_types_that_javascript_cannot_represent_are_refused(tmp_path: Path) -> None:
    """An input or output of such a type is refused since 1.22, also if its type is not declared."""
    graph = "g (float[N] x) => (float[N] z, y) { [a] y = Cast <to: int = 16> (x) [b] z = Cast <to: int = 1> (y) }"
    write(tmp_path / "m.onnx", graph)
    found = gather(tmp_path, planned("1.21.1", engine=WEB), planned("1.22.0", engine=WEB), planned("1.31.1"))
    (refused,) = select_subjects(found, RefusedOperation)

    assert isinstance(refused, RefusedOperation)
    assert (*refused.runtimes, refused.problem) == (
        "onnxruntime-web 1.22.0",
        "output `y` of the model has type `tensor(bfloat16)`",
    )
    assert ["loads", "refused", "loads"] == [prediction.verdict for prediction in found.predictions.values()]


@pytest.mark.parametrize(("size", "verdict"), [("3", "unknown"), ("2", "loads"), ("N", "loads")])
def test_a_wrong_shape_makes_the_prediction_for_the_web_doubtful(tmp_path: Path, size: str, verdict: str) -> None:
    """ONNX Runtime uses the inferred shape instead; ONNX Runtime Web refuses the model."""
    write(tmp_path / "m.onnx", f"g (float[2] x) => (float[{size}] y) {{ [n] y = Relu (x) }}")
    found = gather(tmp_path, planned("1.30.0", engine=WEB), planned("1.30.0"))

    assert [verdict, "loads"] == [prediction.verdict for prediction in found.predictions.values()]
    assert ["onnxruntime-web 1.30.0"] * (verdict == "unknown") == [
        it.runtime for it in select_subjects(found, PredictionGap) if isinstance(it, PredictionGap)
    ]


def test_harvested_kernels_are_used(tmp_path: Path) -> None:
    """Harvested kernels are used for a release that the shipped table does not contain."""
    write(tmp_path / "m.onnx", DOUBLE_CONV)
    unknown = planned("1.99.0")
    kept = {unknown.name: harvested(())}
    evidence = gather(tmp_path, unknown, kept=kept)

    assert [prediction.verdict for prediction in evidence.predictions.values()] == ["refused"]
    assert list(collect_prediction_gaps([unknown], PLACE, kept)) == []


def test_suggested_opset_is_supported_by_other_runtimes(tmp_path: Path) -> None:
    """An opset that another runtime does not support is not suggested, even if that runtime's kernels are unknown."""
    write(tmp_path / "m.onnx", "g (float[N] x) => (float[N] y) { [n] y = Gelu (x) }")
    (alone,) = select_subjects(gather(tmp_path, planned("1.31.1")), RefusedOperation)
    (limited,) = select_subjects(gather(tmp_path, planned("1.15.1"), planned("1.31.1")), RefusedOperation)

    assert isinstance(alone, RefusedOperation)
    assert isinstance(limited, RefusedOperation)
    assert (alone.ways.suggestions, alone.ways.everywhere) == ((OpsetChange("ai.onnx", 20, whole=True),), True)
    assert (limited.ways.suggestions, limited.ways.everywhere) == ((), False)
    assert alone.ways.required == "onnxruntime 1.31.1 supports"
    assert limited.ways.required == "all required runtimes support"


def test_a_run_is_not_suggested_by_a_check_that_runs_the_models() -> None:
    """The suggestion would lead to the same finding."""
    unknown, other, build = (
        planned("1.99.0"),
        planned("5.0.0", engine="opencv-python-headless"),
        planned("1.22.0", environment="e"),
    )
    of_static, of_full = (
        [gap.fix for gap in collect_prediction_gaps((unknown, other, build), PLACE, runs_models=runs)]
        for runs in (False, True)
    )

    assert of_static == [f"{UPDATE_HINT}, or {HARVEST_HINT}", RUN_HINT, HARVEST_HINT]
    assert of_full == [UPDATE_HINT, "", ""]


@pytest.mark.parametrize(
    ("body", "locations", "other", "expected"),
    [
        ("a = Add (x, w)", ["w.bin", "v.bin"], [], ["1.30.0"]),
        ("a = Add (x, w)", ["none.bin", "v.bin"], [], ["1.29.0", "1.30.0"]),
        ("a = Neg (x)", ["none.bin", "v.bin"], [], ["1.29.0", "1.30.0"]),
        ("a = Neg (x)", ["w.bin", "v.bin"], [], []),
        ("a = Add (x, w)", ["w.bin", "v.bin"], ["w.bin", "v.bin"], ["1.30.0"]),
        ("a = Add (x, w)", ["w.bin", "v.bin"], ["v.bin"], ["1.30.0"]),
        ("a = Neg (x)", ["w.bin", "v.bin"], ["w.bin", "v.bin"], []),
    ],
)
def test_two_locations_in_a_branch(
    tmp_path: Path, body: str, locations: list[str], other: list[str], expected: list[str]
) -> None:
    """The first file must exist. Since 1.30.0, a second location is refused if a node uses the tensor.

    The other branch may have an unused tensor of the same name.
    """
    text = f"""g (float[2] x, bool c) => (float[2] y) {{
        y = If (c) <
            then_branch = t () => (float[2] a) {{ {body} }},
            else_branch = e () => (float[2] b) {{ b = Neg (x) }}
        > }}"""
    model = parse(text)
    branches = {it.name: it.g for it in model.graph.node[0].attribute}
    for name, files in (("then_branch", locations), ("else_branch", other)):
        if files:
            tensor = branches[name].initializer.add(name="w", data_type=1, dims=[2], data_location=1)
            for location in files:
                tensor.external_data.add(key="location", value=location)
    for name in ("w.bin", "v.bin"):
        (tmp_path / name).write_bytes(bytes(8))
    write(tmp_path / "m.onnx", model)
    actual = select_subjects(gather(tmp_path, planned("1.29.0"), planned("1.30.0")), ExternalDataOnRuntime)

    assert [f"onnxruntime {release}" for release in expected] == [it.runtime for it in actual]


def test_external_data_that_shape_inference_needs(tmp_path: Path) -> None:
    """Nothing is predicted about releases on which no such model was loaded."""
    model = parse("g (float[4] x) => (float[a] y) { y = Reshape (x, w) }")
    tensor = model.graph.initializer.add(name="w", data_type=7, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(8))
    write(tmp_path / "m.onnx", model)
    found = gather(tmp_path, planned("1.14.1"), planned("1.15.1"), planned("1.32.0"))
    refused, unclear = select_subjects(found, ExternalDataOnRuntime), select_subjects(found, PredictionGap)

    assert [("parsed", "onnxruntime 1.15.1"), ("parsed", "onnxruntime 1.32.0")] == [
        (it.problem, it.runtime) for it in refused
    ]
    assert [] == [it for it in unclear if it.runtime != "onnxruntime 1.14.1"]


def test_external_depth(tmp_path: Path) -> None:
    """Releases since 1.21 read the depth of OneHot in shape inference."""
    model = parse("g (int64[2] x, float[2] v) => (float[a, b] y) { y = OneHot (x, w, v) }")
    tensor = model.graph.initializer.add(name="w", data_type=7, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes((4).to_bytes(8, "little"))
    write(tmp_path / "m.onnx", model)
    found = gather(tmp_path, planned("1.20.1"), planned("1.21.0"))
    refused = select_subjects(found, ExternalDataOnRuntime)

    assert [("parsed-depth", "onnxruntime 1.21.0", "", "1.20.1")] == [
        (it.problem, it.runtime, it.works_since, it.works_until) for it in refused
    ]


def test_two_locations_of_a_weight_named_as_an_outer_one(tmp_path: Path) -> None:
    """The missing first file of a branch's tensor does not depend on the names in the main graph."""
    text = """g (float[2] x, bool c) => (float[2] y) {
        a = Add (x, w)
        y = If (c) <
            then_branch = t () => (float[2] b) { b = Add (a, w) },
            else_branch = e () => (float[2] d) { d = Neg (a) }
        >
    }"""
    model = parse(text)
    branch = next(it.g for it in model.graph.node[1].attribute if it.name == "then_branch")
    for graph, files in ((model.graph, ["w.bin"]), (branch, ["none.bin", "v.bin"])):
        tensor = graph.initializer.add(name="w", data_type=1, dims=[2], data_location=1)
        for location in files:
            tensor.external_data.add(key="location", value=location)
    for name in ("w.bin", "v.bin"):
        (tmp_path / name).write_bytes(bytes(8))
    write(tmp_path / "m.onnx", model)
    actual = select_subjects(gather(tmp_path, planned("1.29.0"), planned("1.30.0")), ExternalDataOnRuntime)

    assert [("unfound", f"onnxruntime {release}") for release in ("1.29.0", "1.30.0")] == [
        (it.problem, it.runtime) for it in actual
    ]
