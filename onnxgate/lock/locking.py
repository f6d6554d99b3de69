"""Makes a new lock from the old one: every pin that still fits stays, and an index is asked for the rest alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.config.project import Project
from onnxgate.errors import LockError, UnavailableError
from onnxgate.lock.builds import FindBuild
from onnxgate.lock.npm import AsksNpm, Npm
from onnxgate.lock.pins import Pins
from onnxgate.lock.policy import toolchain_policy
from onnxgate.lock.resolving import AsksIndex
from onnxgate.lock.types import Lock, LockedModel, LockedToolchain
from onnxgate.lock.upgrades import Upgrade

ProbeToolchain = Callable[[], LockedToolchain]
"""Looks for what models are exported with; raises `UnavailableError` where there is none on this machine."""


@dataclass(frozen=True, slots=True)
class Relocked:
    """A new lock, and what must be said of how it was made."""

    lock: Lock
    notes: tuple[str, ...] = ()


def relock(
    project: Project,
    old: Lock | None,
    entries: Mapping[str, LockedModel],
    *,
    index: AsksIndex,
    probe_toolchain: ProbeToolchain,
    find_build: FindBuild,
    upgrade: Upgrade | None = None,
    npm: AsksNpm | None = None,
) -> Relocked:
    """
    The lock of the whole project; `entries` are those of all of its models.

    A target whose policy is the locked one keeps its runtimes, whatever has been released since. Where the policy
    changed, a minor that both have keeps its patch. A locked toolchain of this policy stays, whatever this machine has,
    and so does what was locked of an environment of the user's own.

    Raises:
        ConfigError: no release satisfies a target.
        ResolutionError: an index is needed and cannot be asked.
    """
    old = old or Lock()
    pins = Pins(old, index, upgrade or Upgrade(), find_build, npm or Npm())
    targets = {name: pins.target(name, target) for name, target in sorted(project.config.targets.items())}
    toolchain, notes = _toolchain(project, old.toolchain, probe_toolchain, pins.upgrade)
    pins.upgrade.refuse_unused()
    lock = Lock(
        targets=targets,
        toolchain=toolchain,
        models=dict(sorted(entries.items())),
        packages=pins.packages(targets.values()),
        npm=pins.npm_packages(targets.values()),
    )
    return Relocked(lock, (*pins.notes, *notes))


def relock_models(old: Lock | None, entries: Mapping[str, LockedModel], gone: Iterable[str] = ()) -> Relocked:
    """
    The old lock with the entries of some models rewritten, and those of `gone` taken out. Nothing else is touched.

    Raises:
        LockError: there is no old lock.
    """
    if old is None:
        raise LockError("there is no lock whose entries could be rewritten", hint="run `onnxgate lock` without paths")
    models = {path: entry for path, entry in {**old.models, **entries}.items() if path not in gone}
    return Relocked(msgspec.structs.replace(old, models=dict(sorted(models.items()))))


def needs_toolchain(project: Project) -> bool:
    """Whether something is exported, or the config says what with."""
    exported = any(entry.source is not None or entry.command is not None for entry in project.config.model)
    return exported or bool(project.config.toolchain.requires)


def _toolchain(
    project: Project, locked: LockedToolchain | None, probe: ProbeToolchain, upgrade: Upgrade
) -> tuple[LockedToolchain | None, tuple[str, ...]]:
    if not needs_toolchain(project):
        return None, ()
    try:
        found = probe()
    except UnavailableError as error:
        stays = "it is not locked" if locked is None else "the locked one stays"
        return locked, (f"{error.message}; {stays}",)
    found = msgspec.structs.replace(found, policy=toolchain_policy(project.config.toolchain))
    given_up = upgrade.takes(found.packages)
    if locked is None or given_up or not _stays(project, locked):
        return found, ()
    return locked, tuple(_differing(locked, found))


def _stays(project: Project, locked: LockedToolchain) -> bool:
    """Whether the lock says of all that the config requires which release it is."""
    required = {canonicalize_name(Requirement(text).name) for text in project.config.toolchain.requires}
    return locked.policy == toolchain_policy(project.config.toolchain) and required <= locked.packages.keys()


def _differing(locked: LockedToolchain, found: LockedToolchain) -> Iterator[str]:
    here, there = {"Python": found.python, **found.packages}, {"Python": locked.python, **locked.packages}
    names = [name for name in (here | there) if here.get(name) != there.get(name)]
    if names:
        said = ", ".join(f"{name} {here.get(name, 'is missing')} (locked: {there.get(name, 'not')})" for name in names)
        yield f"the toolchain here is another one: {said}; the locked one stays, `--upgrade` takes this one"
