"""The rule `branch-not-run`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, mask_numbers
from onnxgate.core.text import join_quoted, pluralize
from onnxgate.evidence.runtime import ModelRuns, UnreachedBranch
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import format_sizes


@rule(ModelRuns, "branch-not-run", level=Level.NOTE, since="0.1.0")
def branch_not_run(subject: ModelRuns) -> Iterator[Hit]:
    """
    No set of inputs ran a branch of an `If` node or the body of a `Loop`.

    ## Why it matters
    Errors in operators of this branch are not found. onnxgate evaluates the conditions of these nodes, and generates
    inputs for their branches. If a condition is computed from data, only the branch that the newest runtime took is
    known. Nothing is reported for conditions that change in a loop, or for branches that no value and no size chooses.

    ## What to do
    Provide inputs that choose the branch: `inputs = "samples/*.npz"`, or set `sizes`.
    """
    groups: dict[str, list[UnreachedBranch]] = {}
    for branch in subject.unreached:
        groups.setdefault(_describe_choice(branch), []).append(branch)
    for choice, branches in groups.items():
        first, others = branches[0], len(branches) - 1
        more = f" and {pluralize(others, 'other branch', 'other branches')}" if others else ""
        part = "body" if first.branch == "body" else f"{first.branch} branch"
        yield Hit(
            first.place or subject.place,
            f"the {part} of {first.words}{more} did not run; {choice}",
            model=subject.model,
            node=first.node,
            fix=_suggest_fix(first),
            on=OnRuntime(subject.runtime),
            identity=f"{first.branch} {mask_numbers(first.node)} {choice}",
        )


def _describe_choice(branch: UnreachedBranch) -> str:
    if branch.values:
        return f"{_format_values(branch)} {'chooses' if len(branch.values) == 1 else 'choose'} it"
    if branch.sizes:
        return f"{format_sizes(branch.sizes)} {'chooses' if len(branch.sizes) == 1 else 'choose'} it"
    if not branch.inputs:
        return "its condition is computed from data, and no tested input chooses it"
    inputs = f"{'input' if len(branch.inputs) == 1 else 'inputs'} {join_quoted(branch.inputs)}"
    return f"it depends on {inputs}, and no tested value chooses it"


def _format_values(branch: UnreachedBranch) -> str:
    return " and ".join(f"input `{name}` = {str(value).lower()}" for name, value in branch.values.items())


def _suggest_fix(branch: UnreachedBranch) -> str:
    if branch.values or not branch.sizes:
        return 'add inputs that choose this branch: `inputs = "samples/*.npz"`'
    sizes = ", ".join(f'"{axis}" = [{size}]' for axis, size in branch.sizes.items())
    return f"if the model supports these sizes, set `sizes = {{ {sizes} }}`"
