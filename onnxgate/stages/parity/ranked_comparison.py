"""Compare ranked outputs that differ element by element: as sets of items, with help of runs on nearly equal inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.core.report import RATIO_METRICS
from onnxgate.core.text import join_quoted, pluralize
from onnxgate.evidence.parity import CHOSEN, Difference, Figure
from onnxgate.numerics.items import ItemBound, count_unexplained, find_layout
from onnxgate.numerics.ranking import NOISES, ItemAgreement, Rerun, compare_items
from onnxgate.numerics.streams import load_array
from onnxgate.numerics.tolerance import choose_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.model.ranked_outputs import RankedOutputs
    from onnxgate.stages.parity.output_comparison import ParityModel

    Outputs = Mapping[str, NDArray[Any]]

ILL_CONDITIONED = "ill-conditioned "
"""Start of the cause of an incomplete check of outputs that rounding errors determine; their names follow."""
UNSTABLE = "unstable "
"""Start of the cause of a note about items that were not compared; the names of the outputs follow."""
Paths = Mapping[str, str]  # output -> path of its .npy file
RunNearby = Callable[[str, str, str, int], Sequence[Paths]]
"""Returns runs of a case on a runtime at an optimization level. The last argument is the level of noise."""


@dataclass(slots=True)
class RankedComparison:
    """Comparison of the ranked outputs of one model. `notes` describe the items that were not compared."""

    model: ParityModel
    run_nearby: RunNearby | None
    notes: dict[str, str] = field(default_factory=dict)  # notes -> cause
    hollow: dict[str, str] = field(default_factory=dict)  # reasons why almost no item could be compared -> cause

    def settle(
        self, runtime: str, differences: Sequence[Difference], candidate: Paths, reference: Paths
    ) -> list[Difference]:
        """Replace the differences between ranked outputs of one case and level that do not agree by position."""
        settled = {difference.output: difference for difference in differences}
        for ranked in self.model.ranked:
            names = [name for name in ranked.axes if name in settled and name in candidate and name in reference]
            if all(settled[name].agrees for name in names):
                continue
            ours = {name: load_array(candidate[name]) for name in names}
            theirs = {name: load_array(reference[name]) for name in names}
            by_name = {name: settled[name] for name in names}
            settled |= self._settle_group(ranked, runtime, by_name, ours, theirs)
        return [settled[difference.output] for difference in differences]

    def _settle_group(
        self, ranked: RankedOutputs, runtime: str, differences: dict[str, Difference], ours: Outputs, theirs: Outputs
    ) -> dict[str, Difference]:
        first = next(iter(differences.values()))

        def rerun(level: int) -> Sequence[Outputs]:
            run_nearby = self.run_nearby
            runs = run_nearby(runtime, first.optimization, first.case, level) if run_nearby is not None else ()
            return [{name: load_array(run[name]) for name in differences if name in run} for run in runs]

        bounds = {name: self._choose_bound(name, theirs[name]) for name in differences}
        layout = None if ranked.positional else find_layout(theirs, ranked.axes)
        if layout is not None:
            layout = replace(layout, is_ordered=ranked.is_ordered)
        agreement = compare_items(layout, ours, theirs, bounds, rerun) if layout is not None else None
        if layout is None or agreement is None:
            return self._settle_elements(differences, ours, theirs, bounds, rerun)
        if agreement.wrong and any(difference.metric in RATIO_METRICS for difference in differences.values()):
            return {}  # a quantized model may move all items
        self._note(layout.outputs, agreement)
        return {name: _replace_difference(differences[name], agreement) for name in layout.outputs}

    def _settle_elements(
        self,
        differences: Mapping[str, Difference],
        ours: Outputs,
        theirs: Outputs,
        bounds: Mapping[str, ItemBound],
        rerun: Rerun,
    ) -> dict[str, Difference]:
        """Accept an output whose differing elements depend on rounding errors; mark integers that differ."""
        settled = {}
        for name, difference in differences.items():
            if difference.agrees or difference.metric not in ("mismatched elements", "worst_abs"):
                continue
            runs = [run[name] for level in range(len(NOISES)) for run in rerun(level) if name in run]
            # Integers may flip independently of each other, but one run must explain all other elements.
            samples = [runs] if difference.metric == "mismatched elements" else [[run] for run in runs] or [[]]
            counts = (count_unexplained(ours[name], theirs[name], bounds[name], sample) for sample in samples)
            left, differing = min(counts)
            if left and difference.metric == "mismatched elements":
                settled[name] = msgspec.structs.replace(difference, note=CHOSEN)
            if not left:
                elements = f"{differing} of {ours[name].size} elements of output `{name}`"
                self.notes[f"{elements} change with rounding errors and were not compared"] = ""
                settled[name] = msgspec.structs.replace(
                    difference, agrees=True, value=0.0, detail="", figures=(_unstable(differing),)
                )
        return settled

    def _choose_bound(self, output: str, reference: NDArray[Any]) -> ItemBound:
        model = self.model
        half = model.comparability.half
        bound = choose_bound(model.tolerance, model.locked, output, reference.dtype, half=half, noise=model.noise)
        return ItemBound(bound.rtol, bound.atol, bound.of_largest)

    def _note(self, outputs: Sequence[str], agreement: ItemAgreement) -> None:
        """Note the unstable items, unless stable items differ: the finding describes these."""
        if agreement.wrong:
            return
        of = f"output{'s' if len(outputs) > 1 else ''} {join_quoted(outputs)}"
        if agreement.is_hollow:
            verb = "are" if len(outputs) > 1 else "is"
            reason = "rounding errors decide which items are selected, so they could not be compared"
            self.hollow[f"{of} {verb} ill-conditioned: {reason}"] = f"{ILL_CONDITIONED}{' '.join(outputs)}"
        elif agreement.unstable:
            score = "" if agreement.top_score is None else f" (scores up to {agreement.top_score:.3g})"
            self.notes[
                f"{agreement.unstable} of {pluralize(agreement.items, 'item')} of {of} change with rounding errors"
                f"{score} and were not compared"
            ] = f"{UNSTABLE}{' '.join(outputs)}"


def _replace_difference(difference: Difference, agreement: ItemAgreement) -> Difference:
    """Return the result for one output: an output without differing stable items agrees."""
    figures = (Figure(metric="items", value=float(agreement.items)), _unstable(agreement.unstable))
    if difference.output in agreement.differing:
        values = {"agrees": False, "metric": "differing items", "value": float(agreement.wrong), "bound": 0.0}
        detail = f"{agreement.detail}; {agreement.wrong} of {agreement.items} items differ"
        return msgspec.structs.replace(difference, **values, detail=detail, figures=figures)
    value, bound = agreement.worst[difference.output]
    values = {"agrees": True, "metric": "worst_abs", "value": value, "bound": bound}
    return msgspec.structs.replace(difference, **values, detail="", figures=figures)


def _unstable(count: int) -> Figure:
    return Figure(metric="unstable items", value=float(count))
