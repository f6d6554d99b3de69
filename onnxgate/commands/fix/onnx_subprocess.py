"""ONNX's own C++ code, called in a process of its own: what it crashes on costs a repair, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.version_converter


def main(arguments: list[str]) -> None:
    """`infer GIVEN MADE` or `convert GIVEN MADE OPSET`; a message on standard output and status 1 where it fails."""
    what, given, made, *rest = arguments
    model = onnx.load(given, load_external_data=False)
    try:
        if what == "infer":
            model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        else:
            model = onnx.version_converter.convert_version(model, int(rest[0]))
    except Exception as error:  # noqa: BLE001 - it is said
        print(" ".join(str(error).split())[:500])
        sys.exit(1)
    Path(made).write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1:])
