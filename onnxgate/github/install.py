"""Install onnxgate for the action: hashed wheels from the package index or the cache, in an environment of its own.

Runs before onnxgate's dependencies are installed, so it imports only modules that need the standard library alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgate.core.errors import OnnxgateError, UnavailableError
from onnxgate.github.error_report import describe_error, report_error
from onnxgate.github.runner import annotate, use_utf8_output, write_outputs

REQUIREMENTS = "requirements.txt"
FOLDER_VARIABLE = "ONNXGATE_ACTION_FOLDER"
"""Environment variable with the folder that the first step prepared; empty in the first step."""
CHANGED_WHEELS = (
    "packages of onnxgate in the cache are incomplete or do not match their hashes; they were downloaded again"
)
EXIT_FAULT = 3
_IMPORT_CHECK = "import sys; sys.path.insert(0, sys.argv[1]); import onnxgate.github.action"
"""Imports what the later steps import, because they could not report that it fails."""
_BINARY = re.compile(r"uv-[^/]+\.data/scripts/uv(\.exe)?")
_PINNED_UV = re.compile(r"^uv==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SetupOutputs:
    """Outputs of the step before the cache is restored."""

    python: str
    folder: str
    wheels: str
    key: str


@dataclass(frozen=True, slots=True)
class InstallOutputs:
    """Outputs of the step that installs."""

    python: str


@dataclass(frozen=True, slots=True)
class Setup:
    """Folder of one installation, and the folder of wheels, which the cache may restore."""

    folder: Path
    wheels: Path

    @property
    def requirements(self) -> Path:
        """The pinned and hashed requirements."""
        return self.folder / REQUIREMENTS

    @property
    def venv(self) -> Path:
        """The environment that the action's other steps use."""
        return self.folder / "venv"


def prepare(action: Path, environment: Mapping[str, str]) -> SetupOutputs:
    """Copy onnxgate to a folder with a random name, which no restored archive can know, and name the cache entry."""
    temporary = Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-", dir=temporary))
    bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(action / "onnxgate", folder / "onnxgate", ignore=bytecode, copy_function=shutil.copyfile)
    shutil.copy(action / REQUIREMENTS, folder)
    return SetupOutputs(
        sys.executable, str(folder), str(temporary / "onnxgate-packages"), make_key(folder, environment)
    )


def make_key(folder: Path, environment: Mapping[str, str]) -> str:
    """Return the key of the cache entry for the wheels: what is pinned, and the platform that the wheels are for."""
    digest = hashlib.sha256((folder / REQUIREMENTS).read_bytes()).hexdigest()[:16]
    machine = [environment.get(name, "") for name in ("RUNNER_OS", "RUNNER_ARCH")]
    words = "-".join([*machine, str(sysconfig.get_config_var("EXT_SUFFIX"))])
    return f"onnxgate-packages-{re.sub('[^A-Za-z0-9_.-]', '_', words)[:80]}-{digest}"


def install(setup: Setup) -> InstallOutputs:
    """Install from the restored wheels if they are complete and unchanged, otherwise from the package index.

    Raises:
        UnavailableError: the packages cannot be downloaded or installed.
    """
    is_restored = setup.wheels.exists()
    if is_restored:
        try:
            return _install_wheels(setup)
        except (OnnxgateError, OSError, zipfile.BadZipFile):
            annotate("warning", CHANGED_WHEELS)
            shutil.rmtree(setup.wheels)
            shutil.rmtree(setup.venv, ignore_errors=True)
    download(setup)
    return _install_wheels(setup)


def download(setup: Setup) -> None:
    """Download the wheels with pip, which knows the index settings of the user; hashes make all indexes equal.

    Raises:
        UnavailableError: pip is missing or fails.
    """
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off"]
    limits = ["--require-hashes", "--no-deps", "--only-binary=:all:"]
    files = [f"--requirement={setup.requirements}", f"--dest={setup.wheels}"]
    result = _run([_find_pip(setup), "-I", "-m", "pip", "download", *options, *limits, *files])
    if result.returncode:
        shutil.rmtree(setup.wheels, ignore_errors=True)
        raise UnavailableError(
            f"the packages of onnxgate could not be downloaded: {_last_error(result.stderr)}",
            hint="check that the runner can reach the package index (`PIP_INDEX_URL`, proxy), and that it has wheels "
            f'for Python {platform.python_version()}; or set the input `python-version: "3.12"`',
        )


def _find_pip(setup: Setup) -> str:
    """Return a Python that has pip: the running one, or that of a new environment."""
    if importlib.util.find_spec("pip"):
        return sys.executable
    result = _run([sys.executable, "-I", "-m", "venv", str(setup.folder / "pip")])
    if result.returncode:
        raise UnavailableError(
            f"the Python at `{sys.executable}` has neither `pip` nor `venv`",
            hint='install them (Debian: `python3-venv`), or set the input `python-version: "3.12"`',
        )
    return str(_programs(setup.folder / "pip") / "python")


def _install_wheels(setup: Setup) -> InstallOutputs:
    """Create the environment with uv, which verifies the hash of each wheel."""
    uv = _extract_uv(setup)
    uv_options = ["--quiet", "--no-config", "--offline", f"--cache-dir={setup.folder / 'uv-cache'}"]
    hashes = ["--require-hashes", "--no-deps", "--no-index", f"--find-links={setup.wheels}"]
    python = _programs(setup.venv) / "python"
    _run_or_raise([uv, "venv", "--no-project", *uv_options, f"--python={sys.executable}", str(setup.venv)])
    requirements = f"--requirement={setup.requirements}"
    _run_or_raise([uv, "pip", "install", *uv_options, *hashes, f"--python={python}", requirements])
    _run_or_raise([str(python), "-I", "-c", _IMPORT_CHECK, str(setup.folder)])
    [packages] = setup.venv.glob("Lib/site-packages" if os.name == "nt" else "lib/*/site-packages")
    shutil.move(setup.folder / "onnxgate", packages)
    return InstallOutputs(str(python))


def _run_or_raise(command: Sequence[str]) -> None:
    result = _run(command)
    if result.returncode:
        raise UnavailableError(f"onnxgate could not be installed: {_last_error(result.stderr)}")


def _extract_uv(setup: Setup) -> str:
    """Extract uv's program from its wheel, after the wheel's hash is verified."""
    pinned = _PINNED_UV.search(setup.requirements.read_text(encoding="utf-8"))
    assert pinned is not None, "uv is pinned"
    for wheel in setup.wheels.glob(f"uv-{pinned[1]}-*.whl"):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() in pinned[2]:
            with zipfile.ZipFile(wheel) as archive:
                name = next(filter(_BINARY.fullmatch, archive.namelist()))
                archive.extract(name, setup.folder)
            program = setup.folder / name
            program.chmod(0o755)
            return str(program)
    raise UnavailableError("the wheel of uv is missing, or does not match its hash")


def _programs(venv: Path) -> Path:
    return venv / ("Scripts" if os.name == "nt" else "bin")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program without the job's settings for uv, which are for other environments."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    return subprocess.run(
        command,
        env={**environment, "PIP_REQUIRE_VIRTUALENV": "false"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _last_error(printed: str) -> str:
    """Return the error that a program printed, on one line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "error:"))] or lines[-1:] or ["no error was printed"]
    return errors[0].removeprefix("ERROR:").removeprefix("error:").strip()


def main() -> None:
    """Run the first step, or the second one if the first has prepared a folder. Errors fail the step."""
    use_utf8_output()
    outputs: SetupOutputs | InstallOutputs
    try:
        if folder := os.environ.get(FOLDER_VARIABLE):
            outputs = install(Setup(Path(folder), Path(os.environ["ONNXGATE_ACTION_WHEELS"])))
        else:
            outputs = prepare(Path(sys.argv[1]), os.environ)
    except Exception as error:  # noqa: BLE001 - reported as a bug
        report_error(describe_error(error), EXIT_FAULT, os.environ)
        sys.exit(EXIT_FAULT)
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), outputs)
