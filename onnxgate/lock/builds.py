"""Targets with an environment of the user's own: what is found there is locked, and nothing is resolved."""

from __future__ import annotations

from collections.abc import Callable

from onnxgate.config.types import Target
from onnxgate.errors import UnavailableError
from onnxgate.lock.policy import resolved_digest, runtime_differences, target_policy
from onnxgate.lock.types import LockedRuntime, LockedTarget
from onnxgate.lock.upgrades import Upgrade

FindBuild = Callable[[Target], LockedRuntime]
"""Looks at the environment of a target; raises `UnavailableError` where it has nothing that the target asks for."""


def lock_build(
    name: str, target: Target, locked: LockedTarget | None, find: FindBuild, upgrade: Upgrade
) -> tuple[LockedTarget, tuple[str, ...]]:
    """The target as it is locked now, and what must be said of that; a row that still fits stays."""
    kept = _kept(name, target, locked)
    try:
        found = find(target)
    except UnavailableError as error:
        stays = "what is locked stays" if kept else "it is not locked"
        return _target(target, kept), (f"target `{name}`: {error.message}; {stays}",)
    given_up = upgrade.takes({pin.partition("==")[0]: pin.partition("==")[2] for pin in (_pin(found), *found.packages)})
    if kept is None or given_up or kept == found:
        return _target(target, found), ()
    said = ", ".join((_pin(found), *found.packages))
    was = ", ".join((_pin(kept), *kept.packages))
    note = (
        f"target `{name}`: `{target.python}` has {said} (locked: {was}); what is locked stays, `--upgrade` takes this"
    )
    return _target(target, kept), (note,)


def _kept(name: str, target: Target, locked: LockedTarget | None) -> LockedRuntime | None:
    if locked is None or not locked.runtimes or any(runtime_differences(name, target, locked)):
        return None
    return locked.runtimes[0]


def _target(target: Target, runtime: LockedRuntime | None) -> LockedTarget:
    runtimes = () if runtime is None else (runtime,)
    return LockedTarget(policy=target_policy(target), runtimes=runtimes, resolved=resolved_digest(runtimes))


def _pin(runtime: LockedRuntime) -> str:
    return f"{runtime.engine}=={runtime.release}"
