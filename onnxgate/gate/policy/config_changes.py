"""Compare the targets, rules, ignores and other settings for the whole project in two configs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from onnxgate import rules
from onnxgate.core.findings import Place, name_runtimes
from onnxgate.core.text import join_phrases, pluralize
from onnxgate.evidence.policy import PolicyChange
from onnxgate.project.config.globs import is_glob, matches
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Config, Ignore, Target, read_opset
from onnxgate.project.engines import engine_family, list_bounding_versions
from onnxgate.project.lock.comparison import canonical_requirement
from onnxgate.project.toml import quote_string
from onnxgate.support.limits import load_limit_table

LEVELS = ("off", "note", "warning", "error")
SELECTIONS = ("newest", "bounds", "minors", "all")
"""Values of `select`, from the fewest releases to the most."""
MAX_IR_VERSION = 100
"""IR versions below this one are tested. Source: the newest is 13 (onnx 1.23)."""


class PolicyReporter(msgspec.Struct, frozen=True):
    """Creates changes that are placed on keys of the current config."""

    project: Project

    def weaker(self, identity: str, message: str, *keys: str, fix: str = "") -> PolicyChange:
        """Return a change that checks less, at the line of a key."""
        place = self._find_place(*keys)
        return PolicyChange(place=place, message=message, identity=identity, is_weaker=True, fix=fix)

    def other(self, identity: str, message: str, *keys: str) -> PolicyChange:
        """Return a change that does not check less, at the line of a key."""
        return PolicyChange(place=self._find_place(*keys), message=message, identity=identity, is_weaker=False)

    def ranked(self, is_weaker: bool, identity: str, message: str, *keys: str, fix: str = "") -> PolicyChange:
        """Return a change at the line of a key."""
        return self.weaker(identity, message, *keys, fix=fix) if is_weaker else self.other(identity, message, *keys)

    def _find_place(self, *keys: str) -> Place:
        """Return the line of a key or of its nearest parent; for a removed key, of the first key next to it."""
        place = self.project.place(*keys)
        for prefix in (keys, keys[:-1], ()) if not place.line else ():
            full = (*self.project.prefix, *prefix)
            lines = [line for key, line in self.project.lines.items() if key[: len(full)] == full]
            if lines:
                return Place(place.path, min(lines))
        return place


def find_config_changes(report: PolicyReporter, before: Config, renamed: Mapping[str, str]) -> Iterator[PolicyChange]:
    """Yield the differences between the config of the baseline and the current one, except those about models.

    `renamed` maps the current paths of renamed models to their paths at the baseline.
    """
    after = report.project.config
    yield from _find_target_changes(report, before.targets, after.targets)
    yield from _find_rule_changes(report, before.rules, after.rules)
    yield from _find_ignore_changes(report, before.ignore, after.ignore, renamed)
    yield from _find_limit_changes(report, before, after)
    yield from _find_version_changes(report, before, after)
    yield from _find_toolchain_changes(report, before, after)


# Targets


def match_targets(before: Mapping[str, Target], after: Mapping[str, Target]) -> dict[str, str]:
    """Map the names of targets at the baseline to current names. A target with the same settings was renamed."""
    names = {name: name for name in before if name in after}
    added = [name for name in after if name not in before]
    for name in (name for name in before if name not in after):
        same = next((new for new in added if after[new] == before[name]), None)
        if same is not None:
            names[name] = same
            added.remove(same)
    return names


def _find_target_changes(
    report: PolicyReporter, before: Mapping[str, Target], after: Mapping[str, Target]
) -> Iterator[PolicyChange]:
    names = match_targets(before, after)
    for name, target in sorted(before.items()):
        now = names.get(name)
        if now is None:
            fix = f"restore `[targets.{name}]` with `runtime = {quote_string(target.runtime)}`"
            message = f"target `{name}` (`{target.runtime}`) was removed"
            yield report.weaker(f"target {name}", message, "targets", name, fix=fix)
        elif now != name:
            yield report.other(f"target {name}", f"target `{name}` was renamed to `{now}`", "targets", now)
        else:
            yield from _compare_target(report, name, target, after[name])
    for name in sorted(after.keys() - names.values()):
        message = f"target `{name}` (`{after[name].runtime}`) was added"
        yield report.other(f"target {name}", message, "targets", name)


def _compare_target(report: PolicyReporter, name: str, before: Target, after: Target) -> Iterator[PolicyChange]:
    table, at = ("targets", name), f"of target `{name}`"
    if canonical_requirement(before.runtime) != canonical_requirement(after.runtime):
        yield _compare_requirement(report, name, before.runtime, after.runtime)
    if before.select != after.select:
        is_less = SELECTIONS.index(after.select) < SELECTIONS.index(before.select)
        message = f"`select` {at} changed from `{before.select}` to `{after.select}`"
        message += ", which checks fewer releases" if is_less else ""
        fix = f'restore `select = "{before.select}"`'
        yield report.ranked(is_less, f"target {name} select", message, *table, "select", fix=fix)
    if before.required != after.required:
        message = f"target `{name}` is {'now required' if after.required else 'no longer required'}"
        fix = "remove `required = false`"
        yield report.ranked(before.required, f"target {name} required", message, *table, "required", fix=fix)
    yield from _compare_lists(report, table, "providers", "provider", before.providers, after.providers)
    yield from _compare_lists(report, table, "optimization", "level", before.optimization, after.optimization)
    if before.python != after.python:
        was, now = _describe_environment(before.python), _describe_environment(after.python)
        message = f"target `{name}` runs in {now} instead of {was}"
        yield report.ranked(before.python is None, f"target {name} python", message, *table, "python")
    if before.extensions != after.extensions:
        message = f"`extensions` {at} changed"
        yield report.other(f"target {name} extensions", message, *table, "extensions")


def _describe_environment(python: str | None) -> str:
    return "locked environments" if python is None else f"your environment `{python}`"


def _compare_lists(
    report: PolicyReporter, table: tuple[str, str], key: str, noun: str, before: Sequence[str], after: Sequence[str]
) -> Iterator[PolicyChange]:
    """Compare the elements of a key of a target."""
    lost = [value for value in before if value not in after]
    if lost:
        named = join_phrases([f"`{value}`" for value in lost])
        message = f"`{key}` of target `{table[1]}` no longer contains {named}"
        fix = f"add {named} to `{key}`"
        yield report.weaker(f"target {table[1]} {key}", message, *table, key, fix=fix)
    elif list(before) != list(after):
        message = f"`{key}` of target `{table[1]}` changed to {join_phrases([f'`{value}`' for value in after])}"
        yield report.other(f"target {table[1]} {key}", message, *table, key)


def _compare_requirement(report: PolicyReporter, name: str, before: str, after: str) -> PolicyChange:
    lost = find_lost_releases(before, after)
    message = f"`runtime` of target `{name}` changed from `{before}` to `{after}`"
    engine = canonicalize_name(Requirement(before).name)
    releases = _list_table_releases(engine)
    known = [f"{engine} {release}" for _, release in lost if release in releases]
    if known:
        listed = [f"{engine} {release}" for release in releases]
        verb = "is" if len(known) == 1 else "are"
        message += f"; {name_runtimes(known, listed)} {verb} no longer required"
    elif lost:
        message += ", which allows fewer releases"
    fix = f"restore `runtime = {quote_string(before)}`"
    return report.ranked(bool(lost), f"target {name} runtime", message, "targets", name, "runtime", fix=fix)


def find_lost_releases(before: str, after: str) -> list[tuple[str, str]]:
    """Return releases (engine and version) that satisfy the requirement `before` but not `after`.

    All known releases of the engine are tested, and versions around the bounds of both requirements.
    """
    was, now = Requirement(before), Requirement(after)
    engine = canonicalize_name(was.name)
    versions = _list_table_releases(engine)
    versions += list_bounding_versions(was.specifier) + list_bounding_versions(now.specifier)
    is_same_engine = engine == canonicalize_name(now.name)
    return [
        (engine, version)
        for version in dict.fromkeys(versions)
        if was.specifier.contains(version, prereleases=True)
        and not (is_same_engine and now.specifier.contains(version, prereleases=True))
    ]


def _list_table_releases(engine: str) -> list[str]:
    """Return the releases in the support table of an engine; builds of ONNX Runtime share its releases."""
    return list(load_limit_table(engine_family(engine)).releases)


# Rules


def _find_rule_changes(
    report: PolicyReporter, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[PolicyChange]:
    for rule in sorted(before.keys() | after.keys()):
        if rule not in rules.by_id:
            continue  # the rule of another release of onnxgate
        default = rules.by_id[rule].level.value
        was, now = before.get(rule, default), after.get(rule, default)
        if was != now:
            is_lower = LEVELS.index(now) < LEVELS.index(was)
            verb = "was turned off" if now == "off" else f"was {'lowered' if is_lower else 'raised'} to `{now}`"
            message = f"rule `{rule}` {verb} (previously `{was}`)"
            fix = f'restore `{rule} = "{was}"` under `[rules]`' if rule in before else f"remove `{rule}` from `[rules]`"
            yield report.ranked(is_lower, f"rule {rule}", message, "rules", rule, fix=fix)


# Ignores


def _find_ignore_changes(
    report: PolicyReporter, before: Sequence[Ignore], after: Sequence[Ignore], renamed: Mapping[str, str]
) -> Iterator[PolicyChange]:
    for index in find_new_ignores(before, after, renamed):
        entry = after[index]
        related = [old for old in before if (old.rule, old.model) == (entry.rule, entry.model)]
        name = f"`{entry.rule}` for `{entry.model}`"
        replaced = [old for old in before if old.rule == entry.rule and old not in after]
        if related:
            message = f"the `[[ignore]]` entry of {name} accepts more: {_describe_widening(related, entry)}"
        elif len(replaced) == 1:
            message = f"the `[[ignore]]` entry of {name} was changed; it applied to `{replaced[0].model}`"
        else:
            message = f"an `[[ignore]]` entry of {name} was added (reason: {entry.reason.strip()})"
        identity = f"ignore {entry.rule} {entry.model} {entry.sha256 or ''}"
        yield report.weaker(identity, message, "ignore", str(index), fix="remove the entry, or have it approved")
    kept = [*after, *_use_former_names(after, renamed)]
    removed = [old for old in before if not any(_covers_ignore(entry, old) for entry in kept)]
    for rule, model in sorted({(old.rule, old.model) for old in removed}):
        message = f"an `[[ignore]]` entry of `{rule}` for `{model}` was removed or restricted"
        yield report.other(f"ignore {rule} {model}", message, "ignore")


def find_new_ignores(before: Sequence[Ignore], after: Sequence[Ignore], renamed: Mapping[str, str]) -> list[int]:
    """Return the indexes of entries that accept findings that no single entry at the baseline accepts.

    `renamed` maps the current paths of renamed models to their paths at the baseline.
    """
    both = zip(after, _use_former_names(after, renamed), strict=True)
    return [
        index
        for index, entries in enumerate(both)
        if not any(_covers_ignore(old, entry) for old in before for entry in entries)
    ]


def _use_former_names(entries: Iterable[Ignore], renamed: Mapping[str, str]) -> list[Ignore]:
    return [msgspec.structs.replace(entry, model=renamed.get(entry.model, entry.model)) for entry in entries]


def _covers_ignore(old: Ignore, new: Ignore) -> bool:
    """Return whether `old` accepts every finding that `new` accepts."""
    return (
        old.rule == new.rule
        and (old.model in ("**", new.model) or (not is_glob(new.model) and matches(old.model, new.model)))
        and (old.until is None or (new.until is not None and new.until <= old.until))
        and (old.sha256 is None or old.sha256.lower() == (new.sha256 or "").lower())
        and (old.fingerprints is None or set(new.fingerprints or ("",)) <= set(old.fingerprints))
    )


def _describe_widening(related: Sequence[Ignore], entry: Ignore) -> str:
    """Describe what an entry accepts beyond the entries of the same rule and model at the baseline."""
    if entry.fingerprints is not None and all(old.fingerprints is not None for old in related):
        listed = {fingerprint for old in related for fingerprint in old.fingerprints or ()}
        added = len(set(entry.fingerprints) - listed)
        if added:
            return f"{pluralize(added, 'new fingerprint')}"
    if entry.fingerprints is None and all(old.fingerprints is not None for old in related):
        return "`fingerprints` was removed"
    if entry.sha256 is None and all(old.sha256 is not None for old in related):
        return "`sha256` was removed"
    if entry.sha256 is not None and all(old.sha256 not in (None, entry.sha256) for old in related):
        return "another version of the model (`sha256`)"
    return "no `until` date" if entry.until is None else f"`until` is {entry.until}"


# Limits, versions and toolchain


def _find_limit_changes(report: PolicyReporter, before: Config, after: Config) -> Iterator[PolicyChange]:
    rows: tuple[tuple[Literal["time-s", "memory-mib"], float | None, float | None], ...] = (
        ("time-s", before.limits.time_s, after.limits.time_s),
        ("memory-mib", before.limits.memory_mib, after.limits.memory_mib),
    )
    for key, was, now in rows:
        if was != now:
            is_looser = (now or float("inf")) > (was or float("inf"))
            message = f"`{key}` in `[limits]` changed from {_describe(was)} to {_describe(now)}"
            fix = f"restore `{key} = {was}`" if was is not None else f"remove `{key}`"
            yield report.ranked(is_looser, f"limits {key}", message, "limits", key, fix=fix)


def _describe(value: object) -> str:
    return "the default" if value is None else f"`{value}`"


def _find_version_changes(report: PolicyReporter, before: Config, after: Config) -> Iterator[PolicyChange]:
    if before.required_version != after.required_version:
        was, now = _describe(before.required_version), _describe(after.required_version)
        message = f"`required-version` changed from {was} to {now}".replace("the default", "any version")
        yield report.other("required-version", message, "required-version")
    if before.ir_version != after.ir_version:
        is_looser = _allows_more_ir_versions(before.ir_version, after.ir_version)
        message = f"`ir-version` changed from {_describe(before.ir_version)} to {_describe(after.ir_version)}"
        fix = f"restore `ir-version = {_toml(before.ir_version)}`"
        yield report.ranked(is_looser, "ir-version", message.replace("the default", "any"), "ir-version", fix=fix)
    old, new = read_opset(before.opset), read_opset(after.opset)
    for domain in sorted(old.keys() | new.keys()):
        was_opset, now_opset = old.get(domain), new.get(domain)
        if was_opset != now_opset:
            message = f"the required opset of `{domain}` changed from {_describe(was_opset)} to {_describe(now_opset)}"
            message = message.replace("the default", "any")
            fix = f'restore `opset = {{ "{domain}" = {was_opset} }}`'
            yield report.ranked(now_opset is None, f"opset {domain}", message, "opset", domain, fix=fix)


def _toml(value: object) -> str:
    return quote_string(value) if isinstance(value, str) else str(value)


def _allows_more_ir_versions(before: str | int | None, after: str | int | None) -> bool:
    """Return whether a requirement accepts more IR versions than before; another exact version is not more."""
    if before is None or (isinstance(before, int) and isinstance(after, int)):
        return False
    versions = range(1, MAX_IR_VERSION)
    return any(_accepts_ir(after, version) and not _accepts_ir(before, version) for version in versions)


def _accepts_ir(required: str | int | None, version: int) -> bool:
    if isinstance(required, str):
        return SpecifierSet(required).contains(str(version))
    return required in (None, version)


def _find_toolchain_changes(report: PolicyReporter, before: Config, after: Config) -> Iterator[PolicyChange]:
    was, now = (_by_package(config.toolchain.requires) for config in (before, after))
    for package in sorted(was.keys() - now.keys()):
        message = f"`requires` in `[toolchain]` no longer contains `{was[package]}`"
        fix = f"add `{was[package]}` to `requires`"
        yield report.weaker(f"toolchain {package}", message, "toolchain", "requires", fix=fix)
    for package in sorted(now.keys() - was.keys()):
        message = f"`requires` in `[toolchain]` now contains `{now[package]}`"
        yield report.other(f"toolchain {package}", message, "toolchain", "requires")
    for package in sorted(name for name in was.keys() & now.keys() if was[name] != now[name]):
        message = f"`requires` in `[toolchain]` changed from `{was[package]}` to `{now[package]}`"
        yield report.other(f"toolchain {package}", message, "toolchain", "requires")
    if before.toolchain.python != after.toolchain.python:
        message = "`python` in `[toolchain]` changed"
        yield report.other("toolchain python", message, "toolchain", "python")


def _by_package(requirements: Iterable[str]) -> dict[str, str]:
    return {canonicalize_name(Requirement(text).name): canonical_requirement(text) for text in requirements}
