"""Conditions on which an engine refuses an operator, and the probe models that they are derived from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from harvest import probed
from harvest.probing import probe_models
from harvest.probing.conditions import Condition, Probe, find_conditions
from onnx import defs, numpy_helper

from onnxgate.project.lock.index import Release
from onnxgate.support.limits import is_probed_interface_type
from onnxgate.support.operators import TableSource

ROOT = Path(__file__).resolve().parents[2]


def probe(*features: str, loads: bool = True) -> Probe:
    """Return a probe that one release loads or refuses."""
    return Probe(frozenset(features), int(loads))


def test_a_condition_is_the_only_difference_from_a_loaded_probe() -> None:
    """A feature that differs together with others is not taken for the cause."""
    probes = [
        probe("mode=linear", "axes: constant"),
        probe("mode=cubic", "axes: constant", loads=False),
        probe("mode=wrap", "axes: dynamic", loads=False),
    ]

    assert [Condition(("mode=cubic",), 1)] == find_conditions(probes, 1)


def test_no_loaded_probe_fulfills_a_condition() -> None:
    """Two features are needed if each of them is loaded without the other."""
    probes = [
        probe("T=a", "U=a"),
        probe("T=b", "U=b"),
        probe("T=a", "U=b", loads=False),
        probe("T=a", "U=b", "mode=x", loads=False),
        probe("T=a", "U=b", "mode=y", loads=False),
        probe("T=a", "U=a", "mode=x"),
    ]

    assert [Condition(("T=a", "U=b"), 1)] == find_conditions(probes, 1)


def test_inputs_that_are_not_all_constant_are_one_difference() -> None:
    """A node of constants is computed when the model is loaded, so an operator without a kernel loads."""
    probes = [
        probe("inputs: constant", "A: constant", "B: constant"),
        probe("inputs: not constant", "A: dynamic", "B: constant", loads=False),
        probe("inputs: not constant", "A: constant", "B: dynamic", loads=False),
    ]

    assert [Condition(("inputs: not constant",), 1)] == find_conditions(probes, 1)


def test_a_required_attribute_may_follow_from_the_number_of_inputs() -> None:
    """A node with two inputs has another equation than one with one input, so both differ together."""
    one, two = ("Inputs: 1", "equation: set", "equation=ij->ji"), ("Inputs: 2", "equation: set")
    probes = [
        probe(*one, "T=tensor(float)"),
        probe(*one, "T=tensor(int64)"),
        *(
            probe(*two, f"equation={equation}", f"T=tensor({element})", loads=element == "float")
            for equation in ("ij,jk", "i,j", "ij,ij")
            for element in ("float", "int64")
        ),
    ]

    assert [Condition(("Inputs: 2", "T=tensor(int64)"), 1)] == find_conditions(probes, 1)


def test_probes_do_not_depend_on_the_order_of_sets() -> None:
    """The same code always generates the same probes, so that a harvest can continue."""
    script = (
        "import sys, hashlib; sys.path[:0] = ['tools', '.']\n"
        "from harvest.probing import probe_models\n"
        "from onnx import defs\n"
        "models = [model.SerializeToString(deterministic=True) for name in ('Resize', 'Pad')\n"
        "          for _, model in probe_models.generate(defs.get_schema(name, 18), 18)]\n"
        "print(len(models), hashlib.sha256(b''.join(models)).hexdigest())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert 1 == len(outputs)


def test_probes_vary_types_inputs_attributes_and_shapes() -> None:
    """Each variation of an operator is probed alone."""
    models = [model for _, model in probe_models.generate(defs.get_schema("Unsqueeze", 13), 13)]
    actual = frozenset().union(*(probed.describe_probe(model).features for model in models))

    expected = {"T=tensor(float16)", "axes: constant", "axes: dynamic", "data: rank 0", "data: rank unknown"}
    assert expected <= actual


@pytest.mark.parametrize(
    ("harvester", "text"),
    [
        (probed.TRACT, "Translating node #1 `y` Unimplemented(Relu) ToTypedTranslator"),
        (probed.OPENVINO, "-- No conversion rule found for operations: ai.onnx.Abs-6, Relu-14 \n"),
        (probed.OPENVINO, "OpenVINO does not support the following ONNX operations: Relu\n"),
    ],
)
def test_texts_that_name_a_missing_operator(harvester: probed.ProbedHarvester, text: str) -> None:
    """An engine that names the operator refuses it in every model; other errors may concern only the probe."""
    relu = next(model for _, model in probe_models.generate(defs.get_schema("Relu", 14), 14))
    described = probed.describe_probe(relu)

    assert probed.MISSING == harvester._classify(described, text)
    assert probed.REFUSED == harvester._classify(described, text.replace("Relu", "LeakyRelu"))
    assert probed.LOADS == harvester._classify(described, "")


def test_optional_inputs_have_each_type() -> None:
    """Engines may refuse a type only together with an optional input, such as float16 with the third input of Gemm."""
    models = [model for _, model in probe_models.generate(defs.get_schema("Gemm", 13), 13)]
    described = [probed.describe_probe(model).features for model in models]

    assert any({"T=tensor(float16)", "C: given"} <= features for features in described)
    assert any({"T=tensor(double)", "C: given"} <= features for features in described)


@pytest.mark.parametrize("feature", ["onesided=0", "frame_length: given", "frame_length: dynamic", "window: dynamic"])
def test_stft_is_probed_with_one_difference_from_a_usual_node(feature: str) -> None:
    """Probes without a window or of another rank are refused on their own account, whatever else they vary."""
    models = [model for _, model in probe_models.generate(defs.get_schema("STFT", 17), 17)]
    described = [probed.describe_probe(model).features for model in models]

    assert any({"signal: rank 3", "frame_step: constant", "window: given", feature} <= it for it in described)


def test_forms_may_have_dynamic_sizes() -> None:
    """tract accepts a mask of bool only if the size of a head is dynamic."""
    models = [model for _, model in probe_models.generate(defs.get_schema("Attention", 23), 23)]
    described = [probed.describe_probe(model).features for model in models]

    assert any({"U=tensor(bool)", "Q: static", "V: symbolic"} <= it for it in described)


def make_source(release: probed.EngineRelease) -> TableSource:
    """Return the source of a release that is not on the index."""
    return TableSource(release=release.release, wheel="tract.whl", sha256="0")


@pytest.mark.parametrize(
    ("release", "expected"),
    [("0.22.2", {"a": 0}), ("0.23.1", {}), ("0.23.0", {})],
    ids=["between two of its series", "the newest of its series", "the oldest of its series"],
)
def test_results_are_assumed_within_a_series(
    release: str, expected: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if an older and a newer release of the same series agree on a probe, those in between are not measured."""
    measured = {"0.21.9": {"a": 1, "b": 1}, "0.22.1": {"a": 0, "b": 1}, "0.22.4": {"a": 0, "b": 0}, "0.23.2": {"a": 0}}
    for name, results in measured.items():
        release_of_record = probed.EngineRelease("tract", name)
        record = probed.Record(source=make_source(release_of_record), engine="tract", results=results)
        (tmp_path / f"tract-{name}.json").write_bytes(msgspec.json.encode(record))
    monkeypatch.setattr(probed, "list_probes", lambda: {"a": None})
    monkeypatch.setattr(probed.EngineRelease, "find_wheel", make_source)

    assert expected == probed.TRACT.find_assumed(tmp_path, probed.EngineRelease("tract", release))


def test_measured_results_are_not_replaced_by_assumed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If probes are added, the results that a release was measured with stay, and assumed ones are stored."""
    measured = {"0.22.2": {"a": 0}, "0.22.1": {"a": 1, "b": 0}, "0.22.4": {"a": 1, "b": 0}}
    for name, results in measured.items():
        record = probed.Record(source=make_source(probed.EngineRelease("tract", name)), engine="tract", results=results)
        (tmp_path / f"tract-{name}.json").write_bytes(msgspec.json.encode(record))
    monkeypatch.setattr(probed, "list_probes", lambda: {"a": None, "b": None})
    monkeypatch.setattr(probed.EngineRelease, "find_wheel", make_source)
    monkeypatch.setattr(probed.engine_loads, "find_spec", lambda engine, release: None)
    release = probed.EngineRelease("tract", "0.22.2")

    made = probed.TRACT.measure(tmp_path, release)

    assert {"a": 0, "b": 0} == made.results
    assert made == probed.TRACT.recorded(tmp_path, release)


def test_the_ends_of_each_series_are_measured_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest and the newest release of a series are measured before those in between, which may agree with both."""
    names = ("0.21.8", "0.21.9", "0.21.10", "0.21.11", "0.22.1", "0.23.0", "0.23.1")
    found = [Release("tract", Version(name), "3.11", ()) for name in names]
    monkeypatch.setattr(probed, "find_releases", lambda requirement, policy, index: found)
    actual = [each.release for each in probed.TRACT.find(())]

    assert actual == ["0.21.8", "0.21.11", "0.21.9", "0.21.10", "0.22.1", "0.23.0", "0.23.1"]


def test_outputs_that_depend_on_an_attribute_are_no_separate_difference() -> None:
    """BatchNormalization has statistics as outputs only in training mode, so that no probe has only one of both."""
    probes = [
        probe("training_mode: unset", "running_mean: unused"),
        probe("training_mode=1", "running_mean: used", loads=False),
    ]

    assert [Condition(("training_mode=1",), 1)] == find_conditions(probes, 1)


def test_the_most_specific_feature_is_the_condition() -> None:
    """A value that is refused does not imply that other values of the attribute are refused."""
    probes = [probe("keepdims: unset"), probe("keepdims: set", "keepdims=0", loads=False)]

    assert [Condition(("keepdims=0",), 1)] == find_conditions(probes, 1)


def test_conditions_contain_the_attributes_that_all_probes_with_them_have() -> None:
    """If all probes of a rank have an attribute, the attribute can be what the engine refuses."""
    probes = [
        probe("x: rank 2", "block_size: unset"),
        probe("x: rank 2", "block_size: set", "block_size=2"),
        probe("x: rank 3", "block_size: set", "block_size=2", loads=False),
    ]

    assert [Condition(("block_size=2", "x: rank 3"), 1)] == find_conditions(probes, 1)


def test_versions_without_an_attribute_skip_forms_with_it() -> None:
    """A blocked scale without `block_size` is invalid, and its refusal would count against its rank."""
    schema = defs.get_schema("QuantizeLinear", 13)
    stored = (it for _, model in probe_models.generate(schema, 18) for it in model.graph.initializer)
    ranks = {len(it.dims) for it in stored if it.name == "x1"}

    assert {0, 1} == ranks


def test_sequences_of_the_interface_are_refused_if_all_such_probes_are() -> None:
    """A sequence between two nodes can be supported by an engine that accepts no sequence as input or output."""
    name, described = next(it for it in probed.list_probes().items() if it[1].operator[1] == "SplitToSequence")
    groups = {(described.operator, described.version): [(described, probed.REFUSED)] * probed.MIN_PROBES}

    found = probed._find_interface_conditions(groups)
    assert {described.operator: {"output_sequence: model output"}} == found, name

    groups[described.operator, described.version].append((described, probed.LOADS))
    assert not probed._find_interface_conditions(groups)


@pytest.mark.parametrize("engine", ["openvino", "tract"])
def test_types_of_probed_interfaces_are_known_from_the_limits(engine: str) -> None:
    """The limits contain only refused types; the oldest release refuses each type of Identity that is not a tensor."""
    schema = defs.get_schema("Identity", defs.onnx_opset_version())
    types = {name for it in schema.type_constraints for name in it.allowed_type_strs}

    assert {name for name in types if not is_probed_interface_type(name, engine)} == set()
    assert not is_probed_interface_type("seq(tensor(float8e5m2))", engine)


def test_operators_that_a_release_reports_as_missing_are_missing_in_all_versions() -> None:
    """A probe of another version may be refused before the release finds that it does not implement the operator."""
    loop = next(it for it in probed.list_probes().values() if it.operator[1] == "Loop")
    groups = {(loop.operator, 11): [(loop, probed.MISSING)], (loop.operator, 23): [(loop, probed.REFUSED)]}

    assert {loop.operator} == probed._find_missing_operators(groups)

    groups[loop.operator, 23].append((loop, probed.LOADS))
    assert not probed._find_missing_operators(groups)


def test_sequences_of_control_flow_are_not_refused_because_few_probes_are() -> None:
    """OpenVINO 2026.4.1 loads an If whose output is a sequence, although all probes of If with one fail."""
    described = next(it for it in probed.list_probes().values() if it.operator[1] == "SplitToSequence")
    control_flow = described._replace(operator=("ai.onnx", "If"))
    groups = {(control_flow.operator, 16): [(control_flow, probed.REFUSED)] * probed.MIN_PROBES}

    assert not probed._find_interface_conditions(groups)


def test_each_type_of_sequence_and_optional_value_is_an_input_and_an_output() -> None:
    """The limits of a release contain the types that it refuses in all probes, so each type needs a simple one."""
    probes = [it for it in probed.list_probes().values() if it.operator[1] == "Identity"]
    schema = defs.get_schema("Identity", defs.onnx_opset_version())
    types = {name for it in schema.type_constraints for name in it.allowed_type_strs if not name.startswith("tensor(")}

    assert types <= {name for it in probes for name in it.interface}


def test_scales_of_probes_fit_their_data() -> None:
    """A scale of another length is refused, which would count against the shape or the attribute of the probe."""
    schema = defs.get_schema("DequantizeLinear", 21)
    models = [model for _, model in probe_models.generate(schema, 21)]

    assert all(map(probe_models._is_scale_valid, models))
    invalid = models[0]
    invalid.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "x1"))
    assert not probe_models._is_scale_valid(invalid)
