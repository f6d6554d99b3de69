"""Targets that are derived from deployed runtimes and predictions."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.commands.init import targets
from onnxgate.commands.init.deployed_runtimes import DeployedRuntime
from onnxgate.commands.init.targets import (
    SUGGESTED_MINORS,
    assign_targets,
    describe_prediction,
    find_uncovered_runtimes,
    has_many_minors,
    list_engines,
    predict_models,
    suggest_targets,
)
from onnxgate.core.errors import ConfigError
from onnxgate.project.engines import is_satisfied
from onnxgate.project.lock.index import UvIndex
from onnxgate.support import limits
from tests.harness.models import parse, write
from tests.harness.repositories.deploying import save_model

NO_KERNEL = """
<ir_version: 8, opset_import: ["" : 15]>
g (double[N, 4] x) => (double[N, 4] y) { y = Softsign(x) }
"""


def deployed(package: str, specifier: str, file: str = "requirements.txt") -> DeployedRuntime:
    """Return a declaration on line 1."""
    return DeployedRuntime(package, specifier, file, 1)


def newest_minors(count: int) -> list[str]:
    """Return the newest minor releases with support data, ascending."""
    releases = map(Version, limits.load_limit_table().releases)
    return list({release.release[:2]: f"{release.major}.{release.minor}" for release in releases}.values())[-count:]


def after_newest() -> str:
    """Return the first release of the minor after the newest one with support data."""
    major, _, minor = newest_minors(1)[0].partition(".")
    return f"{major}.{int(minor) + 1}.0"


def test_one_target_for_each_deployment() -> None:
    """Equal requirements share a target, which names all files."""
    targets = suggest_targets(
        [
            deployed("onnxruntime", "==1.18.1", "api/requirements.txt"),
            deployed("onnxruntime", "==1.18.1", "Dockerfile"),
            deployed("onnxruntime", ">=1.20,<2", "api/requirements-batch.txt"),
            deployed("onnxruntime", "==1.16.3", "Größe/Dockerfile"),
        ],
        (),
        None,
    )

    assert [(it.name, it.runtime) for it in targets] == [
        ("api-requirements", "onnxruntime==1.18.1"),
        ("api-requirements-batch", "onnxruntime>=1.20,<2"),
        ("gr--e", "onnxruntime==1.16.3"),
    ]
    assert targets[0].comments == (
        "Declared in api/requirements.txt:1 (`onnxruntime==1.18.1`) and Dockerfile:1 (`onnxruntime==1.18.1`).",
    )


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        ([("onnxruntime-web", "package.json"), ("onnxruntime-node", "package.json")], ["web", "node"]),
        (
            [("onnxruntime-web", "shop/package.json"), ("onnxruntime-web", "admin/package.json")],
            ["shop-web", "admin-web"],
        ),
        ([("onnxruntime", "requirements.txt"), ("onnxruntime-web", "package.json")], ["requirements", "web"]),
        ([("onnxruntime", "requirements.txt"), ("onnxruntime", "Dockerfile")], ["requirements", "docker"]),
        ([("onnxruntime", "Dockerfile"), ("onnxruntime-gpu", "Dockerfile.gpu")], ["docker", "docker-gpu"]),
        ([("onnxruntime", "requirements/prod.txt"), ("onnxruntime", "requirements/edge.txt")], ["prod", "edge"]),
        (
            [("onnxruntime", "requirements.txt"), ("onnxruntime-gpu", "requirements.txt")],
            ["requirements-cpu", "requirements-gpu"],
        ),
        ([("onnxruntime", "a/api/uv.lock"), ("onnxruntime", "b/api/uv.lock")], ["a-api", "b-api"]),
        ([("openvino", "requirements.txt"), ("tract", "requirements.txt")], ["openvino", "tract"]),
        ([("openvino", "requirements.txt"), ("openvino", "edge/requirements.txt")], ["openvino", "edge-openvino"]),
        ([("onnxruntime", "pyproject.toml"), ("onnxruntime", "pyproject.toml")], ["pyproject", "pyproject-2"]),
    ],
)
def test_names_of_targets(declared: list[tuple[str, str]], names: list[str]) -> None:
    """A name is the npm package, the folder or the file, and a number only if these are equal."""
    runtimes = [deployed(package, f"==1.{17 + n}.0", file) for n, (package, file) in enumerate(declared)]

    assert [it.name for it in suggest_targets(runtimes, (), None)] == names


def test_a_build_for_other_hardware_is_not_covered() -> None:
    """The CPU package of the release is checked, and a comment says so."""
    (target,) = suggest_targets([deployed("onnxruntime-gpu", "==1.18.1")], (), None)

    assert (target.runtime, target.builds) == ("onnxruntime==1.18.1", ("onnxruntime-gpu==1.18.1",))
    assert target.comments[1] == (
        "Checked with the CPU package `onnxruntime` of the same release, not with `onnxruntime-gpu`."
    )


def test_a_release_that_the_python_package_does_not_have() -> None:
    """If npm has a patch release that PyPI does not have, the newest patch of the minor release is checked."""
    (target,) = suggest_targets([deployed("onnxruntime-web", "==1.20.7", "package.json")], (), None)

    assert target.runtime == "onnxruntime==1.20.*"
    assert target.comments[1] == (
        "Checked with the pip package `onnxruntime` of the same minor release, not with `onnxruntime-web`."
    )


def test_a_package_of_conda_is_checked_with_that_of_pip() -> None:
    """Conda has other builds, also of releases that pip does not have."""
    (target,) = suggest_targets(
        [DeployedRuntime("onnxruntime", "==1.20.7", "environment.yml", 3, is_conda=True)], (), None
    )

    assert target.runtime == "onnxruntime==1.20.*"
    assert target.comments[1] == (
        "Checked with the pip package `onnxruntime` of the same minor release, not with the conda package."
    )


def test_the_web_package_can_be_checked_itself() -> None:
    """The pip package is the default because it needs no Node.js."""
    (target,) = suggest_targets([deployed("onnxruntime-web", ">=1.20,<2", "package.json")], (), None)

    assert "onnxruntime>=1.20,<2" == target.runtime
    assert (
        'To check `onnxruntime-web` itself with Node.js, set `runtime = "onnxruntime-web>=1.20,<2"`.' in target.comments
    )


def test_other_engines_are_targets_of_their_own(tmp_path: Path) -> None:
    """The target is the deployed engine, and its releases are predicted."""
    text = "g (float[N] x, int64[1] a) => (float[M, K] y) { y = Unsqueeze (x, a) }"
    write(tmp_path / "m.onnx", parse(text, '<ir_version: 8, opset_import: ["" : 18]>\n'))
    declared = [deployed("openvino", "==2025.1.0"), deployed("onnxruntime", "==1.18.1")]
    engines = list_engines(declared)
    targets = suggest_targets(declared, predict_models(tmp_path, ["m.onnx"], 1, engines), None)

    assert ("openvino", "onnxruntime") == engines
    assert ["openvino==2025.1.0", "onnxruntime==1.18.1"] == [target.runtime for target in targets]
    assert [
        "Prediction: `m.onnx` does not load on openvino 2025.1.0.",
        "Prediction: `m.onnx` loads on onnxruntime 1.18.1.",
    ] == [target.comments[-1] for target in targets]
    assert targets[0].name == "openvino"


@pytest.mark.parametrize(("engine", "minors"), [("openvino", SUGGESTED_MINORS), ("tract", 3)])
def test_newest_releases_of_other_engines(engine: str, minors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a version, the target has the newest minor releases; an engine can have fewer than the usual number."""

    def find_none(*_: object) -> object:
        raise ConfigError("no such release")

    monkeypatch.setattr(targets, "find_releases", find_none)
    (target,) = suggest_targets([deployed(engine, "")], (), UvIndex(offline=True))
    releases = [*limits.load_limit_table(engine).releases]

    assert engine == target.name
    assert f"Declared without a version in requirements.txt:1 (`{engine}`)." == target.comments[0]
    assert minors == len({release.split(".")[1] for release in releases if is_satisfied(target.runtime, release)})
    assert is_satisfied(target.runtime, releases[-1])


def test_a_development_dependency_is_noted() -> None:
    """If nothing else is declared, a note explains where the target comes from."""
    (target,) = suggest_targets([deployed("onnxruntime", "==1.18.1", "requirements-dev.txt")], (), None)

    assert target.notes == ("This is a development dependency; the deployed release may differ.",)


def test_many_minors() -> None:
    """Only the lock knows how many releases a range has: a comment that counts those of the data would be wrong."""
    (target,) = suggest_targets([deployed("onnxruntime", ">=1.16")], (), None)

    assert target.runtime == "onnxruntime>=1.16"
    assert target.comments == ("Declared in requirements.txt:1 (`onnxruntime>=1.16`).",)
    assert has_many_minors(target.runtime)
    assert not has_many_minors("onnxruntime>=1.16,<1.20")
    assert has_many_minors("openvino>=2024.5")
    assert not has_many_minors("opencv-python-headless")


@pytest.mark.parametrize("declared", [[], [deployed("onnxruntime", "")]])
def test_the_newest_minors(declared: list[DeployedRuntime]) -> None:
    """Without a declared version, the target contains the newest minor releases."""
    (target,) = suggest_targets(declared, (), None)

    newest = "The newest 4 minor releases for which onnxgate has support data; later releases may exist."
    place = "Declared without a version in requirements.txt:1 (`onnxruntime`)."
    assert target.comments == ((place, newest) if declared else (newest,))
    specifier = Requirement(target.runtime).specifier
    assert [minor for minor in newest_minors(9) if specifier.contains(f"{minor}.0")] == newest_minors(4)
    assert not specifier.contains(after_newest())


@pytest.mark.index
def test_the_newest_minors_are_those_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest minor releases are those of the index, even if the support data are older."""
    old = {name: limit for name, limit in limits.load_limit_table().releases.items() if Version(name) < Version("1.28")}
    current = suggest_targets((), (), UvIndex())
    monkeypatch.setattr(limits, "load_limit_table", lambda engine="onnxruntime": limits.LimitTable("onnxruntime", old))
    lagging = suggest_targets((), (), UvIndex())

    assert Version(current[0].runtime.partition(">=")[2].partition(",")[0]) >= Version(newest_minors(4)[0])
    assert lagging[0].runtime == current[0].runtime


def test_predictions_include_kernels(tmp_path: Path) -> None:
    """A release that supports the version fields but has no kernel does not load the model."""
    from onnx import parser, save

    save(parser.parse_model(NO_KERNEL), tmp_path / "kernel.onnx")
    save_model(tmp_path / "net.onnx")
    predictions = predict_models(tmp_path, ["kernel.onnx", "net.onnx"], 1)

    assert describe_prediction("onnxruntime==1.18.1", predictions) == (
        "Prediction: `kernel.onnx` does not load on onnxruntime 1.18.1.",
    )
    assert describe_prediction("onnxruntime==1.18.1", predictions[1:]) == (
        "Prediction: `net.onnx` loads on onnxruntime 1.18.1.",
    )


def test_models_with_the_same_prediction_are_named_together(tmp_path: Path) -> None:
    """The comment states only what was predicted: models that cannot be read are neither named nor counted."""
    for name in "abcd":
        save_model(tmp_path / f"{name}.onnx", ir=10, opset=21)
    save_model(tmp_path / "old.onnx", ir=9, opset=17)
    models = ["a.onnx", "b.onnx", "c.onnx", "d.onnx"]
    predictions = predict_models(tmp_path, [*models, "old.onnx"], 1)

    assert describe_prediction("onnxruntime==1.17.3", predictions[:2]) == (
        "Prediction: `a.onnx` and `b.onnx` do not load on onnxruntime 1.17.3.",
    )
    assert describe_prediction("onnxruntime==1.17.3", predictions[:4]) == (
        "Prediction: 4 models do not load on onnxruntime 1.17.3.",
    )
    assert describe_prediction("onnxruntime==1.18.1", predictions[:4]) == (
        "Prediction: 4 models load on onnxruntime 1.18.1.",
    )
    assert describe_prediction("onnxruntime>=1.15,<1.16", predictions[3:]) == (
        "Prediction: `d.onnx` does not load on onnxruntime 1.15.1.",
        "There is no prediction for `old.onnx` on onnxruntime 1.15.1.",
    )


def test_a_range_of_another_package() -> None:
    """npm lacks some patch releases: only the range is the same, not each release."""
    (target,) = suggest_targets([deployed("onnxruntime-web", ">=1.18,<1.20", "package.json")], (), None)
    (unpinned,) = suggest_targets([deployed("onnxruntime-gpu", "")], (), None)

    assert target.comments[1] == (
        "Checked with the pip package `onnxruntime` in the same range, not with `onnxruntime-web`."
    )
    assert unpinned.comments[1] == "Checked with the CPU package `onnxruntime`, not with `onnxruntime-gpu`."


@pytest.mark.parametrize(
    ("runtime", "is_covered"),
    [
        (deployed("onnxruntime", "==1.18.1"), True),
        (deployed("onnxruntime", "==1.20.1"), False),
        (deployed("onnxruntime", ">=1.18,<1.20"), True),
        (deployed("onnxruntime", ">=1.18,<1.21"), False),
        (deployed("onnxruntime-web", "==1.19.7", "package.json"), True),
        (deployed("onnxruntime", ""), True),
    ],
)
def test_runtimes_that_the_targets_of_a_config_cover(runtime: DeployedRuntime, is_covered: bool) -> None:
    """A release that became deployed after the config was written is not checked."""
    uncovered = find_uncovered_runtimes([runtime], ["onnxruntime~=1.18.0", "onnxruntime==1.19.*", "openvino"])

    assert uncovered == ([] if is_covered else [runtime])


def test_an_unknown_release_is_noted() -> None:
    """A declared release without support data is named, also if no model can be read."""
    (target,) = suggest_targets([deployed("onnxruntime", "==1.99.0")], (), None)

    assert target.notes == ("There is no prediction: onnxgate has no support data for `onnxruntime==1.99.0`.",)
    assert describe_prediction("openvino", ()) == ()


def test_releases_after_the_support_data_are_named(tmp_path: Path) -> None:
    """A range that includes later releases has no prediction for them."""
    for name in ("a.onnx", "b.onnx"):
        save_model(tmp_path / name)
    predictions = predict_models(tmp_path, ["a.onnx", "b.onnx"], 1)
    newest = [*limits.load_limit_table().releases][-1]
    minor = newest_minors(1)[0]

    (open_ended,) = describe_prediction(f"onnxruntime>={minor}", predictions)
    assert open_ended == (
        f"Prediction: `a.onnx` and `b.onnx` load on onnxruntime {newest} "
        f"(no prediction for releases newer than {newest})."
    )
    (bounded,) = describe_prediction(f"onnxruntime>={minor},<{after_newest()}", predictions)
    assert bounded == f"Prediction: `a.onnx` and `b.onnx` load on onnxruntime {newest}."


@pytest.mark.index
def test_later_releases_of_the_index_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an index, the releases without a prediction are exact."""
    old = {name: limit for name, limit in limits.load_limit_table().releases.items() if Version(name) < Version("1.17")}
    save_model(tmp_path / "net.onnx")
    predictions = predict_models(tmp_path, ["net.onnx"], 1)
    monkeypatch.setattr(limits, "load_limit_table", lambda engine="onnxruntime": limits.LimitTable("onnxruntime", old))

    (prediction,) = describe_prediction("onnxruntime>=1.16.3,<1.19", predictions, UvIndex())
    assert prediction.endswith(" on onnxruntime 1.16.3 (no prediction for 1.17.3 and 1.18.1).")
    (prediction,) = describe_prediction("onnxruntime>=1.16.3,<1.17", predictions, UvIndex())
    assert prediction.endswith(" on onnxruntime 1.16.3.")


@pytest.mark.parametrize(
    ("specifier", "gap"),
    [
        (">=1.5,<1.9", " (no prediction for releases older than 1.8)"),
        ("<1.9", " (no prediction for releases older than 1.8)"),
        (">=1.7.1,<1.9", " (no prediction for releases older than 1.8)"),
        (">=1.8,<1.9", ""),
        ("==1.8.1", ""),
    ],
)
def test_releases_before_the_support_data_are_named(tmp_path: Path, specifier: str, gap: str) -> None:
    """A range that includes earlier releases has no prediction for them."""
    save_model(tmp_path / "a.onnx")
    predictions = predict_models(tmp_path, ["a.onnx"], 1)

    (prediction,) = describe_prediction(f"onnxruntime{specifier}", predictions)

    assert prediction == f"Prediction: `a.onnx` does not load on onnxruntime 1.8.1{gap}."


def test_releases_before_and_after_the_support_data(tmp_path: Path) -> None:
    """Both gaps of a range are named."""
    save_model(tmp_path / "a.onnx")
    newest = [*limits.load_limit_table().releases][-1]

    prediction, *_ = describe_prediction("onnxruntime>=1.5", predict_models(tmp_path, ["a.onnx"], 1))

    assert prediction.endswith(f" (no prediction for releases older than 1.8 or for releases newer than {newest}).")


@pytest.mark.index
def test_earlier_releases_of_the_index_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an index, the earlier releases are exact, and releases that it does not have are not named."""
    new = {n: limit for n, limit in limits.load_limit_table().releases.items() if Version(n) >= Version("1.19")}
    save_model(tmp_path / "net.onnx")
    predictions = predict_models(tmp_path, ["net.onnx"], 1)
    monkeypatch.setattr(limits, "load_limit_table", lambda engine="onnxruntime": limits.LimitTable("onnxruntime", new))

    (prediction,) = describe_prediction("onnxruntime>=1.17,<1.20", predictions, UvIndex())

    assert prediction.endswith(" (no prediction for 1.17.3 and 1.18.1).")


def test_pointers_have_no_prediction() -> None:
    """Models that Git LFS has not fetched are named."""
    assert describe_prediction("onnxruntime==1.18.1", (), None, ["models/net.onnx"]) == (
        "There is no prediction for `models/net.onnx`, which was a Git LFS pointer when this file was written.",
    )


MONOREPO = [
    deployed("onnxruntime", "==1.18.1", "svc/a/requirements.txt"),
    deployed("onnxruntime", "==1.19.2", "svc/a/docker/Dockerfile"),
    deployed("onnxruntime", "==1.20.1", "svc/b/requirements/prod.txt"),
]


@pytest.mark.parametrize(
    ("more", "models", "expected"),
    [
        ([], ["svc/a/x.onnx", "svc/b/y.onnx"], {"svc/a": ("a-requirements", "a-docker"), "svc/b": ("b",)}),
        ([], ["svc/a/x.onnx", "shared/y.onnx"], {"svc/a": ("a-requirements", "a-docker")}),
        ([], ["models/y.onnx"], {}),
        (
            [deployed("onnxruntime", "==1.21.0", "Dockerfile")],
            ["svc/a/x.onnx", "svc/b/y.onnx"],
            {"svc/a": ("a-requirements", "a-docker", "docker"), "svc/b": ("b", "docker")},
        ),
        (
            [deployed("onnxruntime", "==1.21.0", "svc/c/requirements.txt")],
            ["svc/a/x.onnx"],
            {},
        ),
        (
            [deployed("onnxruntime", "==1.20.1", "svc/c/requirements.txt")],
            ["svc/a/x.onnx", "svc/b/y.onnx"],
            {"svc/a": ("a-requirements", "a-docker", "b"), "svc/b": ("b",)},
        ),
    ],
)
def test_models_of_each_deployed_folder(
    more: list[DeployedRuntime], models: list[str], expected: dict[str, tuple[str, ...]]
) -> None:
    """The runtimes of a folder apply to its models; those of a folder without models apply to models elsewhere."""
    targets = suggest_targets([*MONOREPO, *more], (), None, models=models)

    assert assign_targets(targets, models) == expected


def test_predictions_are_limited_to_the_models_of_the_folder(tmp_path: Path) -> None:
    """The comment of a target does not name the models of another folder."""
    save_model(tmp_path / "svc/a/x.onnx")
    save_model(tmp_path / "svc/b/y.onnx", ir=10, opset=21)
    models = ["svc/a/x.onnx", "svc/b/y.onnx"]
    targets = suggest_targets(MONOREPO[::2], predict_models(tmp_path, models, 1), None, models=models)

    assert [target.comments[-1] for target in targets] == [
        "Prediction: `svc/a/x.onnx` loads on onnxruntime 1.18.1.",
        "Prediction: `svc/b/y.onnx` loads on onnxruntime 1.20.1.",
    ]


@pytest.mark.parametrize(
    ("ir", "opset", "minors", "expected"),
    [
        (8, 15, 4, ""),
        (10, 15, 16, "1.18.0"),
        (8, 21, 16, "1.18.0"),
        (99, 28, 4, ""),
    ],
)
def test_minors_that_do_not_load_a_model_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ir: int, opset: int, minors: int, expected: str
) -> None:
    """The target starts at the first release that loads all models; if there is none, at the newest minor releases."""
    monkeypatch.setattr(targets, "SUGGESTED_MINORS", minors)
    save_model(tmp_path / "net.onnx", ir, opset)
    (target,) = suggest_targets((), predict_models(tmp_path, ["net.onnx"], 1), None)

    end = after_newest().removesuffix(".0")
    assert target.runtime == f"onnxruntime>={expected or newest_minors(minors)[0]},<{end}"
    assert ("does not load on" in target.comments[-1]) == (ir == 99)
    if expected:
        count = len([minor for minor in newest_minors(minors) if Version(minor) >= Version("1.18")])
        assert target.comments[0].startswith(f"The newest {count} minor releases for which onnxgate has support data")
        assert target.comments[0].endswith(". Older releases do not load all models.")
