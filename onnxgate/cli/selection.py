"""Which stages a command line asks for."""

from __future__ import annotations

import difflib

from onnxgate.errors import UsageError
from onnxgate.findings import ALL_STAGES, STATIC_STAGES, Stage


def chosen_stages(static: bool, names: str | None) -> frozenset[Stage]:
    """The stages that `--static` or `--stage a,b` name; all without either.

    Raises:
        UsageError: both are given, or a name is no stage.
    """
    if static and names is not None:
        raise UsageError("`--static` and `--stage` exclude each other")
    if static:
        return frozenset(STATIC_STAGES)
    if names is None:
        return frozenset(ALL_STAGES)
    return frozenset(_stage(name.strip()) for name in names.split(","))


def _stage(name: str) -> Stage:
    known = [stage.value for stage in ALL_STAGES]
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        meant = f"; did you mean `{near[0]}`" if near else ""
        raise UsageError(f"unknown stage `{name}`{meant}", hint=f"one of {', '.join(known)}")
    return Stage(name)
