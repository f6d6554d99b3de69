"""Selection of locked wheels for this machine."""

from __future__ import annotations

import sys

import pytest
from packaging.tags import platform_tags

from onnxgate.core.errors import UnavailableError
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.environments import wheels

HERE = next(iter(platform_tags()))
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


def package(*tags: str, name: str = "numpy", version: str = "1.26.4", python: str = "3.11") -> LockedPackage:
    """Return a package with one wheel per tag."""
    files = [Wheel(file=f"{name}-{version}-{tag}.whl", sha256=f"{index:064x}") for index, tag in enumerate(tags)]
    return LockedPackage(name=name, version=version, python=python, wheels=tuple(files))


def runtime(*pins: str) -> LockedRuntime:
    """Return a runtime with these pins."""
    return LockedRuntime(engine="onnxruntime", release="1.16.3", python="3.11", packages=pins)


def test_a_wheel_fits_by_python_abi_and_platform() -> None:
    """A wheel for another Python, ABI or system does not fit, and an invalid wheel name is ignored."""
    locked = package(f"cp311-cp311-{HERE}", f"cp310-cp310-{HERE}", "cp311-cp311-plan9_mips", "py3-none-any", "odd")

    assert (f"{0:064x}", f"{3:064x}") == tuple(wheel.sha256 for wheel in wheels.rank_wheels(locked))


@pytest.mark.parametrize("python", ["3.8", "3.13"])
def test_wheels_are_for_the_runtimes_python(python: str) -> None:
    """Wheels are selected for the runtime's Python version, not for the one that runs onnxgate."""
    tag = "cp" + python.replace(".", "")

    assert len(wheels.rank_wheels(package(f"{tag}-{tag}-{HERE}", f"cp311-cp311-{HERE}", python=python))) == 1


def test_a_package_without_a_wheel_for_this_machine_is_unavailable() -> None:
    """The message names the package, the system and the Python version."""
    with pytest.raises(UnavailableError, match=r"`numpy 1\.26\.4` has no wheel for \S+ and Python 3\.11"):
        wheels.required_wheels(runtime("numpy==1.26.4"), [package("cp311-cp311-plan9_mips")])


@pytest.mark.parametrize("pin", ["numpy==1.26.5", "onnx==1.26.4"])
def test_a_pin_without_wheels_is_unavailable(pin: str) -> None:
    """A pin without wheels, as in a lock edited by hand, makes the runtime unavailable."""
    with pytest.raises(UnavailableError, match=f"the lock has no wheel for `{pin}` on Python 3.11"):
        wheels.required_wheels(runtime(pin), [package(f"cp311-cp311-{HERE}")])


def test_only_pinned_packages_are_required() -> None:
    """Other locked packages, and packages for another Python version, are ignored."""
    wanted = package(f"cp311-cp311-{HERE}")
    others = [package(f"cp312-cp312-{HERE}", python="3.12"), package("py3-none-any", name="onnx")]

    assert (wanted,) == wheels.required_wheels(runtime("numpy==1.26.4"), [*others, wanted])


def test_requirements_carry_every_hash() -> None:
    """An index may provide any of the locked wheels, and no other file."""
    expected = f"numpy==1.26.4 --hash=sha256:{0:064x} --hash=sha256:{1:064x}\n"

    assert expected == wheels.render_requirements([package(f"cp311-cp311-{HERE}", "py3-none-any")])
