"""Export models from the scripts of a project, without paths of the exporting machine in them."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import runpy
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

OPSET = 18
IR_VERSION = 10
"""The newest IR version that all targets of the projects support. ONNX Runtime 1.18 has the lowest limit."""
STACK_TRACE = "pkg.torch.onnx.stack_trace"
FRAME = re.compile(r'File "([^"]+)"')


Edits = Sequence[tuple[str, str]]
"""Pairs of texts: the current text of a script, and the text that it had at export time."""


def export(root: Path, script: Path, edits: Edits = ()) -> onnx.ModelProto:
    """Export the result of `build` in `script`, a path below `root`, after reverting `edits`."""
    with _copied(root, script) as (scratch, copy), _importable(copy):
        _edit(copy, edits)
        build = runpy.run_path(str(copy), run_name=copy.stem)["build"]
        return portable(_torch_export(build()), scratch)


def run_command(root: Path, script: Path) -> onnx.ModelProto:
    """Run a script that exports a model: `python SCRIPT --out FILE`."""
    with _copied(root, script) as (scratch, copy), _importable(copy):
        out = scratch / "model.onnx"
        arguments, sys.argv = sys.argv, [str(copy), "--out", str(out)]
        try:
            runpy.run_path(str(copy), run_name="__main__")
        finally:
            sys.argv = arguments
        return portable(onnx.load(out), scratch)


def portable(model: onnx.ModelProto, root: Path) -> onnx.ModelProto:
    """Make the paths in a model's stack traces relative to `root` or to their package folder."""
    model.ir_version = min(model.ir_version, IR_VERSION)
    for node in model.graph.node:
        for entry in node.metadata_props:
            if entry.key == STACK_TRACE:
                entry.value = FRAME.sub(lambda frame: f'File "{_relative(frame[1], root)}"', entry.value)
    return model


def _relative(path: str, root: Path) -> str:
    packaged = re.split(r"/(?:site|dist)-packages/", path)[-1]
    return packaged if packaged != path else path.removeprefix(f"{root}/")


@contextlib.contextmanager
def _copied(root: Path, script: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a folder with copies of only the script and its sibling files, at their paths relative to `root`."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder).resolve()
        shutil.copytree((root / script).parent, (scratch / script).parent)
        yield scratch, scratch / script


def _edit(script: Path, edits: Edits) -> None:
    text = script.read_text(encoding="utf-8")
    for now, then in edits:
        if now not in text:
            raise ValueError(f"`{script.name}` no longer contains `{now}`")
        text = text.replace(now, then)
    script.write_text(text, encoding="utf-8")


def _torch_export(built: dict[str, object]) -> onnx.ModelProto:
    import torch

    program = torch.onnx.export(
        built["model"],
        built["args"],
        kwargs=built.get("kwargs"),
        input_names=built["input_names"],
        output_names=built["output_names"],
        dynamic_shapes=built.get("dynamic_shapes"),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    return onnx.ModelProto.FromString(program.model_proto.SerializeToString())


@contextlib.contextmanager
def _importable(script: Path) -> Iterator[None]:
    """Let `script` import its sibling files, without output or cached modules, as in a separate process."""
    sys.path.insert(0, str(script.resolve().parent))
    known = set(sys.modules)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        sys.path.pop(0)
        for name in [name for name in sys.modules if name not in known and _lies_beside(name, script)]:
            del sys.modules[name]


def _lies_beside(name: str, script: Path) -> bool:
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and Path(file).resolve().parent == script.resolve().parent
