"""Selection of the Python interpreter for exports, and comparison with the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.project.config.schema import Config, ModelSettings, Toolchain
from onnxgate.project.lock.types import LockedToolchain
from onnxgate.runtimes.environments import toolchain
from onnxgate.runtimes.environments.toolchain import (
    find_toolchain,
    lock_toolchain,
    probe_interpreter,
    required_frameworks,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="environments are made in the layout of POSIX")
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTORCH = ("torch", "onnx", "onnxscript", "onnx-ir")
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that creates an environment with metadata for packages of these versions."""

    def environment(name: str, **packages: str) -> Path:
        folder = tmp_path / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        for package, version in packages.items():
            metadata = site / f"{package}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        return folder

    return environment


@pytest.fixture(autouse=True)
def nothing_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set PATH to one empty folder."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def script(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_environment_next_to_the_config(make: Make, tmp_path: Path) -> None:
    """`.venv` is used if it meets the requirements; a local version satisfies a requirement on its release."""
    folder = make(".venv", torch="2.13.0+cpu", onnxscript="0.7.2")
    settings = Toolchain(requires=("torch==2.13.*", "onnxscript>=0.6"))

    assert find_toolchain(tmp_path, settings) == folder / "bin" / "python"


def test_active_environment_comes_first(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The active environment is preferred if it meets the requirements; otherwise the next one is used."""
    make(".venv", torch="2.13.0")
    active = make("active", torch="2.13.1")
    monkeypatch.setenv("VIRTUAL_ENV", str(active))

    assert find_toolchain(tmp_path, Toolchain(requires=("torch",))) == active / "bin" / "python"
    assert find_toolchain(tmp_path, Toolchain(requires=("torch==2.13.0",))) == tmp_path / ".venv" / "bin" / "python"


def test_broken_shim_on_path(tmp_path: Path, nothing_on_path: Path) -> None:
    """A `python` that does not start is skipped."""
    script(nothing_on_path / "python", "echo 'pyenv: python: command not found' >&2; exit 127")

    assert find_toolchain(tmp_path, Toolchain()) == Path(sys.executable)


def test_shim_that_leads_somewhere(make: Make, tmp_path: Path, nothing_on_path: Path) -> None:
    """A shim runs in the config's folder, and the interpreter behind it is used."""
    folder = make("chosen", torch="2.13.0")
    script(nothing_on_path / "python", f'[ "$PWD" = "{tmp_path}" ] && exec "{folder}/bin/python" "$@"')

    assert find_toolchain(tmp_path, Toolchain(requires=("torch",))) == folder / "bin" / "python"


def test_only_python3_on_path(make: Make, tmp_path: Path, nothing_on_path: Path) -> None:
    """`python3` is used on systems without `python`."""
    folder = make("system", torch="2.13.0")
    script(nothing_on_path / "python3", f'exec "{folder}/bin/python" "$@"')

    assert find_toolchain(tmp_path, Toolchain(requires=("torch",))) == folder / "bin" / "python"


@pytest.mark.parametrize("named", ["tools/env", "tools/env/bin/python"])
def test_named_in_the_config(make: Make, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The config may name an environment's folder or an interpreter, relative to itself, and only that one is used."""
    monkeypatch.setenv("VIRTUAL_ENV", str(make("active", torch="2.13.0")))
    make("tools/env", torch="2.12.0")

    assert find_toolchain(tmp_path, Toolchain(python=named)) == tmp_path / "tools/env/bin/python"


def test_none_fits(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names each candidate and why it was not used."""
    make(".venv", torch="2.12.1")
    monkeypatch.setattr(sys, "executable", str(make("own") / "bin" / "python"))
    settings = Toolchain(requires=("torch==2.13.*", "surely-not-installed"))

    with pytest.raises(UnavailableError) as caught:
        find_toolchain(tmp_path, settings)

    assert caught.value.message == (
        "no Python environment with `torch==2.13.*`, `surely-not-installed` was found: "
        "`.venv` has torch 2.12.1 and no surely-not-installed; "
        "`python` on PATH does not exist; "
        "onnxgate's own Python has no torch and no surely-not-installed"
    )
    assert caught.value.hint is not None


def test_configured_interpreter_is_not_replaced(make: Make, tmp_path: Path) -> None:
    """If the config names an interpreter, no other one is used."""
    make("env", torch="2.12.1")
    make(".venv", torch="2.13.0")

    with pytest.raises(UnavailableError, match=r"`toolchain\.python` \(env\) has torch 2\.12\.1$"):
        find_toolchain(tmp_path, Toolchain(python="env", requires=("torch==2.13.*",)))


def test_configured_path_does_not_exist(tmp_path: Path) -> None:
    """The message names a configured path that does not exist."""
    with pytest.raises(UnavailableError, match=r"^`toolchain\.python` \(gone\) does not exist$") as caught:
        find_toolchain(tmp_path, Toolchain(python="gone"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnavailableError, match=r"^`toolchain\.python` \(empty\) has no Python interpreter$"):
        find_toolchain(tmp_path, Toolchain(python="empty"))

    assert caught.value.hint == "set `toolchain.python` to a Python interpreter, or to the folder of an environment"


def test_sources_need_their_framework(make: Make, tmp_path: Path) -> None:
    """Without `requires`, the interpreter must have the framework of the sources."""
    make(".venv")
    config = Config(model=(ModelSettings(path="m.onnx", source="m.py:build"),))

    (tmp_path / "m.py").write_text("import torch\n")

    assert required_frameworks(config, tmp_path) == (("torch",),)
    assert required_frameworks(Config(model=(ModelSettings(path="m.onnx", command=("make",)),)), tmp_path) == ()
    with pytest.raises(UnavailableError, match=r"\(\.venv\) has no torch$"):
        find_toolchain(tmp_path, Toolchain(python=".venv"), required_frameworks(config, tmp_path))
    assert find_toolchain(tmp_path, Toolchain()) == tmp_path / ".venv/bin/python"


def test_one_of_several_packages(make: Make, tmp_path: Path) -> None:
    """One of several alternative packages of a framework is enough; if all are missing, the message names all."""
    make(".venv", xgboost_cpu="3.2.0")
    asked = [("xgboost", "xgboost-cpu")]

    assert find_toolchain(tmp_path, Toolchain(), asked) == tmp_path / ".venv/bin/python"
    make("env")
    with pytest.raises(
        UnavailableError, match=r"with `xgboost` or `xgboost-cpu` was found: .* has no xgboost or xgboost-cpu$"
    ):
        find_toolchain(tmp_path, Toolchain(python="env"), asked)


def test_markers_are_the_interpreters_own(make: Make, tmp_path: Path) -> None:
    """A requirement is ignored if its marker excludes the interpreter."""
    make(".venv", torch="2.13.0")
    settings = Toolchain(requires=("torch", "tomli; python_version < '3'", "numpy>=99; sys_platform == 'nowhere'"))

    assert find_toolchain(tmp_path, settings) == tmp_path / ".venv/bin/python"


def test_pre_releases_count(make: Make, tmp_path: Path) -> None:
    """An installed pre-release satisfies a requirement."""
    make(".venv", torch="2.14.0.dev20261101+cpu")

    assert find_toolchain(tmp_path, Toolchain(requires=("torch>=2.13",))) == tmp_path / ".venv/bin/python"


def test_python_path(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages on PYTHONPATH are found, because exports can import them."""
    folder = make(".venv")
    (lent,) = make("lent", torch="2.13.0").glob("lib/python*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(lent))

    assert probe_interpreter(folder / "bin" / "python", ["torch"]).packages == {"torch": "2.13.0"}


def test_folder_with_a_module_of_a_known_name(make: Make, tmp_path: Path) -> None:
    """A `json.py` in the project does not affect how the interpreter is inspected."""
    folder = make(".venv", torch="2.13.0")
    (tmp_path / "json.py").write_text("raise RuntimeError\n")

    assert probe_interpreter(folder / "bin" / "python", ["torch"], folder=tmp_path).packages == {"torch": "2.13.0"}


def test_locked(make: Make) -> None:
    """The lock contains only the public versions of packages that affect exports and of required packages."""
    folder = make(".venv", torch="2.13.0+cpu", onnxscript="0.7.2", onnx_ir="1.1.0", numpy="2.4.6", timm="1.0.20")
    python = folder / "bin" / "python"
    locked = lock_toolchain(python, Toolchain(requires=("timm>=1",)), PYTORCH)

    assert locked.python == MINOR
    assert locked.packages == {"onnx-ir": "1.1.0", "onnxscript": "0.7.2", "timm": "1.0.20", "torch": "2.13.0"}


def test_drift(make: Make) -> None:
    """Locked packages are compared by public version; a missing package is drift, an additional one is not."""
    folder = make(".venv", torch="2.13.0+cu130", onnxscript="0.7.3", onnx="1.23.2")
    actual = probe_interpreter(folder / "bin" / "python", PYTORCH)
    packages = {"torch": "2.13.0", "onnxscript": "0.7.2", "onnx-ir": "1.1.0"}

    assert toolchain.find_drift(LockedToolchain(policy="", python="3.9", packages=packages), actual) == {
        "onnx-ir": ("1.1.0", ""),
        "onnxscript": ("0.7.2", "0.7.3"),
    }


def test_an_interpreter_gets_no_credentials_of_the_ci_system(
    tmp_path: Path, nothing_on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter of a toolchain may be a file of the repository."""
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "4f9c")
    monkeypatch.setenv("HF_TOKEN", "8a3e")
    curious = script(nothing_on_path / "python", f"/usr/bin/env > '{tmp_path}/seen'")
    with pytest.raises(toolchain.ProbeError):
        probe_interpreter(curious, [])
    seen = (tmp_path / "seen").read_text()

    assert ("4f9c" in seen, "8a3e" in seen) == (False, True)


def test_interpreter_that_hangs(tmp_path: Path, nothing_on_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that does not respond is skipped after a timeout."""
    monkeypatch.setattr(toolchain, "PROBE_TIMEOUT_S", 0.3)
    hanging = script(nothing_on_path / "python", "while :; do :; done")

    with pytest.raises(toolchain.ProbeError, match=r"did not respond within 0\.3 s"):
        probe_interpreter(hanging, [])
