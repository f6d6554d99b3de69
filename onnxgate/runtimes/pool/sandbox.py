"""What a worker may do: read what its jobs name, write into a folder of its own, and nothing that no engine needs.

The worker takes the rest from itself before it imports its engine (`worker/rights.py`). A source's worker runs the
repository's own code, which fetches weights, starts programs and fills caches: it loses the runner's own keys alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from onnxgate.core.files import create_process_folder
from onnxgate.core.jobs import (
    Benchmark,
    CaseResult,
    Completed,
    Harvest,
    HarvestResult,
    Job,
    Load,
    Observation,
    Run,
    RunResult,
)
from onnxgate.project.engines import RECORDS
from onnxgate.runtimes.protocol import is_complete_npy_file

CPU_PROVIDER = "CPUExecutionProvider"
MIN_FILE_LIMIT_MIB = 8192

RUNTIME_VARIABLES = (
    *("PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TERM"),
    *("LD_*", "DYLD_*", "NIX_LD", "NIX_LD_LIBRARY_PATH", "LOCPATH", "MALLOC_*", "GLIBC_TUNABLES"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "VECLIB_*", "TBB_*", "NUMEXPR_*"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "PROCESSOR_*", "NUMBER_OF_PROCESSORS"),
    *("PROGRAMDATA", "PROGRAMFILES*", "COMMONPROGRAMFILES*"),
)
"""Variables that a locked runtime may need to be loaded at all; none is about an account."""
USER_ENVIRONMENT_VARIABLES = (
    *("CUDA*", "CUDNN*", "NVIDIA_*", "NCCL_*", "TENSORRT*", "TRT_*"),
    *(pattern for engine in RECORDS for pattern in engine.variables),
    *("INTEL_*", "ONEAPI_*", "SYCL_*", "ZE_*", "NEO_*", "ROCM*", "HIP*", "HSA_*", "ROCR_*", "MIGRAPHX_*", "GPU_*"),
    *("MIOPEN_*", "QNN_*", "TVM_*", "IREE_*", "VULKAN_*", "VK_*", "CONDA_PREFIX", "CONDA_DLL_SEARCH_*"),
)
"""Variables that say where a build of the user's own has its libraries and devices."""
HOME_VARIABLES = ("HOME", "USERPROFILE", "TMPDIR", "TMP", "TEMP")

REMOVED_VARIABLES = ("ALLOW_RELEASED_ONNX_OPSET_ONLY", "PYTHONHOME")
"""The first would change what a runtime takes, the second is another interpreter's.

Source: measured, onnxruntime 1.28 to 1.31 load opset 27 with it.
"""
CI_VARIABLES = (
    *("ACTIONS_*", "INPUT_*", "ONNXGATE_INPUT_*", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE"),
    *("GITHUB_STEP_SUMMARY", "CI_JOB_TOKEN", "CI_JOB_JWT*", "CI_REGISTRY_PASSWORD", "CI_DEPLOY_PASSWORD"),
    *("CI_DEPENDENCY_PROXY_PASSWORD", "SYSTEM_ACCESSTOKEN"),
)
"""How a CI system is told what later steps do, and signed in at; no export needs it."""

PRIVATE_NAMES = frozenset(
    (".git", ".ssh", ".gnupg", ".aws", ".azure", ".config", ".docker", ".kube", ".netrc", ".npmrc", ".pypirc", ".env")
)
"""Where keys are kept, beside models or not."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one worker is started with."""

    reads: frozenset[str] = frozenset()  # files, and folders with all below them
    all_reads: bool = False
    processes: bool = False
    devices: bool = False
    file_mib: int = MIN_FILE_LIMIT_MIB  # no file that it writes gets larger

    def covers(self, other: Permissions) -> bool:
        """Whether a worker with these can do what needs the others."""
        flags = (self.all_reads, self.processes, self.devices)
        wanted = (other.all_reads, other.processes, other.devices)
        if any(want and not has for has, want in zip(flags, wanted, strict=True)) or other.file_mib > self.file_mib:
            return False
        return self.all_reads or all(self._shows(path) for path in other.reads)

    def _shows(self, path: str) -> bool:
        return path in self.reads or any(str(parent) in self.reads for parent in Path(path).parents)

    def __or__(self, other: Permissions) -> Permissions:
        return Permissions(
            self.reads | other.reads,
            self.all_reads or other.all_reads,
            self.processes or other.processes,
            self.devices or other.devices,
            max(self.file_mib, other.file_mib),
        )


def required_permissions(job: Job, memory_mib: int | None, *, own: bool) -> Permissions:
    """What a job needs; `own` says that its environment is the user's, of which nobody knows where all of it lies."""
    return Permissions(
        reads=frozenset(_readable_around(_job_files(job))),
        all_reads=own,
        processes=isinstance(job, Benchmark),  # it weighs models in fresh processes
        devices=own or any(each != CPU_PROVIDER for each in getattr(job, "providers", ())),
        file_mib=MIN_FILE_LIMIT_MIB << max(0, -(-(memory_mib or 0) // MIN_FILE_LIMIT_MIB) - 1).bit_length(),
    )


def readable_paths(folders: Iterable[Path]) -> Iterator[str]:
    """These folders; where one holds keys, all else that it holds: models may lie at the top of a repository."""
    for folder in dict.fromkeys(folders):
        if any(os.path.lexists(folder / name) for name in PRIVATE_NAMES):
            with contextlib.suppress(OSError):
                yield from (str(entry) for entry in folder.iterdir() if entry.name not in PRIVATE_NAMES)
        else:
            yield str(folder)


def _readable_around(files: Iterable[str]) -> Iterator[str]:
    """What lies beside files, and beside what they link to: weights do."""
    for file in dict.fromkeys(files):
        yield from readable_paths((Path(file).absolute().parent, Path(os.path.realpath(file)).parent))


def _job_files(job: Job) -> Iterator[str]:
    if isinstance(job, Load | Run | Benchmark):
        yield job.model
        yield from (extension for extension in job.extensions if Path(extension).is_absolute())
    if isinstance(job, Benchmark):
        yield job.baseline
    if isinstance(job, Run | Benchmark):
        yield from (path for case in job.cases for path in case.inputs.values())


def runtime_variables(variables: Mapping[str, str], scratch: Path, *, own: bool) -> dict[str, str]:
    """The environment of a runtime's worker."""
    wanted = _compile_patterns((*RUNTIME_VARIABLES, *USER_ENVIRONMENT_VARIABLES) if own else RUNTIME_VARIABLES)
    passed = {name: value for name, value in variables.items() if wanted.fullmatch(name.upper())}
    return {**passed, **dict.fromkeys(HOME_VARIABLES, str(scratch))}


def source_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a source's worker: the user's."""
    unwanted = _compile_patterns((*REMOVED_VARIABLES, *CI_VARIABLES))
    return {name: value for name, value in variables.items() if not unwanted.fullmatch(name)}


def _compile_patterns(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))


class InvalidOutputError(Exception):
    """The worker left something else than the arrays that it names."""


class WorkerFolder:
    """A seat's own folder. No worker sees that of another, nor what the gate itself has written."""

    def __init__(self) -> None:
        self._folder = create_process_folder()
        self.folder = (self._folder / "work").absolute()
        """Its worker's home, and all that it may write to."""
        self.folder.mkdir()

    def say(self, rights: Permissions) -> Path:
        """The file that tells the worker what it keeps; it lies where the worker cannot write."""
        file = self.folder.with_name("rights.json")
        said = {**asdict(rights), "reads": sorted(rights.reads), "folder": str(self.folder)}
        file.write_bytes(msgspec.json.encode(said))
        return file

    def inside(self, job: Job) -> Job:
        """The job with its output in this folder."""
        match job:
            case Run():
                return msgspec.structs.replace(job, output=str(self._new()))
            case Harvest():
                return msgspec.structs.replace(job, output=str(self._new() / Path(job.output).name))
            case _:
                return job

    def deliver(self, observation: Observation, inside: Job, job: Job) -> Observation:
        """What was observed, with its files where the job wants them.

        Raises:
            ForgedError: one of them is no plain file, or no whole array.
            OSError: one of them cannot be moved.
        """
        try:
            match observation, inside, job:
                case Completed(result=RunResult() as result), Run(), Run():
                    cases = tuple(_move_case(case, Path(inside.output), Path(job.output)) for case in result.cases)
                    return Completed(result=msgspec.structs.replace(result, cases=cases))
                case Completed(result=HarvestResult()), Harvest(), Harvest():
                    _move_file(Path(inside.output), Path(job.output))
            return observation
        finally:
            self._forget(inside)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _new(self) -> Path:
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir()
        return folder

    def _forget(self, inside: Job) -> None:
        match inside:
            case Run():
                shutil.rmtree(inside.output, ignore_errors=True)
            case Harvest():
                shutil.rmtree(Path(inside.output).parent, ignore_errors=True)


def _move_case(case: CaseResult, source: Path, target: Path) -> CaseResult:
    paths = tuple(None if path is None else _move_output(Path(path), source, target) for path in case.outputs)
    return msgspec.structs.replace(case, outputs=paths)


def _move_output(path: Path, source: Path, target: Path) -> str:
    if not path.is_relative_to(source) or ".." in path.parts:
        raise InvalidOutputError
    place = target / path.relative_to(source)
    place.parent.mkdir(parents=True, exist_ok=True)
    _move_file(path, place)
    if not is_complete_npy_file(place):
        raise InvalidOutputError
    return str(place)


def _move_file(file: Path, place: Path) -> None:
    if not stat.S_ISREG(os.lstat(file).st_mode):
        raise InvalidOutputError
    shutil.move(file, place)
