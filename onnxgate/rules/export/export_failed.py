"""The rule `export-failed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.export import Reexport
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule

# By the class of the error. Source: messages of torch 2.13.
_FIXES = {
    "GuardOnDataDependentSymNode": "decide by `torch.where` or `torch.cond`, or by what does not depend on values",
    "DispatchError": "write it with operations that ONNX has, or export by a `command` with its own translation",
    "ModuleNotFoundError": "install it in the toolchain, or name an environment that has it as `toolchain.python`",
}


@rule(Reexport, "export-failed", level=Level.ERROR, since="0.1.0")
def export_failed(subject: Reexport) -> Iterator[Hit]:
    """
    A model cannot be exported from its source any more.

    ## Why it matters
    The committed file is a leftover: nobody can make it again, and no change of the source will ever reach it.

    ## What to do
    Correct the line that is shown. A callable named by `source` takes nothing and returns `(module, args)`, or a
    mapping with `model`, `args`, `kwargs`, `input_names`, `output_names` and `dynamic_shapes`. A `command` ends with
    exit status 0 and leaves the model at `{output}`. Either runs under the interpreter of `[toolchain]`, in the
    config's folder.
    """
    if said := _how(subject):
        yield Hit(
            subject.place,
            f"export by `{subject.source}` {said}",
            model=subject.model,
            fix=_fix(subject),
        )


def _how(subject: Reexport) -> str:
    if subject.failure:
        return f"failed: {subject.failure.type}: {subject.failure.text}"
    if subject.timed_out_s:
        return f"did not end within {subject.timed_out_s:g} s"
    return f"crashed: {subject.crashed}" if subject.crashed else ""


def _fix(subject: Reexport) -> str:
    if subject.timed_out_s:
        return "make it faster, or raise `time-s` of `[limits]`"
    if subject.failure is None:
        return f"run `{subject.source}` by itself to see where it ends"
    if subject.failure.memory:
        return "make it smaller, or raise `memory-mib` of `[limits]`"
    fallback = "correct that line" if subject.failure.source else "correct the source, or its entry in the config"
    return _FIXES.get(subject.failure.type, fallback)
