"""Limits derived from the probes that load."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from onnxgate.support import probes
from onnxgate.support.limits import ExternalData, Limits

LINKS = pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege there")
NEWEST = {"ai.onnx": 26, "ai.onnx.ml": 5, "com.microsoft": 1}
REFUSED = ("external/missing", "external/outside", "external/link")


def loads(**changed: bool) -> dict[str, bool]:
    """Return the loads of a release that supports IR 13, the opsets of `NEWEST` (27 unreleased) and other domains."""
    names = [*probes.make_limit_probes(), *(f"external/{layout}" for layout in probes.DATA_LAYOUTS)]
    return {name: _loads(name) for name in names} | {name.replace("_", "/"): loaded for name, loaded in changed.items()}


def _loads(name: str) -> bool:
    kind, *domain, version = name.split("/")
    if kind == "external":
        return name not in REFUSED
    if kind == "ir":
        return int(version) <= 13
    newest = {**NEWEST, "ai.onnx": 27} if kind == "unreleased" else NEWEST
    return int(version) <= newest.get(domain[0], int(version))


def test_limits_are_the_newest_that_load() -> None:
    """A domain is not limited if every version loads; an unreleased opset is listed only if it is newer."""
    policy = ExternalData(outside=False, link=False, linked_model=True, absolute=True)

    assert Limits(13, NEWEST, {"ai.onnx": 27}, policy) == probes.derive_limits(loads())


def test_missing_probes_are_not_measured() -> None:
    """Limits whose probes did not run stay unset, because symbolic links or the variable may be unavailable."""
    partial = {
        name: loaded for name, loaded in loads().items() if name.startswith(("ir/", "opset/", "external/inside"))
    }

    assert Limits(13, NEWEST) == probes.derive_limits(partial)


@pytest.mark.parametrize(
    "problem",
    [
        {"ir_7": False},
        {"opset_ai.onnx_7": False},
        {"opset_ai.onnx_30": True},
        {"unreleased_ai.onnx_12": False},
        {"external_inside": False},
        {"external_missing": True},
        {f"ir_{version}": False for version in probes.IR_VERSIONS},
    ],
    ids=lambda problem: next(iter(problem)),
)
def test_implausible_limits_are_rejected(problem: dict[str, bool]) -> None:
    """A gap in a range, and external data that never or always loads, are reported as wrong measurements."""
    with pytest.raises(probes.ProbeError):
        probes.derive_limits(loads(**problem))


def test_probes_have_the_versions_in_their_names() -> None:
    """Each is a valid model, and an `unreleased` one has a node of its domain."""
    for name, data in probes.make_limit_probes().items():
        kind, *domain, version = name.split("/")
        model = onnx.load_model_from_string(data)
        opsets = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
        stamped = model.ir_version if kind == "ir" else opsets[domain[0]]

        assert int(version) == stamped
        if kind == "unreleased":
            assert domain == [model.graph.node[0].domain or "ai.onnx"]


@LINKS
def test_layouts_match_their_names(tmp_path: Path) -> None:
    """Each layout leads to two ones, except the one without data."""
    paths = probes.write_probes(tmp_path)
    actual = {}
    for layout in probes.DATA_LAYOUTS:
        model = paths[f"external/{layout}"]
        (tensor,) = onnx.load(model, load_external_data=False).graph.initializer
        location = Path(tensor.external_data[0].value)
        data = model.parent / location
        content = data.read_bytes() if data.exists() else b""
        outside = not data.resolve().is_relative_to(model.parent)
        actual[layout] = (
            content == probes.PROBE_WEIGHTS,
            location.is_absolute(),
            outside,
            model.is_symlink(),
            data.is_symlink(),
        )

    assert {
        "inside": (True, False, False, False, False),
        "missing": (False, False, False, False, False),
        "outside": (True, False, True, False, False),
        "link": (True, False, True, False, True),
        "linked-model": (True, False, True, True, True),
        "absolute": (True, True, False, False, False),
    } == actual


def test_a_system_without_links_leaves_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without symbolic links, the other probes are still written."""

    def refuse(*_: object) -> None:
        raise OSError(1314, "a required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    paths = probes.write_probes(tmp_path)

    assert {"inside", "missing", "outside", "absolute"} == {
        name.removeprefix("external/") for name in paths if name.startswith("external/")
    }
    assert paths.keys() >= probes.make_limit_probes().keys()


def test_only_unreleased_opsets_need_an_environment() -> None:
    """Only probes of unreleased opsets set the environment variable, which would remove the limits of others."""
    needing = {name.partition("/")[0] for name in probes.make_limit_probes() if probes.get_probe_environment(name)}

    assert needing == {"unreleased"}
