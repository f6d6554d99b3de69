"""Create a lock from the old one: valid pins are kept, and only the others are resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.core.bug_reports import note_errors
from onnxgate.core.errors import LockError, OnnxgateError, UnavailableError
from onnxgate.core.text import quote_path
from onnxgate.model.reading.external_data import check_external_data
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.subgraphs.reduced_models import mark_unused
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.git.repository import lfs_pull_command
from onnxgate.project.lock.comparison import entry_from_facts, has_same_content, toolchain_policy
from onnxgate.project.lock.pins import BuildFinder, PinResolver
from onnxgate.project.lock.releases import UpgradeRequest
from onnxgate.project.lock.types import Lock, LockedModel, LockedToolchain, MeasuredTolerance

ToolchainProbe = Callable[[], LockedToolchain]
"""Function that returns the toolchain for exports; raises `UnavailableError` if this machine has none."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The parts of a lock that depend on this machine, and whether the network may be used."""

    probe_toolchain: ToolchainProbe
    find_build: BuildFinder
    offline: bool = False


@dataclass(frozen=True, slots=True)
class LockUpdate:
    """A new lock, and notes for the user."""

    lock: Lock
    notes: tuple[str, ...] = ()


def update_lock(
    project: Project,
    old: Lock | None,
    entries: Mapping[str, LockedModel],
    machine: Machine,
    upgrade: UpgradeRequest | None = None,
) -> LockUpdate:
    """Return the lock of the whole project; `entries` are the entries of all its models.

    A target whose settings are unchanged keeps its runtimes, even if there are newer releases. If the settings
    changed, minor releases that remain selected keep their patch release. A locked toolchain with unchanged settings is
    kept even if this machine has a different toolchain; the same applies to the user's own environments.

    Raises:
        ConfigError: no release satisfies a target.
        ResolutionError: an index is needed and not available.
    """
    old = old or Lock()
    pins = PinResolver(old, upgrade or UpgradeRequest(), machine.find_build, machine.offline)
    targets = {name: pins.target(name, target) for name, target in sorted(project.config.targets.items())}
    toolchain, notes = _lock_toolchain(project, old.toolchain, machine.probe_toolchain, pins.upgrade)
    pins.upgrade.refuse_unused()
    lock = Lock(
        targets=targets,
        toolchain=toolchain,
        models=dict(sorted(entries.items())),
        packages=pins.packages(targets.values()),
        npm=pins.npm_packages(targets.values()),
    )
    return LockUpdate(lock, (*pins.notes, *notes))


def update_lock_models(old: Lock | None, entries: Mapping[str, LockedModel], removed: Iterable[str] = ()) -> LockUpdate:
    """Return the old lock with the entries of some models replaced, and the entries of `removed` models deleted.

    Raises:
        LockError: an old lock does not exist.
    """
    if old is None:
        raise LockError(
            "`onnxgate.lock` does not exist, so single models cannot be updated",
            hint="run `onnxgate lock` without paths",
        )
    models = {path: entry for path, entry in {**old.models, **entries}.items() if path not in removed}
    return LockUpdate(msgspec.structs.replace(old, models=dict(sorted(models.items()))))


def _lock_toolchain(
    project: Project, locked: LockedToolchain | None, probe: ToolchainProbe, upgrade: UpgradeRequest
) -> tuple[LockedToolchain | None, tuple[str, ...]]:
    config = project.config.toolchain
    is_exported = any(entry.source is not None or entry.command is not None for entry in project.config.model)
    if not is_exported and not config.requires:
        return None, ()
    try:
        installed = probe()
    except UnavailableError as error:
        stays = "the toolchain is not locked" if locked is None else "the locked toolchain is unchanged"
        return locked, (f"{error.message}; {stays}",)
    installed = msgspec.structs.replace(installed, policy=toolchain_policy(config))
    is_upgraded = upgrade.takes(installed.packages)
    required = {canonicalize_name(Requirement(text).name) for text in config.requires}
    if locked is None or is_upgraded or locked.policy != installed.policy or not required <= locked.packages.keys():
        return installed, ()
    new, old = {"Python": installed.python, **installed.packages}, {"Python": locked.python, **locked.packages}
    names = [name for name in (new | old) if new.get(name) != old.get(name)]
    if not names:
        return locked, ()
    texts = ", ".join(f"{name} {new.get(name, 'is missing')} (locked: {old.get(name, 'none')})" for name in names)
    option = " ".join(["--upgrade", *sorted(set(names) & installed.packages.keys())[:1]])
    upgrade_hint = f"run `onnxgate lock {option}` to lock the installed toolchain"
    return locked, (f"the installed toolchain differs from the locked one: {texts}; {upgrade_hint}",)


MeasuredTolerances = Mapping[str, Mapping[str, MeasuredTolerance]]
"""Measured tolerances by model path and output name."""


class UnlockableError(LockError):
    """Some models cannot be locked, so that the lock would not be complete; `problems` has a reason for each.

    Unless `has_invalid` files, no model is the cause of its problem, and the exit status is 3.
    """

    def __init__(self, problems: tuple[str, ...], *, has_invalid: bool = True) -> None:
        count = "1 model" if len(problems) == 1 else f"{len(problems)} models"
        hint = "correct the invalid files, or add them to `exclude` in `onnxgate.toml`" if has_invalid else None
        super().__init__(f"{count} cannot be locked, so the lock was not written", problems=problems, hint=hint)
        if not has_invalid:
            self.exit_code = OnnxgateError.exit_code


def lock_models(
    models: Iterable[SelectedModel], old: Mapping[str, LockedModel], measured: MeasuredTolerances
) -> dict[str, LockedModel]:
    """Return an entry for each model. Measured tolerances are kept if the model and its data are unchanged.

    Raises:
        UnlockableError: files are invalid or incomplete, or an unexpected error occurred.
    """
    entries: dict[str, LockedModel] = {}
    problems: list[str] = []
    has_invalid = False
    for model in models:
        with note_errors(f"`{model.path}`", problems):
            try:
                entries[model.path] = _lock_model(model, old.get(model.path), measured.get(model.path, {}))
            except LockError as error:
                problems.append(f"`{model.path}`: {error.message}" + (f"; {error.hint}" if error.hint else ""))
                has_invalid = True
    if problems:
        raise UnlockableError(tuple(problems), has_invalid=has_invalid)
    return entries


def _lock_model(
    model: SelectedModel, old: LockedModel | None, measured: Mapping[str, MeasuredTolerance]
) -> LockedModel:
    try:
        pointer = read_pointer(model.absolute)
        if pointer is None:
            entry = _read_entry(model, old)
            tolerance = old.tolerance if old is not None and has_same_content(old, entry) else {}
            quantization = old.quantization if old is not None else {}
            return msgspec.structs.replace(entry, tolerance=dict(measured or tolerance), quantization=quantization)
    except OSError as error:
        raise LockError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if old is not None and (old.sha256, old.size_bytes) == (pointer.sha256, pointer.size_bytes):
        return old
    command = lfs_pull_command(model.absolute, model.path)
    raise LockError("is a Git LFS pointer (content not fetched)", hint=f"run `{command}`")


def _read_entry(model: SelectedModel, old: LockedModel | None) -> LockedModel:
    """Return the entry of a model. Data that ONNX Runtime does not read may be missing.

    As in `check`, such a file stays as it is in the old entry of the same model file.
    """
    if not model.absolute.exists():
        raise LockError("does not exist", hint="restore the file, or remove it from the config and from git")
    if what := detect_other_type(model.absolute):
        raise LockError(f"is {what}" if what.startswith("a truncated model") else f"is not a model: {what}")
    try:
        reading = read_model(model.absolute, model.path)
    except UnreadableModel as error:
        raise LockError(f"is not a model: {error}") from error
    entry = entry_from_facts(reading.facts)
    uses = mark_unused(reading.view, check_external_data(reading.view, model.absolute))
    details = {use.location: use.detail if use.problem == "escapes" else "" for use in uses}
    absent = sorted({use.location for use in uses if not use.is_unused} - {file.location for file in entry.external})
    if not absent:
        known = old.external if old is not None and old.sha256 == entry.sha256 else ()
        unread = (file for file in known if file.location in reading.facts.unread)
        return msgspec.structs.replace(entry, external=tuple(sorted((*entry.external, *unread))))
    missing = {use.location for use in uses if use.problem == "missing"}
    if missing.issuperset(absent):
        names = f"`{'`, `'.join(absent)}`"
        raise LockError(
            f"its external data {names} is missing", hint=f"commit {names}, or export with `external_data=False`"
        )
    message = f"its external data `{'`, `'.join(absent)}` cannot be read"  # without it, the facts would be wrong
    if why := next(filter(None, map(details.get, absent)), ""):
        hint = f"run `onnxgate fix {quote_path(model.path)}` to store the data in the model"
        raise LockError(f"{message}: it {why}", hint=hint)
    raise LockError(message)
