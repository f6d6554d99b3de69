"""The lock's entries of models, read from their files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

import msgspec

from onnxgate.config.project import SelectedModel
from onnxgate.errors import LockError
from onnxgate.lock.changes import entry_of, same_content
from onnxgate.lock.types import LockedModel, MeasuredTolerance

Measured = Mapping[str, Mapping[str, MeasuredTolerance]]
"""Path of a model -> its outputs, with what was measured of each."""


class UnlockableError(LockError):
    """Some models cannot be locked as they are; `problems` says which and why."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        count = "1 model" if len(problems) == 1 else f"{len(problems)} models"
        super().__init__(f"{count} cannot be locked", problems=problems)


def lock_models(
    models: Iterable[SelectedModel], old: Mapping[str, LockedModel], measured: Measured
) -> dict[str, LockedModel]:
    """
    An entry for each model. A tolerance that was measured before stays as long as model and data are the same bytes.

    Raises:
        UnlockableError: files are no models, or not all there.
    """
    entries: dict[str, LockedModel] = {}
    problems: list[str] = []
    for model in models:
        try:
            entries[model.path] = _entry(model, old.get(model.path), measured.get(model.path, {}))
        except LockError as error:
            problems.append(f"`{model.path}`: {error.message}" + (f"; {error.hint}" if error.hint else ""))
    if problems:
        raise UnlockableError(tuple(problems))
    return entries


def _entry(model: SelectedModel, old: LockedModel | None, measured: Mapping[str, MeasuredTolerance]) -> LockedModel:
    from onnxgate.model.pointer import read_pointer

    try:
        pointer = read_pointer(model.absolute)
        if pointer is None:
            return _with_tolerance(_read(model), old, measured)
    except OSError as error:
        raise LockError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if old is not None and (old.sha256, old.size_bytes) == (pointer.sha256, pointer.size_bytes):
        return old
    raise LockError("is a Git LFS pointer that was not fetched", hint=f'run `git lfs pull --include "{model.path}"`')


def _read(model: SelectedModel) -> LockedModel:
    from onnxgate.model.external import external_uses
    from onnxgate.model.identify import really
    from onnxgate.model.reading import read
    from onnxgate.model.structure import UnreadableModel

    if what := really(model.absolute):
        raise LockError(f"is no model: {what}")
    try:
        reading = read(model.absolute, model.path)
    except UnreadableModel as error:
        raise LockError(f"is no model: {error}") from error
    entry = entry_of(reading.facts)
    uses = external_uses(reading.proto, model.absolute)
    _hold_to_data(entry, {use.location: use.detail if use.problem == "escapes" else "" for use in uses}, model.path)
    return entry


def _hold_to_data(entry: LockedModel, named: Mapping[str, str], path: str) -> None:
    """Facts without a data file that the model names would be facts of another model."""
    absent = sorted(named.keys() - {file.location for file in entry.external})
    if not absent:
        return
    why = next((named[each] for each in absent if named[each]), "")
    message = f"its external data `{'`, `'.join(absent)}` cannot be read"
    if not why:
        raise LockError(message)
    hint = f"run `onnxgate fix {shlex.quote(path)}`, which moves data of the repository into the model"
    raise LockError(f"{message}, since it {why}", hint=hint)


def _with_tolerance(
    entry: LockedModel, old: LockedModel | None, measured: Mapping[str, MeasuredTolerance]
) -> LockedModel:
    kept = old.tolerance if old is not None and same_content(old, entry) else {}
    quantization = old.quantization if old is not None else {}
    return msgspec.structs.replace(entry, tolerance=dict(measured) or dict(kept), quantization=dict(quantization))
