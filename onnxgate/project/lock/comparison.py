"""Compare a lock with the config, the models and an earlier lock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.project.config.schema import Config, Target, Toolchain
from onnxgate.project.engines import is_library
from onnxgate.project.lock.types import Lock, LockedModel, LockedRuntime, LockedTarget, LockedToolchain

MAX_LISTED_OPERATORS = 4
BYTES_ONLY_CHANGE = "its bytes; interface, stamps and operators are the same"


_SHARED_FIELDS = tuple(name for name in LockedModel.__struct_fields__ if name in ModelFacts.__struct_fields__)


def entry_from_facts(facts: ModelFacts) -> LockedModel:
    """Return a model's facts as an entry of the lock."""
    return LockedModel(**{name: getattr(facts, name) for name in _SHARED_FIELDS})


def facts_from_entry(path: str, entry: LockedModel) -> ModelFacts:
    """Return the facts of a locked model, for a Git LFS pointer to the locked content."""
    return ModelFacts(path=path, **{name: getattr(entry, name) for name in _SHARED_FIELDS})


def has_same_content(old: LockedModel, new: LockedModel) -> bool:
    """Return whether model and external data are the same bytes."""
    return old.sha256 == new.sha256 and sorted(old.external) == sorted(new.external)


def describe_model_changes(old: LockedModel, new: LockedModel) -> tuple[str, ...]:
    """Return the differences between two contents of one model, the most severe first; none for the same bytes."""
    if has_same_content(old, new):
        return ()
    changes = [
        *_interface_changes("input", old.inputs, new.inputs),
        *_interface_changes("output", old.outputs, new.outputs),
        *_opset_changes(old.opsets, new.opsets),
        *(
            f"in a local function {opset_change}"
            for opset_change in _opset_changes(old.function_opsets, new.function_opsets)
        ),
        *_version_changes(old, new),
        *_operator_changes(old.operators, new.operators),
        *_name_changes("metadata key", old.metadata_keys, new.metadata_keys),
        *_data_file_changes(old, new),
    ]
    return tuple(changes) or (BYTES_ONLY_CHANGE,)


def find_misrecorded_keys(entry: LockedModel, facts: LockedModel) -> tuple[str, ...]:
    """Return the keys of the lock that differ from the file's facts; none if the file is not the locked one."""
    if not has_same_content(entry, facts):
        return ()
    wrong = [key for key in _RECORDED_KEYS if getattr(entry, key) != getattr(facts, key)]
    if sorted(entry.metadata_keys) != sorted(facts.metadata_keys):
        wrong.append("metadata_keys")
    return tuple(key.replace("_", "-") for key in wrong)


_RECORDED_KEYS = (
    *("size_bytes", "ir_version", "opsets", "producer", "inputs", "outputs"),
    *("operators", "function_opsets"),
)


def _interface_changes(kind: str, old: Sequence[ValueInfo], new: Sequence[ValueInfo]) -> Iterator[str]:
    before, after = {value.name: value for value in old}, {value.name: value for value in new}
    yield from _name_changes(kind, before, after)
    for name in (name for name in after if name in before):
        yield from _value_changes(f"{kind} `{name}`", before[name], after[name])
    if list(before) != list(after) and before.keys() == after.keys():
        yield f"{kind}s are in another order"


def _value_changes(what: str, old: ValueInfo, new: ValueInfo) -> Iterator[str]:
    if old.type != new.type:
        yield f"{what} is `{new.type}` instead of `{old.type}`"
    if old.shape != new.shape:
        yield f"{what} has {_render_shape(new)} instead of {_render_shape(old)}"


def _render_shape(value: ValueInfo) -> str:
    return "no shape" if value.shape is None else f"the shape [{', '.join(map(str, value.shape))}]"


def _opset_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    for domain in sorted(old.keys() | new.keys()):
        match old.get(domain), new.get(domain):
            case None, version:
                yield f"imports opset {version} of `{domain}`"
            case version, None:
                yield f"no longer imports `{domain}`"
            case before, after if before != after:
                yield f"imports opset {after} of `{domain}` instead of {before}"


def _version_changes(old: LockedModel, new: LockedModel) -> Iterator[str]:
    if old.ir_version != new.ir_version:
        yield f"IR version {new.ir_version} instead of {old.ir_version}"
    if old.producer != new.producer:
        yield f"made by `{new.producer}` instead of `{old.producer}`"


def _operator_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    differing = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in differing[:MAX_LISTED_OPERATORS]:
        yield _describe_operator_change(name, old.get(name), new.get(name))
    if len(differing) > MAX_LISTED_OPERATORS:
        yield f"{len(differing) - MAX_LISTED_OPERATORS} more operators differ in number"


def _describe_operator_change(name: str, before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return f"operator `{name}` is {'new' if before is None else 'gone'}"
    return f"{after} x `{name}` instead of {before}"


def _data_file_changes(old: LockedModel, new: LockedModel) -> Iterator[str]:
    before = {file.location: file for file in old.external}
    after = {file.location: file for file in new.external}
    yield from _name_changes("data file", before, after)
    for location in sorted(before.keys() & after.keys()):
        if before[location] != after[location]:
            yield f"data file `{location}` has other bytes"


def _name_changes(kind: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    yield from (f"{kind} `{name}` is gone" for name in before if name not in after)
    yield from (f"{kind} `{name}` is new" for name in after if name not in before)


def describe_lock_changes(old: Lock, new: Lock) -> tuple[str, ...]:
    """Return a line for each addition, update and removal."""
    return (
        *_target_changes(old.targets, new.targets),
        *_toolchain_changes(old.toolchain, new.toolchain),
        *_models_changes(old.models, new.models),
    )


def count_kept_runtimes(old: Lock, new: Lock) -> int:
    """Return how many runtimes of the new lock are in the old one, for the same target."""
    return sum(len(set(_target_runtimes(old, name)) & set(_target_runtimes(new, name))) for name in new.targets)


def _target_runtimes(lock: Lock, target: str) -> tuple[object, ...]:
    return lock.targets[target].runtimes if target in lock.targets else ()


def _target_changes(old: Mapping[str, LockedTarget], new: Mapping[str, LockedTarget]) -> Iterator[str]:
    for name, target in sorted(new.items()):
        if name not in old:
            yield f"added target `{name}`: {_render_runtime_names(target)}"
        elif old[name] != target:
            changes = "; ".join(_pin_changes(old[name], target)) or _describe_digest_change(old[name], target)
            yield f"updated target `{name}`: {changes}"
    yield from (f"removed target `{name}`" for name in sorted(old.keys() - new.keys()))


def _describe_digest_change(old: LockedTarget, new: LockedTarget) -> str:
    return "its policy, and no pin" if old.policy != new.policy else "the digest of its runtimes, and no pin"


def _render_runtime_names(target: LockedTarget) -> str:
    releases = [runtime.release for runtime in target.runtimes]
    engines = sorted({runtime.variant for runtime in target.runtimes})
    return f"{' and '.join(engines)} {', '.join(releases)}" if releases else "without a runtime"


def _pin_changes(old: LockedTarget, new: LockedTarget) -> Iterator[str]:
    before = {runtime.name: runtime for runtime in old.runtimes}
    after = {runtime.name: runtime for runtime in new.runtimes}
    if added := [name for name in after if name not in before]:
        yield f"added {', '.join(added)}"
    if removed := [name for name in before if name not in after]:
        yield f"removed {', '.join(removed)}"
    for name in (name for name in after if name in before and before[name] != after[name]):
        pins = sorted(set(after[name].packages) - set(before[name].packages))
        yield f"{name} now with {', '.join(pins) or f'Python {after[name].python}'}"


def _toolchain_changes(old: LockedToolchain | None, new: LockedToolchain | None) -> Iterator[str]:
    match old, new:
        case None, LockedToolchain():
            yield f"added the toolchain: {_render_packages(new)}"
        case LockedToolchain(), None:
            yield "removed the toolchain"
        case LockedToolchain(), LockedToolchain() if old != new:
            yield f"updated the toolchain: {_render_packages(new)}"


def _render_packages(toolchain: LockedToolchain) -> str:
    packages = [f"{name} {version}" for name, version in sorted(toolchain.packages.items())]
    return ", ".join([f"Python {toolchain.python}", *packages])


def _models_changes(old: Mapping[str, LockedModel], new: Mapping[str, LockedModel]) -> Iterator[str]:
    for path, model in sorted(new.items()):
        if path not in old:
            yield f"added `{path}`"
        elif changes := describe_model_changes(old[path], model):
            yield f"updated `{path}`: {'; '.join(changes)}"
        elif old[path] != model:
            yield f"updated `{path}`: what is recorded of it, the file is the same"
    yield from (f"removed `{path}`" for path in sorted(old.keys() - new.keys()))


def target_policy(target: Target) -> str:
    """
    Return the digest of a target's keys that decide which runtimes it has.

    Keys that were added later are left out if they are not set, so that older locks stay valid.
    """
    keys: dict[str, object] = {"runtime": canonical_requirement(target.runtime), "select": target.select}
    if target.extensions:
        keys["extensions"] = canonical_extensions(target)
    if target.python is not None:
        keys["python"] = target.python
    return _digest(keys)


def canonical_extensions(target: Target) -> tuple[str, ...]:
    """Return the target's extensions in the order in which they are registered, with canonical requirements."""
    return tuple(text if is_library(text) else canonical_requirement(text) for text in target.extensions)


def toolchain_policy(toolchain: Toolchain) -> str:
    """Return the digest of the toolchain's requirements; its location does not matter."""
    return _digest({"requires": sorted(canonical_requirement(text) for text in toolchain.requires)})


def resolved_digest(runtimes: Iterable[LockedRuntime]) -> str:
    """Return the digest of a target's runtimes, independent of their order."""
    return _digest({"runtimes": sorted(map(_runtime_fields, runtimes))})


def _runtime_fields(runtime: LockedRuntime) -> list[str]:
    later = [f"extension {extension}" for extension in runtime.extensions]
    later += [f"environment {runtime.environment}"] if runtime.environment else []
    return [runtime.engine, runtime.release, runtime.python, *sorted(runtime.packages), *later]


def canonical_requirement(requirement: str) -> str:
    """Return a requirement in its canonical form: `onnxruntime<1.32,>=1.18`."""
    parsed = Requirement(requirement)
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    marker = f" ; {parsed.marker}" if parsed.marker else ""
    clauses = ",".join(sorted(str(clause) for clause in parsed.specifier))
    return f"{canonicalize_name(parsed.name)}{extras}{clauses}{marker}"


def policy_differences(config: Config, lock: Lock) -> tuple[str, ...]:
    """Return a sentence for each difference between config and lock. A newer release is not a difference."""
    return (*_target_differences(config, lock), *_toolchain_differences(config, lock))


def _target_differences(config: Config, lock: Lock) -> Iterator[str]:
    for name, target in sorted(config.targets.items()):
        locked = lock.targets.get(name)
        if locked is None:
            yield f"target `{name}` is not locked"
        elif locked.policy != target_policy(target):
            yield f"target `{name}` was locked for another policy than {_describe_policy(target)}"
        else:
            yield from runtime_differences(name, target, locked)
            yield from _missing_wheels(name, locked, lock)
    for name in sorted(lock.targets.keys() - config.targets.keys()):
        yield f"target `{name}` is locked, and the config has it no longer"


def _describe_policy(target: Target) -> str:
    """Return the keys that decide the runtimes, as they are in the config."""
    words = [f"`{target.runtime}`"]
    words += [f'`select = "{target.select}"`'] if target.python is None else [f'`python = "{target.python}"`']
    named = ", ".join(f'"{extension}"' for extension in target.extensions)
    words += [f"`extensions = [{named}]`"] if named else []
    return ", ".join(words)


def runtime_differences(name: str, target: Target, locked: LockedTarget) -> Iterator[str]:
    """Yield the differences between a target's requirement and its locked runtimes, whatever policy is locked."""
    if not locked.runtimes:
        if not is_optional_build(target):
            yield f"target `{name}` is locked without any runtime{_missing_build_hint(target)}"
        return
    for runtime in locked.runtimes:
        yield from _row_differences(name, target, runtime)
    most = _MAX_RUNTIMES.get(target.select) if target.python is None else 1
    if most is not None and len(locked.runtimes) > most:
        count, takes = f"{len(locked.runtimes)} runtimes", f'select = "{target.select}"'
        takes = takes if target.python is None else f'python = "{target.python}"'
        yield f"target `{name}` is locked with {count}, and `{takes}` takes {most}"
    if locked.resolved and locked.resolved != resolved_digest(locked.runtimes):
        yield f"the runtimes of target `{name}` are not those that were resolved"


def _missing_build_hint(target: Target) -> str:
    """Return the hint for an own environment without the engine: locking again would not help."""
    if target.python is None:
        return ""
    return f", since `{target.python}` had no build of it: install one there first, or write `required = false`"


def _row_differences(name: str, target: Target, runtime: LockedRuntime) -> Iterator[str]:
    if not satisfies(runtime, Requirement(target.runtime)):
        yield f"target `{name}` is locked with {runtime.name}, which does not satisfy `{target.runtime}`"
    if runtime.extensions != canonical_extensions(target) or runtime.environment != (target.python or ""):
        yield f"target `{name}` is locked with {runtime.name}, which is not what {_describe_policy(target)} asks for"


def is_optional_build(target: Target) -> bool:
    """Return whether the target's environment is optional, so that it may be missing from the lock."""
    return target.python is not None and not target.required


def satisfies(runtime: LockedRuntime, requirement: Requirement) -> bool:
    """Return whether a runtime satisfies a requirement."""
    has_engine = runtime.engine == canonicalize_name(requirement.name)
    return has_engine and requirement.specifier.contains(runtime.release, prereleases=True)


_MAX_RUNTIMES = {"newest": 1, "bounds": 2}


def _missing_wheels(name: str, target: LockedTarget, lock: Lock) -> Iterator[str]:
    pinned = {(f"{package.name}=={package.version}", package.python) for package in lock.pinned}
    for runtime in target.runtimes:
        for pin in runtime.packages if not runtime.environment else ():
            if (pin, runtime.python) not in pinned:
                what = f"for Python {runtime.python}, and the lock has no wheels of it"
                what = what if runtime.python else "of npm, and the lock has no integrity of it"
                yield f"target `{name}` needs `{pin}` {what}"


def _toolchain_differences(config: Config, lock: Lock) -> Iterator[str]:
    required = ", ".join(f"`{text}`" for text in config.toolchain.requires)
    if lock.toolchain is None:
        if required:
            yield f"the toolchain is not locked; the config requires {required}"
    elif lock.toolchain.policy != toolchain_policy(config.toolchain):
        yield f"the toolchain was locked for other requirements than {required or 'none'}"


def _digest(values: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
