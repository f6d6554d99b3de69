"""The rule `policy-weakened`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import PolicyChange
from onnxgate.rules.definition import rule


@rule(PolicyChange, "policy-weakened", level=Level.WARNING, since="0.1.0")
def policy_weakened(subject: PolicyChange) -> Iterator[Hit]:
    """
    The config or the lock checks less, or less strictly, than at the baseline.

    ## Why it matters
    The same pull request that breaks a model can drop the target, exclude the model or accept the finding, so that the
    check passes. This finding makes such a change as visible as the break. It is reported if a target, a release, a
    provider, a model, a source or a pin is no longer checked, if a rule is lowered or turned off, if an ignore is added
    or accepts more, and if a tolerance, size, budget or limit is loosened.

    The level of this rule is read from the config at the baseline, so that a pull request cannot lower it. The finding
    cannot be ignored.

    ## What to do
    - Restore the line.
    - If the change is intended, explain it in the pull request and have it approved. The finding disappears after the
      merge.
    - To require an approval for each weakening, set `policy-weakened = "error"` under `[rules]`.
    """
    if subject.is_weaker:
        fix = subject.fix or "restore it, or have the change approved"
        yield Hit(subject.place, subject.message, fix=fix, identity=subject.identity)
