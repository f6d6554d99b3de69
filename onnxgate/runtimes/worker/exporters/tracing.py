"""PyTorch: what every node of the exported program computes, under the names that the exporter gives to values."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, List, Sequence

from . import eager, seeding
from .hearing import heard
from .recipe import Recipe, read_recipe
from .source import SourceError, load

Phase = Callable[[str], None]
Wire = Dict[str, Any]


def trace(job: Wire, phase: Phase) -> Wire:
    """Answer a `Trace` job with a `TraceResult`; what the user's code or the exporter says is inside it."""
    result: Wire = {"kind": "trace", "values": {}, "left_out": 0, "failure": None}
    with heard(job, result):
        _answer(job, result, phase)
    return result


def _answer(job: Wire, result: Wire, phase: Phase) -> None:
    phase("call of the source")
    seeding.seed()
    build = load(job["source"])
    seeding.seed()
    returned = build()
    recipe = read_recipe(returned, job["source"])
    recipe.model.eval()
    call = eager.Call.of(recipe.model, recipe.args, recipe.kwargs)
    phase("export")
    program = _program(job, recipe)
    phase("trace of case " + job["case"]["name"])
    _Tracing(job, result).run(program, call, recipe)


def _program(job: Wire, recipe: Recipe) -> Any:
    """The program as the exporter translates it: decomposed, each node named as the value that is made of it."""
    import torch

    asked: Dict[str, Any] = {} if job["opset"] is None else {"opset_version": job["opset"]}
    seeding.seed()
    exported: Any = torch.onnx.export(
        recipe.model,
        recipe.args,
        kwargs=recipe.kwargs,
        input_names=recipe.input_names,
        output_names=recipe.output_names,
        dynamic_shapes=recipe.dynamic_shapes,
        dynamo=True,
        verbose=False,
        **asked,
    )
    return exported.exported_program


class _Tracing:
    """Writes what nodes give, until the limit is reached."""

    def __init__(self, job: Wire, result: Wire) -> None:
        self._job = job
        self._result = result
        self._wanted = set(job["names"])
        self._left_bytes = job["limit_bytes"]

    def run(self, program: Any, call: eager.Call, recipe: Recipe) -> None:
        """Run the program on the case, node by node; nothing is held longer than the program needs it."""
        import torch

        module = _module(program)
        leaves = self._leaves(call, list(recipe.input_names or ()))
        renamed = dict(zip(_returned(program), self._job["outputs"]))  # noqa: B905 - new in Python 3.10
        note = self._note

        class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
            def run_node(self, node: Any) -> Any:
                value = super().run_node(node)
                if node.op == "call_function" and isinstance(value, torch.Tensor):
                    note(renamed.get(node.name, node.name), value)
                return value

        seeding.seed()
        with torch.no_grad():
            Interpreter(module).run(*leaves)

    def _leaves(self, call: eager.Call, names: Sequence[str]) -> List[Any]:
        """The arguments, flattened: the program's own inputs."""
        case, leaves = self._job["case"], list(call.leaves)
        reason = eager.reason_against(call, [case], names)
        if reason:
            raise SourceError(reason)
        paths = eager.in_source_order(case, names, len(call.tensors))
        for index, path in zip(call.tensors, paths):  # noqa: B905 - new in Python 3.10
            if path is not None:
                leaves[index] = eager.tensor_of(path, leaves[index])
        return leaves

    def _note(self, name: str, value: Any) -> None:
        size_bytes = value.numel() * value.element_size()
        if name not in self._wanted:
            return
        if size_bytes > self._left_bytes:
            self._result["left_out"] += 1
            return
        self._left_bytes -= size_bytes
        folder = os.path.join(self._job["output"], str(len(self._result["values"])))
        path = eager.save([value], folder)[0]
        if path is not None:
            self._result["values"][name] = path


def _module(program: Any) -> Any:
    """Without the checks that an input is like the example where this release can leave them out."""
    try:
        return program.module(check_guards=False)
    except TypeError:
        return program.module()


def _returned(program: Any) -> Iterator[str]:
    """The nodes whose values are the outputs; the exporter drops what is no tensor."""
    for each in program.graph_signature.output_specs:
        if each.kind.name == "USER_OUTPUT" and type(each.arg).__name__ == "TensorArgument":
            yield each.arg.name
