"""What changed between two states of a lock or of one model, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxgate.lock.types import Lock, LockedModel, LockedTarget, LockedToolchain
from onnxgate.model.facts import ModelFacts, ValueInfo

OPERATORS_SAID = 4
ONLY_BYTES = "its bytes; interface, stamps and operators are the same"


def entry_of(facts: ModelFacts) -> LockedModel:
    """A model's facts as the lock has them."""
    return LockedModel(
        sha256=facts.sha256,
        size_bytes=facts.size_bytes,
        ir_version=facts.ir_version,
        opsets=facts.opsets,
        producer=facts.producer,
        inputs=facts.inputs,
        outputs=facts.outputs,
        operators=facts.operators,
        metadata_keys=facts.metadata_keys,
        external=facts.external,
        function_opsets=facts.function_opsets,
    )


def facts_of(path: str, entry: LockedModel) -> ModelFacts:
    """A lock's entry as facts: what a Git LFS pointer to the locked content stands for."""
    return ModelFacts(
        path=path,
        sha256=entry.sha256,
        size_bytes=entry.size_bytes,
        ir_version=entry.ir_version,
        opsets=entry.opsets,
        producer=entry.producer,
        inputs=entry.inputs,
        outputs=entry.outputs,
        operators=entry.operators,
        metadata_keys=entry.metadata_keys,
        external=entry.external,
        function_opsets=entry.function_opsets,
    )


def same_content(old: LockedModel, new: LockedModel) -> bool:
    """Whether model and external data are the same bytes."""
    return old.sha256 == new.sha256 and sorted(old.external) == sorted(new.external)


def model_changes(old: LockedModel, new: LockedModel) -> tuple[str, ...]:
    """What differs between two contents of one model, the gravest first; empty where they are the same bytes."""
    if same_content(old, new):
        return ()
    said = [
        *_interface("input", old.inputs, new.inputs),
        *_interface("output", old.outputs, new.outputs),
        *_opsets(old.opsets, new.opsets),
        *(f"in a local function {each}" for each in _opsets(old.function_opsets, new.function_opsets)),
        *_stamps(old, new),
        *_operators(old.operators, new.operators),
        *_keys("metadata key", old.metadata_keys, new.metadata_keys),
        *_data(old, new),
    ]
    return tuple(said) or (ONLY_BYTES,)


def misrecorded(entry: LockedModel, facts: LockedModel) -> tuple[str, ...]:
    """The keys of the lock that say something else than the file; empty where the bytes are not the locked ones."""
    if not same_content(entry, facts):
        return ()
    wrong = [key for key in _RECORDED if getattr(entry, key) != getattr(facts, key)]
    if sorted(entry.metadata_keys) != sorted(facts.metadata_keys):
        wrong.append("metadata_keys")
    return tuple(key.replace("_", "-") for key in wrong)


_RECORDED = (
    *("size_bytes", "ir_version", "opsets", "producer", "inputs", "outputs"),
    *("operators", "function_opsets"),
)


def _interface(kind: str, old: Sequence[ValueInfo], new: Sequence[ValueInfo]) -> Iterator[str]:
    before, after = {value.name: value for value in old}, {value.name: value for value in new}
    yield from _keys(kind, before, after)
    for name in (name for name in after if name in before):
        yield from _value_changes(f"{kind} `{name}`", before[name], after[name])
    if list(before) != list(after) and before.keys() == after.keys():
        yield f"{kind}s are in another order"


def _value_changes(what: str, old: ValueInfo, new: ValueInfo) -> Iterator[str]:
    if old.type != new.type:
        yield f"{what} is `{new.type}` instead of `{old.type}`"
    if old.shape != new.shape:
        yield f"{what} has {_shape(new)} instead of {_shape(old)}"


def _shape(value: ValueInfo) -> str:
    return "no shape" if value.shape is None else f"the shape [{', '.join(map(str, value.shape))}]"


def _opsets(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    for domain in sorted(old.keys() | new.keys()):
        match old.get(domain), new.get(domain):
            case None, version:
                yield f"imports opset {version} of `{domain}`"
            case version, None:
                yield f"no longer imports `{domain}`"
            case before, after if before != after:
                yield f"imports opset {after} of `{domain}` instead of {before}"


def _stamps(old: LockedModel, new: LockedModel) -> Iterator[str]:
    if old.ir_version != new.ir_version:
        yield f"IR version {new.ir_version} instead of {old.ir_version}"
    if old.producer != new.producer:
        yield f"made by `{new.producer}` instead of `{old.producer}`"


def _operators(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    differing = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in differing[:OPERATORS_SAID]:
        yield _operator(name, old.get(name), new.get(name))
    if len(differing) > OPERATORS_SAID:
        yield f"{len(differing) - OPERATORS_SAID} more operators differ in number"


def _operator(name: str, before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return f"operator `{name}` is {'new' if before is None else 'gone'}"
    return f"{after} x `{name}` instead of {before}"


def _data(old: LockedModel, new: LockedModel) -> Iterator[str]:
    before = {file.location: file for file in old.external}
    after = {file.location: file for file in new.external}
    yield from _keys("data file", before, after)
    for location in sorted(before.keys() & after.keys()):
        if before[location] != after[location]:
            yield f"data file `{location}` has other bytes"


def _keys(kind: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    yield from (f"{kind} `{name}` is gone" for name in before if name not in after)
    yield from (f"{kind} `{name}` is new" for name in after if name not in before)


def lock_changes(old: Lock, new: Lock) -> tuple[str, ...]:
    """What was added, updated and removed, a line each."""
    return (
        *_target_changes(old.targets, new.targets),
        *_toolchain_changes(old.toolchain, new.toolchain),
        *_models_changes(old.models, new.models),
    )


def kept_pins(old: Lock, new: Lock) -> int:
    """How many runtimes of the new lock the old one had already, for the same target."""
    return sum(len(set(_of(old, name)) & set(_of(new, name))) for name in new.targets)


def _of(lock: Lock, target: str) -> tuple[object, ...]:
    return lock.targets[target].runtimes if target in lock.targets else ()


def _target_changes(old: Mapping[str, LockedTarget], new: Mapping[str, LockedTarget]) -> Iterator[str]:
    for name, target in sorted(new.items()):
        if name not in old:
            yield f"added target `{name}`: {_names(target)}"
        elif old[name] != target:
            said = "; ".join(_pin_changes(old[name], target)) or _unseen_change(old[name], target)
            yield f"updated target `{name}`: {said}"
    yield from (f"removed target `{name}`" for name in sorted(old.keys() - new.keys()))


def _unseen_change(old: LockedTarget, new: LockedTarget) -> str:
    return "its policy, and no pin" if old.policy != new.policy else "the digest of its runtimes, and no pin"


def _names(target: LockedTarget) -> str:
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
            yield f"added the toolchain: {_packages(new)}"
        case LockedToolchain(), None:
            yield "removed the toolchain"
        case LockedToolchain(), LockedToolchain() if old != new:
            yield f"updated the toolchain: {_packages(new)}"


def _packages(toolchain: LockedToolchain) -> str:
    packages = [f"{name} {version}" for name, version in sorted(toolchain.packages.items())]
    return ", ".join([f"Python {toolchain.python}", *packages])


def _models_changes(old: Mapping[str, LockedModel], new: Mapping[str, LockedModel]) -> Iterator[str]:
    for path, model in sorted(new.items()):
        if path not in old:
            yield f"added `{path}`"
        elif said := model_changes(old[path], model):
            yield f"updated `{path}`: {'; '.join(said)}"
        elif old[path] != model:
            yield f"updated `{path}`: what is recorded of it, the file is the same"
    yield from (f"removed `{path}`" for path in sorted(old.keys() - new.keys()))
