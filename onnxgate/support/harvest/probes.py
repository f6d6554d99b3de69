"""Tiny models that show what a release takes at most, and the limits that follow from which of them it loads.

A probe's name says what its model is stamped with: `ir/10`, `opset/ai.onnx.ml/3`, `unreleased/ai.onnx/27`,
`external/outside`. Whoever loads one of the `unreleased` ones must set `UNRELEASED` in the runtime's environment.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from onnxgate.support.tables.limits import ExternalData, Limits

if TYPE_CHECKING:
    from onnx import NodeProto

UNRELEASED_ENVIRONMENT = {"ALLOW_RELEASED_ONNX_OPSET_ONLY": "0"}
"""What has ONNX Runtime take opsets that it does not call released."""
IR_VERSIONS = range(3, 33)
OPSET_RANGES = {
    "ai.onnx": range(7, 64),
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
"""Domains that some release of ONNX Runtime limits; it takes every version of another one."""
PROBE_OPERATORS = {"ai.onnx": "Relu", "ai.onnx.ml": "Binarizer"}
"""An operator of each domain that ONNX releases, there since its first version. Without the limit an import that no
node uses is always taken, so that only a node tells how far the schemas go."""
PROBE_WEIGHTS = b"\0\0\x80?" * 2
"""Two float32 ones."""


class ProbeError(ValueError):
    """What was observed is no limit: not every version below a taken one is taken, or a control fails."""


@functools.cache
def make_limit_probes() -> Mapping[str, bytes]:
    """The models of all probes that are one file, by name."""
    probes = {f"ir/{ir}": _make_probe_model(ir, {"ai.onnx": 7}) for ir in IR_VERSIONS}
    for domain, versions in OPSET_RANGES.items():
        probes |= {f"opset/{domain}/{v}": _make_probe_model(3, {"ai.onnx": 7, domain: v}) for v in versions}
    for domain, operator in PROBE_OPERATORS.items():
        for v in OPSET_RANGES[domain]:
            probes[f"unreleased/{domain}/{v}"] = _make_probe_model(3, {"ai.onnx": 7, domain: v}, domain, operator)
    return probes


def write_probes(folder: Path) -> dict[str, Path]:
    """Make all probes below an empty folder, those with external data too as far as the system has links."""
    paths = {}
    for name, data in make_limit_probes().items():
        paths[name] = folder / "stamps" / (name.replace("/", "-") + ".onnx")
        paths[name].parent.mkdir(exist_ok=True)
        paths[name].write_bytes(data)
    for layout, lay in LAYOUT_WRITERS.items():
        with contextlib.suppress(OSError):  # no symbolic links here
            paths[f"external/{layout}"] = lay(_make_model_folder(folder / "external" / layout))
    return paths


def get_probe_environment(name: str) -> Mapping[str, str]:
    """What must be set where the probe is loaded."""
    return UNRELEASED_ENVIRONMENT if name.startswith("unreleased/") else {}


def derive_limits(loads: Mapping[str, bool]) -> Limits:
    """
    The limits of a release, from which probes it loads.

    Raises:
        ProbeError: it loads what no release with limits would.
    """
    opsets = {
        domain: _find_newest_loaded(f"opset/{domain}", versions, loads) for domain, versions in OPSET_RANGES.items()
    }
    limited = {domain: newest for domain, newest in opsets.items() if newest < OPSET_RANGES[domain][-1]}
    return Limits(
        ir=_find_newest_loaded("ir", IR_VERSIONS, loads),
        opsets=limited,
        dev_opsets={domain: newest for domain, newest in _find_unreleased_opsets(loads) if newest > limited[domain]},
        external_data=_derive_external_data(loads),
    )


def _find_unreleased_opsets(loads: Mapping[str, bool]) -> Iterator[tuple[str, int]]:
    for domain in PROBE_OPERATORS:
        if any(name.startswith(f"unreleased/{domain}/") for name in loads):
            yield domain, _find_newest_loaded(f"unreleased/{domain}", OPSET_RANGES[domain], loads)


def _find_newest_loaded(name: str, versions: range, loads: Mapping[str, bool]) -> int:
    """The newest version that is taken; what is must be one unbroken run from the oldest."""
    taken = [version for version in versions if loads[f"{name}/{version}"]]
    if taken != list(versions)[: len(taken)] or not taken:
        raise ProbeError(f"`{name}` is taken for {taken}, which is no unbroken range")
    return taken[-1]


def _derive_external_data(loads: Mapping[str, bool]) -> ExternalData | None:
    found = {layout: loads[f"external/{layout}"] for layout in LAYOUT_WRITERS if f"external/{layout}" in loads}
    if not found.keys() >= LAYOUT_WRITERS.keys():
        return None
    if not found["beside"] or found["missing"]:
        raise ProbeError("external data is not read, or not even from beside the model")
    return ExternalData(
        outside=found["outside"],
        link=found["link"],
        linked_model=found["linked-model"],
        absolute=found["absolute"],
    )


def _make_model_folder(folder: Path) -> Path:
    """The folder of one layout's model, with another one beside it."""
    (folder / "elsewhere").mkdir(parents=True)
    (folder / "home").mkdir()
    return folder / "home"


def _write_data_beside(home: Path) -> Path:
    (home / "w.bin").write_bytes(PROBE_WEIGHTS)
    return _write_model(home / "m.onnx", "w.bin")


def _write_without_data(home: Path) -> Path:
    return _write_model(home / "m.onnx", "w.bin")


def _write_data_outside(home: Path) -> Path:
    (home.parent / "elsewhere" / "w.bin").write_bytes(PROBE_WEIGHTS)
    return _write_model(home / "m.onnx", "../elsewhere/w.bin")


def _write_linked_data(home: Path) -> Path:
    (home.parent / "elsewhere" / "w.bin").write_bytes(PROBE_WEIGHTS)
    (home / "w.bin").symlink_to(Path("..", "elsewhere", "w.bin"))
    return _write_model(home / "m.onnx", "w.bin")


def _write_linked_model(home: Path) -> Path:
    """As a download cache has it: files that are named by their content, and links with the names."""
    _write_model(home.parent / "elsewhere" / "one", "w.bin")
    (home.parent / "elsewhere" / "other").write_bytes(PROBE_WEIGHTS)
    (home / "m.onnx").symlink_to(Path("..", "elsewhere", "one"))
    (home / "w.bin").symlink_to(Path("..", "elsewhere", "other"))
    return home / "m.onnx"


def _write_absolute_location(home: Path) -> Path:
    (home / "w.bin").write_bytes(PROBE_WEIGHTS)
    return _write_model(home / "m.onnx", str((home / "w.bin").resolve()))


LAYOUT_WRITERS: dict[str, Callable[[Path], Path]] = {
    "beside": _write_data_beside,
    "missing": _write_without_data,
    "outside": _write_data_outside,
    "link": _write_linked_data,
    "linked-model": _write_linked_model,
    "absolute": _write_absolute_location,
}
"""Where the data of a model can be; the first must load and the second must not, or nothing is learnt."""


def _make_probe_model(
    ir_version: int, opsets: Mapping[str, int], domain: str = "ai.onnx", operator: str = "Relu"
) -> bytes:
    node = helper.make_node(operator, ["x"], ["y"], domain="" if domain == "ai.onnx" else domain)
    return _serialize_model(ir_version, opsets, node)


def _serialize_model(ir_version: int, opsets: Mapping[str, int], node: NodeProto, location: str = "") -> bytes:
    """One node over `(2,)` float32, with weights `w` where they have a location."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    if location:
        weights = graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2])
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=ir_version).SerializeToString()
    return made


def _write_model(path: Path, location: str) -> Path:
    path.write_bytes(_serialize_model(7, {"ai.onnx": 7}, helper.make_node("Add", ["x", "w"], ["y"]), location))
    return path
