"""Compare a lock with the config, the models and an earlier lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.core.text import join_phrases
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.interface_matching import ValuePair, match_values
from onnxgate.project.config.schema import Config, ReleaseSelection, Target, Toolchain
from onnxgate.project.engines import is_library, is_satisfied
from onnxgate.project.lock.types import Lock, LockedModel, LockedRuntime, LockedTarget, LockedToolchain, digest_values

MAX_LISTED_OPERATORS = 4
BYTES_ONLY_CHANGE = "only its bytes; interface, version fields and operators are the same"


_SHARED_FIELDS = tuple(name for name in LockedModel.__struct_fields__ if name in ModelFacts.__struct_fields__)


def entry_from_facts(facts: ModelFacts) -> LockedModel:
    """Return a model's facts as an entry of the lock."""
    return LockedModel(**{name: getattr(facts, name) for name in _SHARED_FIELDS})


def facts_from_entry(path: str, entry: LockedModel) -> ModelFacts:
    """Return the facts of a locked model, for use with a Git LFS pointer to the locked content."""
    return ModelFacts(path=path, **{name: getattr(entry, name) for name in _SHARED_FIELDS})


def has_same_content(old: LockedModel, new: LockedModel) -> bool:
    """Return whether the model and its external data have the same bytes in both entries."""
    return old.sha256 == new.sha256 and sorted(old.external) == sorted(new.external)


def describe_model_changes(old: LockedModel, new: LockedModel) -> tuple[str, ...]:
    """Return the differences between two versions of a model, the most severe first; none if the bytes are the same."""
    if has_same_content(old, new):
        return ()
    changes = [
        *_interface_changes("input", old.inputs, new.inputs),
        *_interface_changes("output", old.outputs, new.outputs),
        *_opset_changes(old.opsets, new.opsets),
        *(f"in a local function {change}" for change in _opset_changes(old.function_opsets, new.function_opsets)),
    ]
    if old.ir_version != new.ir_version:
        changes.append(f"IR version {new.ir_version} instead of {old.ir_version}")
    if old.producer != new.producer:
        changes.append(f"producer `{new.producer}` instead of `{old.producer}`")
    changes += _operator_changes(old.operators, new.operators)
    changes += _name_changes("metadata key", old.metadata_keys, new.metadata_keys)
    before, after = ({file.location: file for file in model.external} for model in (old, new))
    changes += _name_changes("data file", before, after)
    common = sorted(before.keys() & after.keys())
    changes += [
        f"data file `{location}` has different content" for location in common if before[location] != after[location]
    ]
    return tuple(changes) or (BYTES_ONLY_CHANGE,)


def find_misrecorded_keys(entry: LockedModel, facts: LockedModel) -> tuple[str, ...]:
    """Return the entry's keys that differ from the file's facts; none if the file has changed since it was locked."""
    if not has_same_content(entry, facts):
        return ()
    keys = ("size_bytes", "ir_version", "opsets", "producer", "inputs", "outputs", "operators", "function_opsets")
    wrong = [key for key in keys if getattr(entry, key) != getattr(facts, key)]
    if sorted(entry.metadata_keys) != sorted(facts.metadata_keys):
        wrong.append("metadata_keys")
    return tuple(key.replace("_", "-") for key in wrong)


def describe_renames(old: LockedModel, new: LockedModel) -> tuple[str, ...]:
    """Describe the inputs and outputs of a model that were renamed."""
    sides = (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs))
    return tuple(
        _describe_rename(kind, pair)
        for kind, before, after in sides
        for pair in match_values(before, after).pairs
        if pair.renamed
    )


def _describe_rename(kind: str, pair: ValuePair) -> str:
    return f"{kind} `{pair.after.name}` was named `{pair.before.name}`"


def _interface_changes(kind: str, old: Sequence[ValueInfo], new: Sequence[ValueInfo]) -> Iterator[str]:
    match = match_values(old, new)
    yield from (_describe_rename(kind, pair) for pair in match.pairs if pair.renamed)
    yield from (f"{kind} `{removed.value.name}` was removed" for removed in match.removed)
    yield from (f"{kind} `{added.value.name}` is new" for added in match.added)
    for pair in match.pairs:
        was, now = pair.before, pair.after
        if was.type != now.type:
            yield f"{kind} `{now.name}` is `{now.type}` instead of `{was.type}`"
        if was.shape != now.shape:
            yield f"{kind} `{now.name}` has shape {_render_shape(now)} instead of {_render_shape(was)}"
    positions = [pair.now for pair in match.pairs]
    if positions != sorted(positions):
        yield f"{kind}s are in a different order"


def _render_shape(value: ValueInfo) -> str:
    return "unknown" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"


def _opset_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    for domain in sorted(old.keys() | new.keys()):
        match old.get(domain), new.get(domain):
            case None, version:
                yield f"imports opset {version} of `{domain}`"
            case version, None:
                yield f"no longer imports `{domain}`"
            case before, after if before != after:
                yield f"imports opset {after} of `{domain}` instead of {before}"


def _operator_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    differing = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in differing[:MAX_LISTED_OPERATORS]:
        if name in old and name in new:
            yield f"{new[name]} x `{name}` instead of {old[name]}"
        else:
            yield f"operator `{name}` {'was removed' if name in old else 'is new'}"
    if len(differing) > MAX_LISTED_OPERATORS:
        yield f"the counts of {len(differing) - MAX_LISTED_OPERATORS} more operators differ"


def _name_changes(kind: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    yield from (f"{kind} `{name}` was removed" for name in before if name not in after)
    yield from (f"{kind} `{name}` is new" for name in after if name not in before)


def describe_lock_changes(old: Lock, new: Lock) -> tuple[str, ...]:
    """Return a line for each addition, update and removal."""
    changes = [*_target_changes(old.targets, new.targets)]
    if new.toolchain is None and old.toolchain is not None:
        changes.append("removed the toolchain")
    elif new.toolchain is not None and old.toolchain != new.toolchain:
        packages = [f"{name} {version}" for name, version in sorted(new.toolchain.packages.items())]
        verb = "added" if old.toolchain is None else "updated"
        changes.append(f"{verb} the toolchain: {', '.join([f'Python {new.toolchain.python}', *packages])}")
    for path, model in sorted(new.models.items()):
        if path not in old.models:
            changes.append(f"added `{path}`")
        elif differences := describe_model_changes(old.models[path], model):
            changes.append(f"updated `{path}`: {'; '.join(differences)}")
        elif old.models[path] != model:
            changes.append(f"updated `{path}`: the information recorded in the lock changed, but the file did not")
    return (*changes, *(f"removed `{path}`" for path in sorted(old.models.keys() - new.models.keys())))


def _target_changes(old: Mapping[str, LockedTarget], new: Mapping[str, LockedTarget]) -> Iterator[str]:
    for name, target in sorted(new.items()):
        if name not in old:
            engines = " and ".join(sorted({runtime.variant for runtime in target.runtimes}))
            releases = ", ".join(runtime.release for runtime in target.runtimes)
            yield f"added target `{name}`: {f'{engines} {releases}' if releases else 'without a runtime'}"
        elif old[name] != target:
            others = "its settings changed, but not its runtimes" if old[name].policy else "its runtimes are unchanged"
            changes = "; ".join(_pin_changes(old[name], target)) or others
            yield f"updated target `{name}`: {changes}"
    yield from (f"removed target `{name}`" for name in sorted(old.keys() - new.keys()))


def _pin_changes(old: LockedTarget, new: LockedTarget) -> Iterator[str]:
    before = {runtime.name: runtime for runtime in old.runtimes}
    after = {runtime.name: runtime for runtime in new.runtimes}
    if added := [name for name in after if name not in before]:
        yield f"added {', '.join(added)}"
    if removed := [name for name in before if name not in after]:
        yield f"removed {', '.join(removed)}"
    for name in (name for name in after if name in before and before[name] != after[name]):
        pins = sorted(set(after[name].packages) - set(before[name].packages))
        yield f"{name} now uses {', '.join(pins) or f'Python {after[name].python}'}"


def target_policy(target: Target) -> str:
    """Return the digest of a target's keys that determine its runtimes."""
    keys: dict[str, object] = {"runtime": canonical_requirement(target.runtime), "select": target.select}
    if target.extensions:
        keys["extensions"] = canonical_extensions(target)
    if target.python is not None:
        keys["python"] = target.python
    return digest_values(keys)


def canonical_extensions(target: Target) -> tuple[str, ...]:
    """Return the target's extensions in the order in which they are registered, with canonical requirements."""
    return tuple(text if is_library(text) else canonical_requirement(text) for text in target.extensions)


def toolchain_policy(toolchain: Toolchain) -> str:
    """Return the digest of the toolchain's requirements; the location of the toolchain does not matter."""
    return digest_values({"requires": sorted(canonical_requirement(text) for text in toolchain.requires)})


def canonical_requirement(requirement: str) -> str:
    """Return a requirement in its canonical form, such as `onnxruntime<1.32,>=1.18`."""
    parsed = Requirement(requirement)
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    marker = f" ; {parsed.marker}" if parsed.marker else ""
    clauses = ",".join(sorted(str(clause) for clause in parsed.specifier))
    return f"{canonicalize_name(parsed.name)}{extras}{clauses}{marker}"


def policy_differences(config: Config, lock: Lock) -> tuple[str, ...]:
    """Return a sentence for each difference between config and lock. A newer release is not a difference."""
    differences = []
    for name, target in sorted(config.targets.items()):
        locked = lock.targets.get(name)
        if locked is None:
            differences.append(f"target `{name}` is not locked")
        elif locked.policy != target_policy(target):
            keys = join_phrases([f"`{key}`" for key in _find_changed_keys(target, locked)]) or "settings"
            differences.append(f"{keys} of target `{name}` changed since the lock was written")
        else:
            differences += runtime_differences(name, target, locked)
    removed = sorted(lock.targets.keys() - config.targets.keys())
    differences += [f"target `{name}` is locked but no longer in the config" for name in removed]
    return (*differences, *toolchain_differences(config, lock))


def toolchain_differences(config: Config, lock: Lock) -> tuple[str, ...]:
    """Return a sentence if the locked toolchain is missing or does not match the config."""
    required = ", ".join(f"`{text}`" for text in config.toolchain.requires)
    if lock.toolchain is None and required:
        return (f"the toolchain is not locked; the config requires {required}",)
    if lock.toolchain is not None and lock.toolchain.policy != toolchain_policy(config.toolchain):
        return ("`requires` of `[toolchain]` changed since the lock was written",)
    return tuple(_find_unsatisfied(config.toolchain, lock.toolchain)) if lock.toolchain is not None else ()


def _find_unsatisfied(toolchain: Toolchain, locked: LockedToolchain) -> Iterator[str]:
    """Yield a sentence for each required package that is locked with another version, or not at all.

    Requirements with a marker may not apply, and the lock contains no local versions (`+cpu`).
    """
    versions = {canonicalize_name(name): version for name, version in locked.packages.items()}
    for text in toolchain.requires:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name), "")
        if requirement.marker is not None or "+" in str(requirement.specifier):
            continue
        if not version:
            yield f"the toolchain is locked without `{text}`"
        elif requirement.specifier and not is_satisfied(text, version):
            yield f"the toolchain is locked with {requirement.name} {version}, which does not satisfy `{text}`"


def _find_changed_keys(target: Target, locked: LockedTarget) -> tuple[str, ...]:
    """Return the target's keys that changed since it was locked. The lock contains only a digest of the keys.

    The changed keys are unknown if no runtime is locked.
    """
    if not locked.runtimes:
        return ()
    runtime = locked.runtimes[0]
    old = msgspec.structs.replace(target, python=runtime.environment or None, extensions=runtime.extensions)
    selections = get_args(ReleaseSelection)
    same_runtime = (msgspec.structs.replace(old, select=select) for select in selections)
    old = next((each for each in same_runtime if target_policy(each) == locked.policy), old)
    is_changed = {
        "runtime": target_policy(old) != locked.policy,
        "select": old.select != target.select,
        "python": old.python != target.python,
        "extensions": canonical_extensions(old) != canonical_extensions(target),
    }
    return tuple(key for key, changed in is_changed.items() if changed)


def _describe_policy(target: Target) -> str:
    """Return the keys that determine the runtimes, as written in the config."""
    words = [f"`{target.runtime}`"]
    words += [f'`select = "{target.select}"`'] if target.python is None else [f'`python = "{target.python}"`']
    named = ", ".join(f'"{extension}"' for extension in target.extensions)
    words += [f"`extensions = [{named}]`"] if named else []
    return ", ".join(words)


def runtime_differences(name: str, target: Target, locked: LockedTarget) -> Iterator[str]:
    """Yield the differences between a target's requirement and its locked runtimes, regardless of locked digests."""
    if not locked.runtimes:
        if not is_optional_build(target):
            build = f"`{target.python}` did not contain `{target.runtime}`"
            reason = f", because {build}; install the package in this environment, or set `required = false`"
            yield f"target `{name}` is locked without any runtime{'' if target.python is None else reason}"
        return
    requirement, extensions = Requirement(target.runtime), canonical_extensions(target)
    for runtime in locked.runtimes:
        if not satisfies(runtime, requirement):
            yield f"target `{name}` is locked with {runtime.name}, which does not satisfy `{target.runtime}`"
        if runtime.extensions != extensions or runtime.environment != (target.python or ""):
            policy = _describe_policy(target)
            yield f"target `{name}` is locked with {runtime.name}, which does not match {policy}"
    most = _MAX_RUNTIMES.get(target.select) if target.python is None else 1
    if most is not None and len(locked.runtimes) > most:
        selection = f'select = "{target.select}"' if target.python is None else f'python = "{target.python}"'
        yield f"target `{name}` is locked with {len(locked.runtimes)} runtimes, but `{selection}` allows {most}"


def is_optional_build(target: Target) -> bool:
    """Return whether the target's environment is optional, so that the lock may contain no runtime for it."""
    return target.python is not None and not target.required


def satisfies(runtime: LockedRuntime, requirement: Requirement) -> bool:
    """Return whether a runtime satisfies a requirement."""
    has_engine = runtime.engine == canonicalize_name(requirement.name)
    return has_engine and requirement.specifier.contains(runtime.release, prereleases=True)


_MAX_RUNTIMES = {"newest": 1, "bounds": 2}
