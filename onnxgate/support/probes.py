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

from onnxgate.support.limits import ExternalData, Limits

if TYPE_CHECKING:
    from onnx import NodeProto

UNRELEASED = {"ALLOW_RELEASED_ONNX_OPSET_ONLY": "0"}
"""What has ONNX Runtime take opsets that it does not call released."""
IR_VERSIONS = range(3, 33)
OPSETS = {
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
OPERATORS = {"ai.onnx": "Relu", "ai.onnx.ml": "Binarizer"}
"""An operator of each domain that ONNX releases, there since its first version. Without the limit an import that no
node uses is always taken, so that only a node tells how far the schemas go."""
WEIGHTS = b"\0\0\x80?" * 2
"""Two float32 ones."""


class ProbeError(ValueError):
    """What was observed is no limit: not every version below a taken one is taken, or a control fails."""


@functools.cache
def limit_probes() -> Mapping[str, bytes]:
    """The models of all probes that are one file, by name."""
    probes = {f"ir/{ir}": _model(ir, {"ai.onnx": 7}) for ir in IR_VERSIONS}
    for domain, versions in OPSETS.items():
        probes |= {f"opset/{domain}/{v}": _model(3, {"ai.onnx": 7, domain: v}) for v in versions}
    for domain, operator in OPERATORS.items():
        for v in OPSETS[domain]:
            probes[f"unreleased/{domain}/{v}"] = _model(3, {"ai.onnx": 7, domain: v}, domain, operator)
    return probes


def write(folder: Path) -> dict[str, Path]:
    """Make all probes below an empty folder, those with external data too as far as the system has links."""
    paths = {}
    for name, data in limit_probes().items():
        paths[name] = folder / "stamps" / (name.replace("/", "-") + ".onnx")
        paths[name].parent.mkdir(exist_ok=True)
        paths[name].write_bytes(data)
    for layout, lay in LAYOUTS.items():
        with contextlib.suppress(OSError):  # no symbolic links here
            paths[f"external/{layout}"] = lay(_home(folder / "external" / layout))
    return paths


def environment_of(name: str) -> Mapping[str, str]:
    """What must be set where the probe is loaded."""
    return UNRELEASED if name.startswith("unreleased/") else {}


def limits_from(loads: Mapping[str, bool]) -> Limits:
    """
    The limits of a release, from which probes it loads.

    Raises:
        ProbeError: it loads what no release with limits would.
    """
    opsets = {domain: _newest(f"opset/{domain}", versions, loads) for domain, versions in OPSETS.items()}
    limited = {domain: newest for domain, newest in opsets.items() if newest < OPSETS[domain][-1]}
    return Limits(
        ir=_newest("ir", IR_VERSIONS, loads),
        opsets=limited,
        dev_opsets={domain: newest for domain, newest in _unreleased(loads) if newest > limited[domain]},
        external_data=_external_data(loads),
    )


def _unreleased(loads: Mapping[str, bool]) -> Iterator[tuple[str, int]]:
    for domain in OPERATORS:
        if any(name.startswith(f"unreleased/{domain}/") for name in loads):
            yield domain, _newest(f"unreleased/{domain}", OPSETS[domain], loads)


def _newest(name: str, versions: range, loads: Mapping[str, bool]) -> int:
    """The newest version that is taken; what is must be one unbroken run from the oldest."""
    taken = [version for version in versions if loads[f"{name}/{version}"]]
    if taken != list(versions)[: len(taken)] or not taken:
        raise ProbeError(f"`{name}` is taken for {taken}, which is no unbroken range")
    return taken[-1]


def _external_data(loads: Mapping[str, bool]) -> ExternalData | None:
    found = {layout: loads[f"external/{layout}"] for layout in LAYOUTS if f"external/{layout}" in loads}
    if not found.keys() >= LAYOUTS.keys():
        return None
    if not found["beside"] or found["missing"]:
        raise ProbeError("external data is not read, or not even from beside the model")
    return ExternalData(
        outside=found["outside"],
        link=found["link"],
        linked_model=found["linked-model"],
        absolute=found["absolute"],
    )


def _home(folder: Path) -> Path:
    """The folder of one layout's model, with another one beside it."""
    (folder / "elsewhere").mkdir(parents=True)
    (folder / "home").mkdir()
    return folder / "home"


def _beside(home: Path) -> Path:
    (home / "w.bin").write_bytes(WEIGHTS)
    return _put(home / "m.onnx", "w.bin")


def _missing(home: Path) -> Path:
    return _put(home / "m.onnx", "w.bin")


def _outside(home: Path) -> Path:
    (home.parent / "elsewhere" / "w.bin").write_bytes(WEIGHTS)
    return _put(home / "m.onnx", "../elsewhere/w.bin")


def _link(home: Path) -> Path:
    (home.parent / "elsewhere" / "w.bin").write_bytes(WEIGHTS)
    (home / "w.bin").symlink_to(Path("..", "elsewhere", "w.bin"))
    return _put(home / "m.onnx", "w.bin")


def _linked_model(home: Path) -> Path:
    """As a download cache has it: files that are named by their content, and links with the names."""
    _put(home.parent / "elsewhere" / "one", "w.bin")
    (home.parent / "elsewhere" / "other").write_bytes(WEIGHTS)
    (home / "m.onnx").symlink_to(Path("..", "elsewhere", "one"))
    (home / "w.bin").symlink_to(Path("..", "elsewhere", "other"))
    return home / "m.onnx"


def _absolute(home: Path) -> Path:
    (home / "w.bin").write_bytes(WEIGHTS)
    return _put(home / "m.onnx", str((home / "w.bin").resolve()))


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "beside": _beside,
    "missing": _missing,
    "outside": _outside,
    "link": _link,
    "linked-model": _linked_model,
    "absolute": _absolute,
}
"""Where the data of a model can be; the first must load and the second must not, or nothing is learnt."""


def _model(ir_version: int, opsets: Mapping[str, int], domain: str = "ai.onnx", operator: str = "Relu") -> bytes:
    from onnx import helper

    node = helper.make_node(operator, ["x"], ["y"], domain="" if domain == "ai.onnx" else domain)
    return _stamped(ir_version, opsets, node)


def _stamped(ir_version: int, opsets: Mapping[str, int], node: NodeProto, location: str = "") -> bytes:
    """One node over `(2,)` float32, with weights `w` where they have a location."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    if location:
        weights = graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2])
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=ir_version).SerializeToString()
    return made


def _put(path: Path, location: str) -> Path:
    from onnx import helper

    path.write_bytes(_stamped(7, {"ai.onnx": 7}, helper.make_node("Add", ["x", "w"], ["y"]), location))
    return path
