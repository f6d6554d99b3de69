"""Measure the IR and opset limits of ONNX Runtime releases by really loading models, and write the support table.

    python tools/harvest_limits.py [--check] [RELEASE ...]

Each release is installed from its official wheel in a throw-away environment by `uv`, and a child process of it loads
one tiny model (a single Relu) per IR version, and per opset version of each domain. With releases named, only these
rows are measured again; `--check` compares instead of writing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import uv
from onnx import TensorProto, helper

TABLE = Path(__file__).parent.parent / "onnxgate" / "data" / "onnxruntime-limits.json"
DOMAINS = {
    "ai.onnx": range(7, 32),
    "ai.onnx.ml": range(1, 9),
    "ai.onnx.training": range(1, 4),
    "ai.onnx.preview.training": range(1, 4),
    "ai.onnx.preview": range(1, 4),
    "com.microsoft": range(1, 4),
}
IR_VERSIONS = range(3, 17)
# The newest Python that every wheel of a span of releases exists for.
PYTHONS = (((1, 15), "3.11"), ((1, 12), "3.10"), ((1, 8), "3.8"))
LOADER = """
import json, sys
import onnxruntime
onnxruntime.set_default_logger_severity(4)
loads = {}
for line in sys.stdin:
    name, path = line.rstrip("\\n").split("\\t")
    try:
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        loads[name] = True
    except Exception as error:
        loads[name] = False
print(json.dumps(loads))
"""


def model(ir_version: int, opsets: dict[str, int]) -> bytes:
    """One Relu over `(2,)` float32, stamped as asked."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=ir_version).SerializeToString()
    return made


def write_models(folder: Path) -> dict[str, Path]:
    """Every probe by name: `ir/10`, `ai.onnx.ml/3`."""
    probes = {f"ir/{ir}": model(ir, {"ai.onnx": 7}) for ir in IR_VERSIONS}
    for domain, versions in DOMAINS.items():
        base = {} if domain == "ai.onnx" else {"ai.onnx": 7}
        probes |= {f"{domain}/{v}": model(3, {**base, domain: v}) for v in versions}
    paths = {}
    for name, data in probes.items():
        paths[name] = folder / (name.replace("/", "-") + ".onnx")
        paths[name].write_bytes(data)
    return paths


def python_for(release: str) -> str:
    """The Python that the release is measured under."""
    minor = tuple(int(part) for part in release.split(".")[:2])
    return next(python for since, python in PYTHONS if minor >= since)


def install(release: str, folder: Path) -> Path:
    """A fresh environment with the release and the numpy that it takes; its interpreter."""
    minor = tuple(int(part) for part in release.split(".")[:2])
    numpy = "numpy" if minor >= (1, 19) else "numpy<2"
    env = folder / "env"
    python = env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    for words in (
        ["venv", "-q", "--python", python_for(release), str(env)],
        ["pip", "install", "-q", "--python", str(python), "--no-deps", f"onnxruntime=={release}"],
        ["pip", "install", "-q", "--python", str(python), "--only-binary", ":all:", numpy],
    ):
        subprocess.run([uv.find_uv_bin(), *words], check=True)
    return python


def measure(release: str) -> dict[str, object]:
    """The newest IR version and the newest opset per domain that the release loads; unlimited domains are left out."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_models(Path(folder))
        lines = "".join(f"{name}\t{path}\n" for name, path in paths.items())
        python = install(release, Path(folder))
        done = subprocess.run([python, "-I", "-c", LOADER], input=lines, capture_output=True, text=True, check=True)
    loads = json.loads(done.stdout.splitlines()[-1])
    row: dict[str, object] = {"ir": newest(release, "ir", IR_VERSIONS, loads), "opsets": {}}
    for domain, versions in DOMAINS.items():
        if not loads[f"{domain}/{versions[-1]}"]:
            row["opsets"][domain] = newest(release, domain, versions, loads)  # type: ignore[index]
    return row


def newest(release: str, name: str, versions: range, loads: dict[str, bool]) -> int:
    """The newest version that loads; what loads must be one unbroken run from the oldest."""
    taken = [version for version in versions if loads[f"{name}/{version}"]]
    if taken != list(versions)[: len(taken)] or not taken:
        raise SystemExit(f"onnxruntime {release}: {name} loads for {taken}, which is no unbroken range")
    return taken[-1]


def main() -> None:
    """Measure, then write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("releases", nargs="*")
    arguments = parser.parse_args()
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"engine": "onnxruntime", "releases": {}}
    old = dict(table["releases"])
    for release in arguments.releases or list(old):
        table["releases"][release] = measure(release)
        print(release, json.dumps(table["releases"][release]), flush=True)
    rows = sorted(table["releases"].items(), key=lambda row: [int(part) for part in row[0].split(".")])
    if arguments.check:
        sys.exit(dict(rows) != old)
    lines = ",\n".join(f"    {json.dumps(release)}: {json.dumps(row)}" for release, row in rows)
    TABLE.write_text(f'{{\n  "engine": "onnxruntime",\n  "releases": {{\n{lines}\n  }}\n}}\n', newline="\n")


if __name__ == "__main__":
    main()
