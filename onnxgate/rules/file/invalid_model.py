"""The rule `invalid-model`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from onnxgate.core.advice import Action, ConfigEdit, Repair, Way
from onnxgate.core.findings import Hit, Level, decided_by_runs, follows_from, mask_numbers
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule

RULES_BY_SUBJECT = {
    "operator": ("unknown-operator",),
    "domain": ("unknown-domain",),
    "deprecated": ("deprecated-operator",),
    "attribute": ("attribute-unsupported",),
    "arguments": ("attribute-unsupported",),
    "type": ("type-mismatch",),
}
"""What a fault of a model is about (`ModelFault.about`) -> rules of the support stage that also report it."""

DEFAULT_FIX = (Action("export the model again; if the new file has the same problem, export at another opset"),)
ACCEPTED_FIX = ConfigEdit(
    "ignore the finding if no other engine must load the model, because ONNX Runtime accepts the model"
)
_FIXES: Mapping[str, tuple[Way, ...]] = {
    "output shape": (Repair("", "to add the inferred shape"), Action("export the model with this shape")),
    "input shape": (Action("export the model so that it declares the rank of this input and names its dynamic axes"),),
}
"""Topic of a fault (`ModelFault.about`) -> its fix; repairs are completed with the path of the model."""

_EXPORT = Action("export the model again")
_REMOVE = Action("remove the function if no node calls it")
_FIXES_BY_TEXT: Mapping[str, tuple[Way, ...]] = {
    "two nodes are named": (Action("rename one of the nodes"), Action("remove its name, which is optional")),
    "must be topologically sorted": (
        Action("sort the nodes with `onnx_ir.passes.common.TopologicalSortPass`"),
        Action("add the node that produces the missing value"),
    ),
    "which no node of it computes": (_REMOVE, Action("remove the output from the function and its calls")),
    "an input or output without a name": (_REMOVE, Action("give it a name")),
    "but is called with": (Action("drop the extra arguments of the call"), Action("add them to the function")),
    "but the function imports": (
        Action("clear the domain `ai.onnx` in the function, both in its nodes and in its imports"),
    ),
    "which must be empty in subgraphs": (Action("clear the domain of this node"),),
    "neither outputs nor nodes": (Action("declare an output of the model"),),
    "Field 'type' of 'value_info'": (Repair("", "to add the inferred type"), _EXPORT),
    "Incompatible dimensions": (Action("correct the shapes of the inputs and weights of the node"), _EXPORT),
    "existing shape differ": (
        Repair("", "if an output has this shape", ("--rule", "output-shape-wrong")),
        Action("run `del model.graph.value_info[:]` and save the model"),
        _EXPORT,
    ),
}
"""Text in the message of a fault -> its fix."""


@rule(ModelFile, "invalid-model", level=Level.ERROR, since="0.1.0", blocks_run=False)
def invalid_model(subject: ModelFile) -> Iterator[Hit]:
    """
    A model violates the ONNX specification.

    ## Why it matters
    Runtimes may refuse the model or interpret it differently. If all required releases are known to load the model, or
    if all required runtimes run it, this is a warning.

    ## What to do
    - Inspect the node shown in the finding. Usually, its operator needs a newer opset, or the node was edited manually.
    - Export the model again, if necessary at a different opset.
    - Run `onnxgate fix MODEL` to fill in missing types and shapes.
    - To require valid models even if all runtimes accept them, set `invalid-model = "error"` in `[rules]`.
    """
    fault = subject.graph.invalid
    if fault is None:
        return
    fix = next((fix for text, fix in _FIXES_BY_TEXT.items() if text in fault.message), DEFAULT_FIX)
    fix = _FIXES.get(fault.about, fix) + ((ACCEPTED_FIX,) if fault.about == "accepted" else ())
    named = f"node `{fault.node}`: " if fault.node else ""
    prefixes = tuple(f"{accepted}{end}" for accepted in fault.accepted_by for end in (" ", "."))
    is_accepted = [runtime.startswith(prefixes) for runtime in subject.runtimes]
    accepted = fault.harmless or (bool(is_accepted) and all(is_accepted))
    yield Hit(
        subject.graph.place or subject.place,
        f"is not valid ONNX: {named}{fault.message}",
        model=subject.path,
        node=fault.node,
        fix=tuple(structs.replace(way, model=subject.path) if isinstance(way, Repair) else way for way in fix),
        level=Level.WARNING if accepted else None,
        relations=(
            *follows_from(*RULES_BY_SUBJECT.get(fault.about, ())),
            *(() if accepted else (decided_by_runs(subject.runtimes),)),
        ),
        identity=fault.about or mask_numbers(fault.node),
    )
