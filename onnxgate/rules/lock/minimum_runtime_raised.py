"""The rule `minimum-runtime-raised`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, version_sort_key
from onnxgate.core.text import join_phrases
from onnxgate.evidence.lock import MinimumRelease, ModelChange
from onnxgate.project.engines import ONNXRUNTIME
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, create_note_hit, limit_list


@rule(ModelChange, "minimum-runtime-raised", level=Level.ERROR, since="0.1.0")
def minimum_runtime_raised(subject: ModelChange) -> Iterator[Hit]:
    """
    A model requires a newer release of an engine than the baseline.

    ## Why it matters
    Deployments with older releases cannot load the model. If the model still loads on all releases that the targets
    require, this is a note. The rule applies to engines with a support table: ONNX Runtime, ONNX Runtime Web, OpenVINO
    and tract.

    ## What to do
    - Export at the previous opset and IR version, or
    - for OpenVINO and tract, export with the previous operators, or
    - raise the target's `runtime`, and run `onnxgate lock`.
    """
    for minimum in subject.minimums:
        text = _describe_minimum(minimum, subject.baseline)
        if minimum.lost:
            listed = join_phrases(limit_list(sorted(minimum.lost, key=version_sort_key)))
            raised = f", or raise the target to >={minimum.after}" if minimum.after else ""
            yield create_breaking_hit(
                subject,
                f"{text}; no longer loads on {listed}, which the targets require",
                f"{_describe_export(minimum)}{raised}",
                identity=_identify(minimum, " ".join(sorted(minimum.lost))),
            )
        elif _is_raised(minimum):
            yield create_note_hit(subject, text, identity=_identify(minimum, minimum.after))


def _identify(minimum: MinimumRelease, releases: str) -> str:
    return releases if minimum.engine == ONNXRUNTIME else f"{minimum.engine} {releases}"


def _describe_export(minimum: MinimumRelease) -> str:
    """Return how to export for the old releases. OpenVINO and tract do not limit opsets and IR versions."""
    has_limits = minimum.engine.startswith(ONNXRUNTIME)
    return "export at the previous opset and IR version" if has_limits else "export with the previous operators"


def _is_raised(minimum: MinimumRelease) -> bool:
    """Return whether a model needs a newer release after a change, or loads on no release any more."""
    if not minimum.before or minimum.before == minimum.after:
        return False
    return not minimum.after or version_sort_key(minimum.after) > version_sort_key(minimum.before)


def _describe_minimum(minimum: MinimumRelease, baseline: str) -> str:
    engine = minimum.engine
    if not _is_raised(minimum):
        return f"is predicted to load on fewer {engine} releases than the version {baseline}"
    if not minimum.after:
        return f"is predicted not to load on any known {engine} release; it needed {minimum.before} {baseline}"
    return f"is predicted to need {engine} {minimum.after}; it needed {minimum.before} {baseline}"
