"""Policies, and the changes that make a lock stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onnxgate.project.config.schema import Config, Target, Toolchain
from onnxgate.project.lock.comparison import (
    canonical_requirement,
    policy_differences,
    target_policy,
    toolchain_policy,
)
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget, LockedToolchain
from tests.harness.locks import package, runtime

SERVER = Target(runtime="onnxruntime>=1.18,<1.20")
NEWEST = Target(runtime=SERVER.runtime, select="newest")
OWN = Target(runtime="onnxruntime", python=".venv")
BUILD = LockedRuntime(engine="onnxruntime", release="1.19.2", environment=".venv")
RUNTIMES = (runtime("1.18.1", "1.26.4"), runtime("1.19.2"))
PACKAGES = (
    package("numpy", "1.26.4"),
    package("numpy", "2.4.6"),
    package("onnxruntime", "1.18.1"),
    package("onnxruntime", "1.19.2"),
)


def locked(policy: str = target_policy(SERVER), **fields: Any) -> Lock:
    """Create a lock of one target."""
    target = LockedTarget(policy=policy, runtimes=fields.pop("runtimes", RUNTIMES))
    return Lock(**{"targets": {"server": target}, "packages": PACKAGES, **fields})


TORCH = Toolchain(requires=("torch==2.13.*",))


def locked_torch(toolchain: Toolchain, version: str) -> LockedToolchain:
    """Return the lock of a toolchain with one package."""
    return LockedToolchain(policy=toolchain_policy(toolchain), python="3.11", packages={"torch": version})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("onnxruntime>=1.18,<1.20", "onnxruntime <1.20, >=1.18"),
        ("onnxruntime>=1.18", "ONNXRuntime >= 1.18"),
        ("onnx_ir[a,b]>=1", "onnx-ir [b,a] >= 1"),
    ],
)
def test_spelling(one: str, other: str) -> None:
    """Equivalent spellings of a requirement give the same policy."""

    assert canonical_requirement(one) == canonical_requirement(other)
    assert target_policy(Target(runtime=one)) == target_policy(Target(runtime=other))


OTHERS = (
    Target(runtime="onnxruntime>=1.18,<1.21"),
    Target(runtime=SERVER.runtime, select="newest"),
    Target(runtime=SERVER.runtime, extensions=("foo",)),
    Target(runtime=SERVER.runtime, extensions=("foo>1",)),
    Target(runtime=SERVER.runtime, extensions=("foo", "libs/foo.so")),
    Target(runtime=SERVER.runtime, extensions=("libs/foo.so", "foo")),
    Target(runtime=SERVER.runtime, python="foo"),
    Target(runtime=SERVER.runtime, python=".venv", extensions=("foo",)),
)


def test_settings_that_change_the_policy() -> None:
    """A different range, selection, environment, extension or order of extensions gives a different policy."""

    assert len({target_policy(each) for each in (SERVER, *OTHERS)}) == 1 + len(OTHERS)
    assert target_policy(OTHERS[3]) == target_policy(Target(runtime=SERVER.runtime, extensions=("Foo > 1",)))


@pytest.mark.parametrize("changed", [{"extensions": ("foo",)}, {"environment": ".venv"}])
def test_rows_that_were_changed(changed: dict[str, Any]) -> None:
    """Adding an extension or another environment to a row by hand is detected."""
    rows = (RUNTIMES[0], msgspec.structs.replace(RUNTIMES[1], **changed))
    (actual,) = policy_differences(Config(targets={"server": SERVER}), locked(runtimes=rows))

    assert actual.endswith('which does not match `onnxruntime>=1.18,<1.20`, `select = "minors"`')


def test_settings_that_do_not_change_the_policy() -> None:
    """Settings that only affect how runtimes are used do not change the policy."""
    used = Target(runtime=SERVER.runtime, optimization=("all",), required=False)

    assert target_policy(SERVER) == target_policy(used)
    assert toolchain_policy(Toolchain(requires=("a", "b"))) == toolchain_policy(
        Toolchain(python="x", requires=("b", "a"))
    )


def test_current() -> None:
    """A lock that was created from this config is not stale."""

    assert policy_differences(Config(targets={"server": SERVER}), locked()) == ()


@pytest.mark.parametrize(
    ("config", "lock", "expected"),
    [
        (Config(targets={"server": SERVER, "edge": SERVER}), locked(), "target `edge` is not locked"),
        (Config(), locked(), "target `server` is locked but no longer in the config"),
        (
            Config(targets={"server": SERVER}),
            locked("old"),
            "`runtime` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": NEWEST}),
            locked(),
            "`select` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": msgspec.structs.replace(NEWEST, extensions=("foo",))}),
            locked(),
            "`select` and `extensions` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": msgspec.structs.replace(SERVER, python=".venv")}),
            locked(),
            "`python` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": Target(runtime="onnxruntime>=1.18")}),
            locked(),
            "`runtime` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": OWN}),
            locked(target_policy(Target(runtime="onnxruntime", python="other")), runtimes=()),
            "settings of target `server` changed since the lock was written",
        ),
        (Config(targets={"server": SERVER}), locked(runtimes=()), "target `server` is locked without any runtime"),
        (
            Config(targets={"server": Target(runtime="onnxruntime==1.19.*")}),
            locked(target_policy(Target(runtime="onnxruntime==1.19.*"))),
            "target `server` is locked with onnxruntime 1.18.1, which does not satisfy `onnxruntime==1.19.*`",
        ),
        (
            Config(targets={"server": NEWEST}),
            locked(target_policy(NEWEST)),
            'target `server` is locked with 2 runtimes, but `select = "newest"` allows 1',
        ),
        (
            Config(targets={"server": Target(runtime="onnxruntime", extensions=("foo", "a.so"))}),
            locked("old"),
            "`runtime` and `extensions` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": OWN}),
            locked("old"),
            "`runtime` and `python` of target `server` changed since the lock was written",
        ),
        (
            Config(targets={"server": OWN}),
            locked(target_policy(OWN), runtimes=(BUILD, msgspec.structs.replace(BUILD, release="1.20.1"))),
            'target `server` is locked with 2 runtimes, but `python = ".venv"` allows 1',
        ),
        (
            Config(targets={"server": SERVER}, toolchain=Toolchain(requires=("torch==2.13.*",))),
            locked(),
            "the toolchain is not locked; the config requires `torch==2.13.*`",
        ),
        (
            Config(targets={"server": SERVER}, toolchain=Toolchain(requires=("torch==2.14.*",))),
            locked(toolchain=LockedToolchain(policy="old", python="3.11", packages={})),
            "`requires` of `[toolchain]` changed since the lock was written",
        ),
        (
            Config(targets={"server": SERVER}, toolchain=TORCH),
            locked(toolchain=LockedToolchain(policy=toolchain_policy(TORCH), python="3.11", packages={})),
            "the toolchain is locked without `torch==2.13.*`",
        ),
        (
            Config(targets={"server": SERVER}, toolchain=TORCH),
            locked(toolchain=locked_torch(TORCH, "2.12.0")),
            "the toolchain is locked with torch 2.12.0, which does not satisfy `torch==2.13.*`",
        ),
    ],
)
def test_stale(config: Config, lock: Lock, expected: str) -> None:
    """Each difference between config and lock is reported in one sentence."""

    assert (expected,) == policy_differences(config, lock)


def test_digests_are_fixed() -> None:
    """The digests are part of the lock's format: a change would make every lock stale."""
    text = (Path(__file__).parent / "digests.txt").read_text(encoding="utf-8")
    now = [target_policy(SERVER), toolchain_policy(Toolchain(requires=("torch==2.13.*", "onnxscript>=0.6")))]

    assert text.split() == now


@pytest.mark.parametrize("requirement", ["torch==2.13.*", "Torch", "torch==2.13.0+cpu", 'torch<2 ; python_version<"3"'])
def test_a_toolchain_that_satisfies_its_requirements(requirement: str) -> None:
    """Local versions are not in the lock, and requirements with a marker may not apply."""
    toolchain = Toolchain(requires=(requirement,))
    lock = locked(toolchain=locked_torch(toolchain, "2.13.0"))

    assert () == policy_differences(Config(targets={"server": SERVER}, toolchain=toolchain), lock)
