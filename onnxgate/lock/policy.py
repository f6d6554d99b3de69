"""What a target or the toolchain asks for, as a digest: where it is the locked one, the pins stay."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.config.extensions import is_library
from onnxgate.config.types import Config, Target, Toolchain
from onnxgate.lock.types import Lock, LockedRuntime, LockedTarget


def target_policy(target: Target) -> str:
    """The digest of what decides a target's runtimes; how they are used does not.

    A key that came later is left out where it says nothing, so that older locks do not become stale.
    """
    said: dict[str, object] = {"runtime": canonical(target.runtime), "select": target.select}
    if target.extensions:
        said["extensions"] = asked_extensions(target)
    if target.python is not None:
        said["python"] = target.python
    return _digest(said)


def asked_extensions(target: Target) -> tuple[str, ...]:
    """The target's extensions in the order in which they are registered, requirements in one spelling."""
    return tuple(text if is_library(text) else canonical(text) for text in target.extensions)


def toolchain_policy(toolchain: Toolchain) -> str:
    """The digest of what the toolchain must have; where it lies does not matter."""
    return _digest({"requires": sorted(canonical(text) for text in toolchain.requires)})


def resolved_digest(runtimes: Iterable[LockedRuntime]) -> str:
    """The digest of the rows of a target, in whatever order they stand."""
    return _digest({"runtimes": sorted(map(_row, runtimes))})


def _row(runtime: LockedRuntime) -> list[str]:
    later = [f"extension {each}" for each in runtime.extensions]
    later += [f"environment {runtime.environment}"] if runtime.environment else []
    return [runtime.engine, runtime.release, runtime.python, *sorted(runtime.packages), *later]


def canonical(requirement: str) -> str:
    """A requirement in one spelling: `onnxruntime<1.32,>=1.18`."""
    parsed = Requirement(requirement)
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    marker = f" ; {parsed.marker}" if parsed.marker else ""
    clauses = ",".join(sorted(str(clause) for clause in parsed.specifier))
    return f"{canonicalize_name(parsed.name)}{extras}{clauses}{marker}"


def policy_differences(config: Config, lock: Lock) -> tuple[str, ...]:
    """Where the lock is not one of this config, a sentence each. A newer release of something is no difference."""
    return (*_target_differences(config, lock), *_toolchain_differences(config, lock))


def _target_differences(config: Config, lock: Lock) -> Iterator[str]:
    for name, target in sorted(config.targets.items()):
        locked = lock.targets.get(name)
        if locked is None:
            yield f"target `{name}` is not locked"
        elif locked.policy != target_policy(target):
            yield f"target `{name}` was locked for another policy than {_asked(target)}"
        else:
            yield from runtime_differences(name, target, locked)
            yield from _missing_wheels(name, locked, lock)
    for name in sorted(lock.targets.keys() - config.targets.keys()):
        yield f"target `{name}` is locked, and the config has it no longer"


def _asked(target: Target) -> str:
    """What decides the runtimes, as the config spells it."""
    words = [f"`{target.runtime}`"]
    words += [f'`select = "{target.select}"`'] if target.python is None else [f'`python = "{target.python}"`']
    named = ", ".join(f'"{each}"' for each in target.extensions)
    words += [f"`extensions = [{named}]`"] if named else []
    return ", ".join(words)


def runtime_differences(name: str, target: Target, locked: LockedTarget) -> Iterator[str]:
    """Where a target's rows, of whatever policy the lock says they are, are not what its requirement asks for."""
    if not locked.runtimes:
        if not may_be_absent(target):
            yield f"target `{name}` is locked without any runtime{_where_none(target)}"
        return
    for runtime in locked.runtimes:
        yield from _row_differences(name, target, runtime)
    most = _MOST.get(target.select) if target.python is None else 1
    if most is not None and len(locked.runtimes) > most:
        count, takes = f"{len(locked.runtimes)} runtimes", f'select = "{target.select}"'
        takes = takes if target.python is None else f'python = "{target.python}"'
        yield f"target `{name}` is locked with {count}, and `{takes}` takes {most}"
    if locked.resolved and locked.resolved != resolved_digest(locked.runtimes):
        yield f"the runtimes of target `{name}` are not those that were resolved"


def _where_none(target: Target) -> str:
    """Locking again finds none either before that is mended."""
    if target.python is None:
        return ""
    return f", since `{target.python}` had no build of it: install one there first, or write `required = false`"


def _row_differences(name: str, target: Target, runtime: LockedRuntime) -> Iterator[str]:
    if not satisfies(runtime, Requirement(target.runtime)):
        yield f"target `{name}` is locked with {runtime.name}, which does not satisfy `{target.runtime}`"
    if runtime.extensions != asked_extensions(target) or runtime.environment != (target.python or ""):
        yield f"target `{name}` is locked with {runtime.name}, which is not what {_asked(target)} asks for"


def may_be_absent(target: Target) -> bool:
    """Whether a machine may lack the target's environment, so that it need not be locked."""
    return target.python is not None and not target.required


def satisfies(runtime: LockedRuntime, requirement: Requirement) -> bool:
    """Whether a row is a release of what is asked for."""
    right_engine = runtime.engine == canonicalize_name(requirement.name)
    return right_engine and requirement.specifier.contains(runtime.release, prereleases=True)


_MOST = {"newest": 1, "bounds": 2}


def _missing_wheels(name: str, target: LockedTarget, lock: Lock) -> Iterator[str]:
    known = {(f"{package.name}=={package.version}", package.python) for package in lock.pinned}
    for runtime in target.runtimes:
        for pin in runtime.packages if not runtime.environment else ():
            if (pin, runtime.python) not in known:
                what = f"for Python {runtime.python}, and the lock has no wheels of it"
                what = what if runtime.python else "of npm, and the lock has no integrity of it"
                yield f"target `{name}` needs `{pin}` {what}"


def _toolchain_differences(config: Config, lock: Lock) -> Iterator[str]:
    asked = ", ".join(f"`{text}`" for text in config.toolchain.requires)
    if lock.toolchain is None:
        if asked:
            yield f"the toolchain is not locked; the config requires {asked}"
    elif lock.toolchain.policy != toolchain_policy(config.toolchain):
        yield f"the toolchain was locked for other requirements than {asked or 'none'}"


def _digest(said: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
