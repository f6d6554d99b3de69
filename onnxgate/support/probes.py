"""Probes: tiny models that are loaded to find the version limits of an ONNX Runtime release.

A probe's name contains its versions: `ir/10`, `opset/ai.onnx.ml/3`, `unreleased/ai.onnx/27`, `external/outside`.
Probes named `unreleased/…` must be loaded with `UNRELEASED_ENVIRONMENT` set.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from onnxgate.model.facts import DEFAULT_DOMAIN, model_domain
from onnxgate.support.limits import ExternalData, Limits

if TYPE_CHECKING:
    from onnx import NodeProto

UNRELEASED_ENVIRONMENT = {"ALLOW_RELEASED_ONNX_OPSET_ONLY": "0"}
"""Environment variables that make ONNX Runtime accept opsets that it does not consider released."""
IR_VERSIONS = range(3, 33)
OPSET_RANGES = {
    DEFAULT_DOMAIN: range(7, 64),
    "ai.onnx.ml": range(1, 17),
    "ai.onnx.training": range(1, 9),
    "ai.onnx.preview.training": range(1, 9),
    "ai.onnx.preview": range(1, 9),
    "com.microsoft": range(1, 9),
    "com.microsoft.experimental": range(1, 9),
    "com.microsoft.nchwc": range(1, 9),
    "com.ms.internal.nhwc": range(1, 64),
    "org.pytorch.aten": range(1, 9),
}
"""Opset versions to probe, by domain. For domains that are not listed, all releases accept any version."""
PROBE_OPERATORS = {DEFAULT_DOMAIN: "Relu", "ai.onnx.ml": "Binarizer"}
"""Operator with which unreleased opsets of a domain are probed, by domain; it exists in all versions of the domain.

If ONNX Runtime accepts unreleased opsets, it accepts any version of a domain that no node uses. A node is therefore
needed to find the newest supported version.
"""
PROBE_WEIGHTS = b"\0\0\x80?" * 2
"""Content of the external data file of a probe: two float32 values of 1."""


class ProbeError(ValueError):
    """Inconsistent results of probes: a version is rejected but a newer one is accepted, or a control probe failed."""


@functools.cache
def make_limit_probes() -> Mapping[str, bytes]:
    """Return the serialized probe models without external data, by probe name."""
    probes = {f"ir/{ir}": _make_probe_model(ir, {DEFAULT_DOMAIN: 7}) for ir in IR_VERSIONS}
    for domain, versions in OPSET_RANGES.items():
        probes |= {f"opset/{domain}/{v}": _make_probe_model(3, {DEFAULT_DOMAIN: 7, domain: v}) for v in versions}
    for domain, operator in PROBE_OPERATORS.items():
        for v in OPSET_RANGES[domain]:
            probes[f"unreleased/{domain}/{v}"] = _make_probe_model(3, {DEFAULT_DOMAIN: 7, domain: v}, domain, operator)
    return probes


def write_probes(folder: Path) -> dict[str, Path]:
    """Write all probe models into an empty folder, and return their paths by probe name.

    Probes with symbolic links are written only if the system supports such links.
    """
    paths = {}
    for name, data in make_limit_probes().items():
        paths[name] = folder / "versions" / (name.replace("/", "-") + ".onnx")
        paths[name].parent.mkdir(exist_ok=True)
        paths[name].write_bytes(data)
    for name, layout in DATA_LAYOUTS.items():
        with contextlib.suppress(OSError):  # the system has no symbolic links
            paths[f"external/{name}"] = layout.write(folder / "external" / name)
    return paths


def get_probe_environment(name: str) -> Mapping[str, str]:
    """Return the environment variables that must be set when the probe model is loaded."""
    return UNRELEASED_ENVIRONMENT if name.startswith("unreleased/") else {}


def derive_limits(loads: Mapping[str, bool]) -> Limits:
    """Return the version limits of a release, given for each probe model whether the release loads it.

    Raises:
        ProbeError: the results are inconsistent.
    """
    opsets = {
        domain: _find_newest_loaded(f"opset/{domain}", versions, loads) for domain, versions in OPSET_RANGES.items()
    }
    limited = {domain: newest for domain, newest in opsets.items() if newest < OPSET_RANGES[domain][-1]}
    unreleased = {
        domain: _find_newest_loaded(f"unreleased/{domain}", OPSET_RANGES[domain], loads)
        for domain in PROBE_OPERATORS
        if any(name.startswith(f"unreleased/{domain}/") for name in loads)
    }
    return Limits(
        ir=_find_newest_loaded("ir", IR_VERSIONS, loads),
        opsets=limited,
        dev_opsets={domain: newest for domain, newest in unreleased.items() if newest > limited[domain]},
        external_data=_derive_external_data(loads),
    )


def _find_newest_loaded(name: str, versions: range, loads: Mapping[str, bool]) -> int:
    """Return the newest version that a release accepts. All older versions must be accepted as well."""
    accepted = [version for version in versions if loads[f"{name}/{version}"]]
    if accepted != list(versions)[: len(accepted)] or not accepted:
        raise ProbeError(f"`{name}`: accepted versions must start at {versions[0]} and have no gaps: {accepted}")
    return accepted[-1]


def _derive_external_data(loads: Mapping[str, bool]) -> ExternalData | None:
    loaded = {layout: loads[f"external/{layout}"] for layout in DATA_LAYOUTS if f"external/{layout}" in loads}
    if not loaded.keys() >= DATA_LAYOUTS.keys():
        return None
    if not loaded["inside"] or loaded["missing"]:
        raise ProbeError(
            "the release did not read external data in the model's folder, or accepted missing external data"
        )
    return ExternalData(
        outside=loaded["outside"],
        link=loaded["link"],
        linked_model=loaded["linked-model"],
        absolute=loaded["absolute"],
    )


@dataclass(frozen=True, slots=True)
class DataLayoutProbe:
    """Locations of a probe model and its data: `home` is the model's folder, `elsewhere` a folder next to it."""

    data: str = "home/w.bin"  # "": no data
    model: str = "home/m.onnx"
    location: str = "w.bin"  # in the model; "": the absolute path of the data
    links: tuple[tuple[str, str], ...] = ()  # name in `home` -> file

    def write(self, folder: Path) -> Path:
        """Write the probe model and its data into a new folder, and return the model's path."""
        home = folder / "home"
        for path in (home, folder / "elsewhere"):
            path.mkdir(parents=True)
        if self.data:
            (folder / self.data).write_bytes(PROBE_WEIGHTS)
        node = helper.make_node("Add", ["x", "w"], ["y"])
        location = self.location or str((folder / self.data).resolve())
        (folder / self.model).write_bytes(_serialize_model(7, {DEFAULT_DOMAIN: 7}, node, location))
        for name, file in self.links:
            (home / name).symlink_to(Path("..", file))
        return home / "m.onnx"


DATA_LAYOUTS = {
    "inside": DataLayoutProbe(),
    "missing": DataLayoutProbe(data=""),
    "outside": DataLayoutProbe(data="elsewhere/w.bin", location="../elsewhere/w.bin"),
    "link": DataLayoutProbe(data="elsewhere/w.bin", links=(("w.bin", "elsewhere/w.bin"),)),
    # The layout of download caches: files named by content, and links with the real names.
    "linked-model": DataLayoutProbe(
        data="elsewhere/other",
        model="elsewhere/one",
        links=(("m.onnx", "elsewhere/one"), ("w.bin", "elsewhere/other")),
    ),
    "absolute": DataLayoutProbe(location=""),
}
"""Probes for the locations from which a release reads external data, by name.

As a control, `inside` must load and `missing` must not."""


def _make_probe_model(
    ir_version: int, opsets: Mapping[str, int], domain: str = DEFAULT_DOMAIN, operator: str = "Relu"
) -> bytes:
    node = helper.make_node(operator, ["x"], ["y"], domain=model_domain(domain))
    return _serialize_model(ir_version, opsets, node)


def _serialize_model(ir_version: int, opsets: Mapping[str, int], node: NodeProto, location: str = "") -> bytes:
    """Return a serialized model with one node and float32 values of shape `(2,)`.

    If `location` is given, the weights `w` are external data at this location.
    """
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    if location:
        weights = graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2])
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)
    imports = [helper.make_opsetid(model_domain(domain), v) for domain, v in opsets.items()]
    serialized: bytes = helper.make_model(graph, opset_imports=imports, ir_version=ir_version).SerializeToString()
    return serialized
