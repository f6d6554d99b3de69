"""A repository as its config describes it: which models there are, and what is asked of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.config.globs import matches
from onnxgate.config.lines import Keys, nearest_line
from onnxgate.config.types import Budget, Config, ModelSettings, Tolerance
from onnxgate.findings import Place

LOCK_NAME = "onnxgate.lock"


@dataclass(frozen=True, slots=True)
class MergedSettings:
    """All `[[model]]` entries that match one model, a later one over an earlier one, key by key."""

    targets: tuple[str, ...] = ()  # all targets of the config where no entry names some
    source: str | None = None
    command: tuple[str, ...] | None = None
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: str | None = None
    tolerance: Mapping[str, float | Tolerance] = field(default_factory=dict)
    quantized_from: str | None = None  # relative to the config's folder
    budget: Budget | None = None

    @property
    def is_exported(self) -> bool:
        """Whether the config says what the model is made from."""
        return self.source is not None or self.command is not None

    @property
    def called_inputs(self) -> str | None:
        """The callable that gives the inputs, `samples.py:batches`; None where files do, or nothing."""
        return self.inputs if ".py:" in (self.inputs or "") else None

    def tolerance_of(self, output: str) -> Tolerance | None:
        """The tolerance that the config gives one output; None where it gives none."""
        own = self.tolerance.get(output)
        if isinstance(own, Tolerance):
            return own
        rtol, atol = self.tolerance.get("rtol"), self.tolerance.get("atol")
        if isinstance(rtol, float) and isinstance(atol, float):
            return Tolerance(rtol=rtol, atol=atol)
        return None


@dataclass(frozen=True, slots=True)
class SelectedModel:
    """One model of the project. `path` is relative to the config's folder, with `/`."""

    path: str
    absolute: Path
    settings: MergedSettings
    place: Place  # its entry in the config, else the file


@dataclass(slots=True)
class Project:
    """A loaded config and where it lies. What lies in its folder is looked at once."""

    path: Path  # the config's file, absolute
    folder: Path
    root: Path  # git's root, else the folder
    config: Config
    lines: Mapping[Keys, int]
    prefix: Keys = ()  # the table of the file that is ours: `tool`, `onnxgate`
    _listing: tuple[str, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def lock_path(self) -> Path:
        """Where the lock lies: beside the config."""
        return self.folder / LOCK_NAME

    def place(self, *keys: str) -> Place:
        """The line of a key, else of its nearest parent; an entry of `[[model]]` is named by its index."""
        return Place(self.path.name, nearest_line(self.lines, (*self.prefix, *keys)))

    def models(
        self, paths: Sequence[str] = (), *, base: Path | None = None, absent: bool = False
    ) -> tuple[SelectedModel, ...]:
        """
        The project's models, by path; with `paths`, those that these mean: a model, its data, a folder, its source.

        `paths` are relative to `base` (default: the working directory). One that is there but means no model of the
        project is out of scope and no error, unless it is a model that `exclude` does not take out. `absent` adds
        models that the config names and says how to export, and that are not there yet.

        Raises:
            UsageError: one of the paths is not there, or is a model that is none of the project's.
            ConfigError: the config names models that are not there, or the project has no model at all.
        """
        from onnxgate.config import selection

        if self._listing is None:
            self._listing = selection.list_models(self)
        missing = selection.missing_models(self, self._listing)
        listing = {*self._listing, *(name for name, entry in missing if absent and _can_be_exported(entry))}
        selection.refuse_missing([each for each in missing if each[0] not in listing], self, listing)
        models = tuple(self.selected(path) for path in sorted(listing))
        return selection.narrowed(models, paths, base or Path.cwd(), self) if paths else models

    def selected(self, path: str) -> SelectedModel:
        """One path as a model, with its settings."""
        entries = [(index, entry) for index, entry in enumerate(self.config.model) if matches(entry.path, path)]
        place = self.place("model", str(entries[-1][0]), "path") if entries else Place(path)
        settings = merge_settings((entry for _, entry in entries), tuple(self.config.targets))
        return SelectedModel(path, self.folder / path, settings, place)


def merge_settings(entries: Iterable[ModelSettings], targets: tuple[str, ...]) -> MergedSettings:
    """Entries in their order as one; `sizes` and `tolerance` are merged key by key."""
    source, command, inputs, quantized_from = None, None, None, None
    budget: Budget | None = None
    sizes: dict[str, tuple[int, ...]] = {}
    tolerance: dict[str, float | Tolerance] = {}
    for entry in entries:
        targets = targets if entry.targets is None else entry.targets
        source = source if entry.source is None else entry.source
        command = command if entry.command is None else entry.command
        inputs = inputs if entry.inputs is None else entry.inputs
        quantized_from = quantized_from if entry.quantized_from is None else entry.quantized_from
        budget = budget if entry.budget is None else entry.budget
        sizes |= entry.sizes or {}
        tolerance |= entry.tolerance or {}
    return MergedSettings(targets, source, command, sizes, inputs, tolerance, quantized_from, budget)


def _can_be_exported(entry: ModelSettings | None) -> bool:
    return entry is not None and (entry.source is not None or entry.command is not None)
