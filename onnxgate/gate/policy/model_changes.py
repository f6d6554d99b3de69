"""Compare which models two configs select, and the settings of each model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from onnxgate.core.text import join_phrases
from onnxgate.evidence.policy import PolicyChange
from onnxgate.gate.policy.config_changes import PolicyReporter, match_targets
from onnxgate.project.config.globs import covers, matches
from onnxgate.project.config.project import MergedSettings, Project, merge_settings
from onnxgate.project.config.schema import Config, Tolerance, read_opset

if TYPE_CHECKING:
    from onnxgate.project.lock.types import Lock

MAX_NAMED_MODELS = 3
Bounds = tuple[float, float]  # rtol, atol


class SettingChange(NamedTuple):
    """One changed setting of one model; equal changes of several models are reported together."""

    key: str  # key of `[[model]]`, such as "sizes"
    change: str  # verb phrase with the placeholder {models}
    is_weaker: bool
    fix: str = ""


# Selection


def find_dropped_models(
    report: PolicyReporter, before: Config, dropped: Iterable[str], renamed: Mapping[str, str]
) -> Iterator[PolicyChange]:
    """Yield the models that the config of the baseline selects, but the current config does not.

    `dropped` are current paths; `renamed` maps the paths of renamed models to their paths at the baseline.
    """
    for path in sorted(dropped):
        key, reason = _explain_dropped(report.project, before, path)
        was = renamed.get(path)
        message = f"`{path}` is no longer checked: {reason}"
        if was is not None:
            message = f"`{was}` was renamed to `{path}`, which is not checked: {reason}"
        fix = f"change `{key}` so that `{path}` is selected"
        yield report.weaker(f"model {was or path}", message, key, fix=fix)


def _explain_dropped(project: Project, before: Config, path: str) -> tuple[str, str]:
    """Return the key of the config that drops a model, and the reason."""
    config = project.config
    excluding = [pattern for pattern in config.exclude if covers(pattern, path)]
    if excluding:
        return "exclude", f"`{excluding[0]}` in `exclude` matches it"
    if config.models is None:
        return "models", "it is not a file tracked by git whose name ends in `.onnx`"
    removed = [pattern for pattern in before.models or () if pattern not in config.models]
    without = f" without {join_phrases([f'`{pattern}`' for pattern in removed])}" if removed else ""
    return "models", f"`models`{without} does not match it"


def find_selection_changes(report: PolicyReporter, before: Config) -> Iterator[PolicyChange]:
    """Yield changes of `models` and `exclude`, for the case that they drop no model."""
    after = report.project.config
    for key, was, now in (("models", before.models, after.models), ("exclude", before.exclude, after.exclude)):
        if was != now:
            yield report.other(f"{key} list", f"`{key}` changed; no model at the baseline is dropped", key)


# Settings of models


def find_setting_changes(
    report: PolicyReporter, before: Config, models: Mapping[str, str], lock: Lock
) -> Iterator[PolicyChange]:
    """Yield changed settings of models. `models` maps current paths to paths at the baseline; `lock` is current."""
    names = match_targets(before.targets, report.project.config.targets)
    changed: dict[SettingChange, list[str]] = {}
    for path, was in sorted(models.items()):
        old = _merged_settings(before, was)
        new = report.project.selected(path).settings
        measured = lock.models[path].tolerance.keys() if path in lock.models else ()
        general = read_opset(report.project.config.opset)
        changes = itertools.chain(
            _compare_settings(old, new, names, _default_bounds(lock, path), measured),
            _compare_opsets(old.opset, new.opset, general),
        )
        for change in changes:
            changed.setdefault(change, []).append(path)
    for change, paths in changed.items():
        named = join_phrases([f"`{path}`" for path in paths], MAX_NAMED_MODELS)
        message = change.change.replace("{models}", named)
        keys = _setting_keys(report.project, paths[0], change.key)
        identity = f"{change.key} {paths[0]} {change.change}"
        yield report.ranked(change.is_weaker, identity, message, *keys, fix=change.fix)


def _merged_settings(config: Config, path: str) -> MergedSettings:
    entries = (entry for entry in config.model if matches(entry.path, path))
    return merge_settings(entries, tuple(config.targets))


def _setting_keys(project: Project, path: str, key: str) -> Sequence[str]:
    """Return the keys of the last `[[model]]` entry that matches a model and has the key, or that matches it."""
    entries = [(index, entry) for index, entry in enumerate(project.config.model) if matches(entry.path, path)]
    name = key.replace("-", "_")
    having = [index for index, entry in entries if getattr(entry, name, None) is not None]
    last = having or [index for index, _ in entries]
    return ("model", str(last[-1]), key) if last else ("model",)


def _compare_settings(
    old: MergedSettings,
    new: MergedSettings,
    names: Mapping[str, str],
    default: Callable[[str], Bounds],
    measured: Iterable[str],
) -> Iterator[SettingChange]:
    lost = [name for name in old.targets if name in names and names[name] not in new.targets]
    for name in lost:
        message = f"target `{names[name]}` no longer applies to {{models}}"
        yield SettingChange("targets", message, is_weaker=True, fix=f'add "{names[name]}" to `targets`')
    yield from _compare_sources(old, new)
    yield from _compare_sizes(old.sizes, new.sizes)
    yield from _compare_value("inputs", old.inputs, new.inputs)
    yield from _compare_value("quantized-from", old.quantized_from, new.quantized_from)
    yield from _compare_tolerances(old.tolerance, new.tolerance, default, measured)
    yield from _compare_budgets(old, new)


def _compare_sources(old: MergedSettings, new: MergedSettings) -> Iterator[SettingChange]:
    was, now = old.source or old.command, new.source or new.command
    if was is not None and now is None:
        key = "source" if old.source is not None else "command"
        fix = f'restore `source = "{old.source}"`' if old.source is not None else "restore `command`"
        message = f"`{key}` of {{models}} was removed; parity with the source and the export are no longer checked"
        yield SettingChange(key, message, is_weaker=True, fix=fix)
    elif was != now:
        verb = "was added" if was is None else "changed"
        key = "source" if new.source is not None else "command"
        yield SettingChange(key, f"`{key}` of {{models}} {verb}", is_weaker=False)


def _compare_sizes(old: Mapping[str, tuple[int, ...]], new: Mapping[str, tuple[int, ...]]) -> Iterator[SettingChange]:
    for axis in sorted(old.keys() | new.keys()):
        was, now = old.get(axis, ()), new.get(axis, ())
        lost = [str(size) for size in was if size not in now]
        if lost:
            message = f"`sizes` of {{models}} no longer tests {join_phrases(lost)} for the axis `{axis}`"
            yield SettingChange("sizes", message, is_weaker=True, fix=f"restore `{axis} = {list(was)}`")
        elif not was and len(set(now)) == 1:  # by default, several sizes are tested
            message = f"`sizes` of {{models}} now tests only {now[0]} for the axis `{axis}`"
            yield SettingChange("sizes", message, is_weaker=True, fix=f"remove `{axis}` from `sizes`, or add a size")
        elif set(was) != set(now):
            yield SettingChange("sizes", f"`sizes` of {{models}} changed for the axis `{axis}`", is_weaker=False)


def _compare_opsets(
    old: Mapping[str, int], new: Mapping[str, int], general: Mapping[str, int]
) -> Iterator[SettingChange]:
    """Compare the opsets that `[[model]]` entries require; `general` are those of the top level of the new config."""
    for domain in sorted(old.keys() | new.keys()):
        was, now = old.get(domain), new.get(domain)
        if was != now:
            before, after = (f"`{it}`" if it is not None else "the default" for it in (was, now))
            message = f"the required opset of `{domain}` of {{models}} changed from {before} to {after}"
            is_weaker = now is None and domain not in general
            fix = f'restore `opset = {{ "{domain}" = {was} }}`' if was is not None else ""
            yield SettingChange("opset", message, is_weaker, fix=fix)


def _compare_value(key: str, old: str | None, new: str | None) -> Iterator[SettingChange]:
    if old is not None and new is None:
        fix = f'restore `{key} = "{old}"`'
        yield SettingChange(key, f"`{key}` of {{models}} was removed", is_weaker=True, fix=fix)
    elif old != new:
        verb = "was added" if old is None else f"changed from `{old}` to `{new}`"
        yield SettingChange(key, f"`{key}` of {{models}} {verb}", is_weaker=False)


def _compare_budgets(old: MergedSettings, new: MergedSettings) -> Iterator[SettingChange]:
    was, now = (msgspec.to_builtins(settings.budget) or {} for settings in (old, new))
    for key in sorted(was.keys() | now.keys()):
        before, after = was.get(key), now.get(key)
        if before == after:
            continue
        looser = after is None or (before is not None and after > before)
        shown = "was removed" if after is None else f"changed from {'none' if before is None else before} to {after}"
        message = f"budget `{key}` of {{models}} {shown}"
        yield SettingChange("budget", message, is_weaker=looser, fix=f"restore `{key} = {before}`")


def _compare_tolerances(
    old: Mapping[str, float | Tolerance],
    new: Mapping[str, float | Tolerance],
    default: Callable[[str], Bounds],
    measured: Iterable[str],
) -> Iterator[SettingChange]:
    """Compare the bounds of all outputs (key "") and of each output that the config names or the lock measured."""
    if old == new:
        return
    named = {name for side in (old, new) for name, value in side.items() if isinstance(value, Tolerance)}
    general = _bounds(old, "", default), _bounds(new, "", default)
    for output in ("", *sorted({*named, *measured})):
        was, now = _bounds(old, output, default), _bounds(new, output, default)
        if was == now or (output and (was, now) == general and output not in named):
            continue
        of = f"for output `{output}` of {{models}}" if output else "of {models}"
        message = f"`tolerance` {of} changed from {_format_bounds(was)} to {_format_bounds(now)}"
        fix = f"restore `rtol = {was[0]:g}, atol = {was[1]:g}`"
        yield SettingChange("tolerance", message, is_weaker=now[0] > was[0] or now[1] > was[1], fix=fix)


def _format_bounds(bounds: Bounds) -> str:
    return f"rtol {bounds[0]:g} and atol {bounds[1]:g}"


def _bounds(tolerance: Mapping[str, float | Tolerance], output: str, default: Callable[[str], Bounds]) -> Bounds:
    named = tolerance.get(output)
    if isinstance(named, Tolerance):
        return named.rtol, named.atol
    rtol, atol = tolerance.get("rtol"), tolerance.get("atol")
    if isinstance(rtol, float | int) and isinstance(atol, float | int):
        return float(rtol), float(atol)
    return default(output)


def _default_bounds(lock: Lock, path: str) -> Callable[[str], Bounds]:
    """Return a function that returns the bounds of an output without `tolerance` in the config."""
    entry = lock.models.get(path)

    def bounds(output: str) -> Bounds:
        from onnxgate.numerics.tolerance import DEFAULT_BOUNDS

        if entry is not None and output in entry.tolerance:
            return 0.0, entry.tolerance[output].bound
        values = (*entry.inputs, *entry.outputs) if entry is not None else ()
        return DEFAULT_BOUNDS["half" if any("float16" in value.type for value in values) else "single"]

    return bounds
