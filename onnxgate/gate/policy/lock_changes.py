"""Compare the pins and the measured values of two locks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.core.findings import Place, name_runtimes
from onnxgate.core.text import join_phrases, quote_path
from onnxgate.evidence.policy import PolicyChange
from onnxgate.gate.policy.config_changes import match_targets
from onnxgate.project.config.schema import Config, Target
from onnxgate.project.lock.comparison import satisfies, target_policy
from onnxgate.project.lock.types import Lock, LockedModel, LockedRuntime
from onnxgate.project.toml import Keys, find_nearest_line

MAX_REMEASURED_RATIO = 2.0
"""Ratio by which a tolerance may grow when it is measured again; larger growth is reported as weaker.

A tolerance is a multiple of a measured noise, which changes with the weights.
"""
MAX_NAMED_PINS = 4
_LOCK_FIX = "run `onnxgate lock`"


class LockReporter(msgspec.Struct, frozen=True):
    """Creates changes that are placed on keys of the current lock."""

    name: str  # path of the lock, as reported
    lines: Mapping[Keys, int]

    def change(self, identity: str, message: str, *keys: str, is_weaker: bool, fix: str = "") -> PolicyChange:
        """Return a change at the line of a key."""
        place = Place(self.name, find_nearest_line(self.lines, keys))
        return PolicyChange(place=place, message=message, identity=identity, is_weaker=is_weaker, fix=fix)


def find_lock_changes(
    report: LockReporter, locks: tuple[Lock, Lock], configs: tuple[Config, Config], models: Mapping[str, str]
) -> Iterator[PolicyChange]:
    """Yield the differences between the locks of the baseline and of the current project, in this order.

    `models` maps the paths of current models to their paths at the baseline.
    """
    before, after = locks
    for was, now in sorted(match_targets(configs[0].targets, configs[1].targets).items()):
        if was not in before.targets or now not in after.targets:
            continue
        old, new = before.targets[was].runtimes, after.targets[now].runtimes
        target = configs[1].targets[now]
        if target_policy(configs[0].targets[was]) == target_policy(target):
            yield from _compare_rows(report, now, old, new)
        else:
            yield from _find_lost_rows(report, now, target, old, new)
    yield from _compare_toolchains(report, before, after)
    yield from _compare_hashes(report, before, after)
    for path, was in sorted(models.items()):
        if path in after.models and was in before.models:
            yield from _compare_measurements(report, path, before.models[was], after.models[path])


def _compare_rows(
    report: LockReporter, target: str, before: Sequence[LockedRuntime], after: Sequence[LockedRuntime]
) -> Iterator[PolicyChange]:
    """Compare the runtimes of a target whose settings in the config did not change."""
    was, now = ({runtime.name: runtime for runtime in runtimes} for runtimes in (before, after))
    names, keys = [*was, *now], ("targets", target, "runtimes")
    removed = [name for name in was if name not in now]
    replaced = {name: new for name in removed if (new := _find_replacement(was[name], after, was))}
    lost = [name for name in removed if name not in replaced]
    if lost:
        message = f"the lock no longer contains {name_runtimes(lost, names)} for target `{target}`"
        yield report.change(f"pins {target}", message, *keys, is_weaker=True, fix=_LOCK_FIX)
    for old, new in replaced.items():
        message = f"target `{target}` is locked with {new} instead of {old}"
        is_older = Version(now[new].release) < Version(was[old].release)
        fix = f"run `onnxgate lock --upgrade {now[new].engine}`" if is_older else ""
        yield report.change(f"pin {target} {old}", message, *keys, is_weaker=is_older, fix=fix)
    added = [name for name in now if name not in was and name not in replaced.values()]
    if added:
        message = f"target `{target}` is also locked with {name_runtimes(added, names)}"
        yield report.change(f"added pins {target}", message, *keys, is_weaker=False)
    for name in (name for name in was if name in now and was[name] != now[name]):
        yield _describe_pin_changes(report, target, was[name], now[name])


def _find_lost_rows(
    report: LockReporter, name: str, target: Target, before: Sequence[LockedRuntime], after: Sequence[LockedRuntime]
) -> Iterator[PolicyChange]:
    """Report runtimes that a target with changed settings still requires, but that are no longer locked."""
    requirement = Requirement(target.runtime)
    kept = sorted((it for it in before if not it.environment and satisfies(it, requirement)), key=_version)
    lost = [it.name for it in _select_required(target, kept) if not _is_locked(target, it, it is kept[-1], after)]
    if lost and target.python is None:
        message = f"the lock no longer contains {name_runtimes(lost, [it.name for it in kept])} for target `{name}`"
        yield report.change(f"pins {name}", message, "targets", name, "runtimes", is_weaker=True, fix=_LOCK_FIX)


def _select_required(target: Target, kept: Sequence[LockedRuntime]) -> Sequence[LockedRuntime]:
    """Return the runtimes, of those in ascending order, that limit what `select` can select."""
    return {"newest": kept[-1:], "bounds": [*kept[:1], *kept[1:][-1:]]}.get(target.select, kept)


def _is_locked(target: Target, runtime: LockedRuntime, is_newest: bool, after: Sequence[LockedRuntime]) -> bool:
    """Return whether a lock contains a runtime, or one that replaces it according to `select`."""
    versions = [_version(it) for it in after if it.engine == runtime.engine]
    if is_newest and target.select in ("newest", "bounds"):
        return any(version >= _version(runtime) for version in versions)
    if target.select == "bounds":  # the oldest
        return any(version.release[:2] <= _version(runtime).release[:2] for version in versions)
    if target.select == "all":
        return _version(runtime) in versions
    return any(version.release[:2] == _version(runtime).release[:2] for version in versions)


def _version(runtime: LockedRuntime) -> Version:
    return Version(runtime.release)


def _find_replacement(old: LockedRuntime, after: Sequence[LockedRuntime], was: Mapping[str, object]) -> str:
    """Return the added runtime that replaces a removed one: a patch of the same minor, or the only other runtime."""
    added = [runtime for runtime in after if runtime.name not in was and runtime.variant == old.variant]
    same = [runtime.name for runtime in added if _minor(runtime.release) == _minor(old.release)]
    if same:
        return same[0]
    return added[0].name if len(was) == len(after) == 1 and added else ""


def _minor(release: str) -> tuple[str, ...]:
    return tuple(release.split(".")[:2])


def _describe_pin_changes(
    report: LockReporter, target: str, before: LockedRuntime, after: LockedRuntime
) -> PolicyChange:
    old = dict(pin.partition("==")[::2] for pin in before.packages)
    new = dict(pin.partition("==")[::2] for pin in after.packages)
    changed = [
        f"{package} {old.get(package, 'none')} to {new.get(package, 'none')}"
        for package in sorted(old.keys() | new.keys())
        if old.get(package) != new.get(package)
    ]
    changed += [f"Python {before.python} to {after.python}"] if before.python != after.python else []
    message = f"the pins of {before.name} changed ({join_phrases(changed, MAX_NAMED_PINS) or 'other settings'})"
    return report.change(f"pins {before.name}", message, "targets", target, "runtimes", is_weaker=False)


def _compare_toolchains(report: LockReporter, before: Lock, after: Lock) -> Iterator[PolicyChange]:
    was = before.toolchain.packages if before.toolchain is not None else {}
    now = after.toolchain.packages if after.toolchain is not None else {}
    if not now:  # if the config still requires the packages, `lock-stale` reports it
        return
    changed = [
        f"{package} {was.get(package, 'none')} to {now.get(package, 'none')}"
        for package in sorted(was.keys() | now.keys())
        if was.get(package) != now.get(package)
    ]
    if changed:
        message = f"the locked toolchain changed ({join_phrases(changed, MAX_NAMED_PINS)})"
        yield report.change("toolchain", message, "toolchain", "packages", is_weaker=False)


def _compare_hashes(report: LockReporter, before: Lock, after: Lock) -> Iterator[PolicyChange]:
    """Report files whose hash changed: a published file never changes."""
    was, now = (_file_hashes(lock) for lock in (before, after))
    for file in sorted(name for name in was.keys() & now.keys() if was[name] != now[name]):
        message = f"the hash of `{file}` changed, although published files do not change"
        fix = "run `onnxgate lock --upgrade`, and compare the hash with the package index"
        yield report.change(f"hash {file}", message, "packages", is_weaker=True, fix=fix)


def _file_hashes(lock: Lock) -> dict[str, str]:
    wheels = {wheel.file: wheel.sha256 for package in lock.packages for wheel in package.wheels}
    return wheels | {f"{package.name} {package.version}": package.integrity for package in lock.npm}


def _compare_measurements(
    report: LockReporter, path: str, before: LockedModel, after: LockedModel
) -> Iterator[PolicyChange]:
    """Compare measured tolerances and the required accuracy of a quantized model."""
    fix = f"run `onnxgate lock --measure {quote_path(path)}`"
    for output in sorted(before.tolerance.keys() | after.tolerance.keys()):
        was, now = (entry.tolerance[output].bound if output in entry.tolerance else None for entry in (before, after))
        if was != now:
            shown = [f"{bound:.3g}" if bound is not None else "the default" for bound in (was, now)]
            message = f"the measured tolerance of output `{output}` of `{path}` changed from {shown[0]} to {shown[1]}"
            is_weaker = was is not None and (now is None or now > MAX_REMEASURED_RATIO * was)
            keys = ("models", path, "tolerance", output)
            yield report.change(f"tolerance {path} {output}", message, *keys, is_weaker=is_weaker, fix=fix)
    if before.quantization != after.quantization:
        yield from _compare_accuracies(report, path, before, after, fix)


def _compare_accuracies(
    report: LockReporter, path: str, before: LockedModel, after: LockedModel, fix: str
) -> Iterator[PolicyChange]:
    from onnxgate.numerics.quantization import MARGIN_DB, MARGIN_TOP1, choose_float_bounds

    for output in sorted(before.quantization.keys() | after.quantization.keys()):
        old, new = (choose_float_bounds(entry, output) for entry in (before, after))
        if old != new:
            required = [f"{bounds.sqnr_db:.3g} dB and top-1 {bounds.top1:.1%}" for bounds in (old, new)]
            message = f"the required accuracy of output `{output}` of `{path}` changed from {' to '.join(required)}"
            is_weaker = old.sqnr_db - new.sqnr_db > MARGIN_DB or old.top1 - new.top1 > MARGIN_TOP1
            keys = ("models", path, "quantization", output)
            yield report.change(f"accuracy {path} {output}", message, *keys, is_weaker=is_weaker, fix=fix)
