"""C++ functions of the onnx package, run in another process so that a crash fails only one repair."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.version_converter


def main(arguments: list[str]) -> None:
    """Run `infer INPUT OUTPUT` or `convert INPUT OUTPUT OPSET`; on failure, print a message and exit with 1."""
    action, source, output, *rest = arguments
    model = onnx.load(source, load_external_data=False)
    try:
        if action == "infer":
            model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        else:
            model = onnx.version_converter.convert_version(model, int(rest[0]))
    except Exception as error:  # noqa: BLE001 - it is printed
        print(" ".join(str(error).split())[:500])
        sys.exit(1)
    Path(output).write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1:])
