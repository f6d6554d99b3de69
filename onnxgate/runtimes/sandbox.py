"""Permissions of workers: they may read the files of their jobs and write to one folder.

The worker drops all other permissions before it imports its engine (`worker/sandbox.py`). Workers of sources are not
restricted, since they run the repository's own code; only the CI runner's environment variables are removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from onnxgate.core import jobs
from onnxgate.core.files import create_process_folder, open_regular
from onnxgate.core.subprocesses import TELEMETRY_VARIABLES, without_ci_variables
from onnxgate.project.engines import RECORDS
from onnxgate.runtimes.memory import measure_model
from onnxgate.runtimes.protocol import is_complete_npy_file
from onnxgate.runtimes.worker.sandbox import exclude_private, has_library_magic, list_libraries

if sys.platform != "win32":
    import pwd

CPU_PROVIDER = "CPUExecutionProvider"
MIN_FILE_LIMIT_MIB = 8192
COPIED_BYTES = 2**20
"""Chunk size for copying outputs."""

RUNTIME_VARIABLES = (
    *("PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TERM"),
    *("LD_*", "DYLD_*", "NIX_LD", "NIX_LD_LIBRARY_PATH", "LOCPATH", "MALLOC_*", "GLIBC_TUNABLES"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "VECLIB_*", "TBB_*", "NUMEXPR_*"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "PROCESSOR_*", "NUMBER_OF_PROCESSORS"),
    *("PROGRAMDATA", "PROGRAMFILES*", "COMMONPROGRAMFILES*"),
)
"""Environment variables that a locked runtime may need when it is loaded. They do not contain credentials."""
AFFINITY_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables that are not passed, since the sandbox refuses to bind threads to processors.

Source: with `OMP_PROC_BIND=true`, libgomp ends the process if it cannot bind a thread.
"""
USER_ENVIRONMENT_VARIABLES = (
    *("CUDA*", "CUDNN*", "NVIDIA_*", "NCCL_*", "TENSORRT*", "TRT_*"),
    *(pattern for engine in RECORDS for pattern in engine.variables),
    *("INTEL_*", "ONEAPI_*", "SYCL_*", "ZE_*", "NEO_*", "ROCM*", "HIP*", "HSA_*", "ROCR_*", "MIGRAPHX_*", "GPU_*"),
    *("MIOPEN_*", "QNN_*", "TVM_*", "IREE_*", "VULKAN_*", "VK_*", "CONDA_PREFIX", "CONDA_DLL_SEARCH_*"),
)
"""Environment variables that configure the libraries and devices of a custom build."""
HOME_VARIABLES = (
    *("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TMPDIR", "TMP", "TEMP"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)
"""Folders of the user that an engine may write to when it is imported, such as the database of ONNX Runtime 1.29."""

REMOVED_VARIABLES = ("ALLOW_RELEASED_ONNX_OPSET_ONLY", "PYTHONHOME")
"""The first variable affects which opsets a runtime loads; the second refers to a different interpreter.

Source: measured; with the first variable, onnxruntime 1.28 to 1.31 load opset 27.
"""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions of a worker."""

    reads: frozenset[str] = frozenset()  # files, and folders with everything in them
    all_reads: bool = False  # all files, except for hidden ones in private folders
    processes: bool = False
    devices: bool = False
    file_mib: int = MIN_FILE_LIMIT_MIB  # size limit of each file that the worker writes

    def covers(self, required: Permissions) -> bool:
        """Return whether these permissions include the required ones."""
        return (
            self.all_reads >= required.all_reads
            and self.processes >= required.processes
            and self.devices >= required.devices
            and self.file_mib >= required.file_mib
            and all(map(self.names, required.reads))
        )

    def names(self, path: str) -> bool:
        """Return whether a path is in `reads`, or in a folder there."""
        return path in self.reads or any(str(parent) in self.reads for parent in Path(path).parents)

    def __or__(self, added: Permissions) -> Permissions:
        return Permissions(
            self.reads | added.reads,
            self.all_reads or added.all_reads,
            self.processes or added.processes,
            self.devices or added.devices,
            max(self.file_mib, added.file_mib),
        )


def required_permissions(queued: Iterable[jobs.Job], memory_mib: int | None, *, own: bool) -> Permissions:
    """Return the permissions for jobs. With `own`, they run in a user environment, whose files may be anywhere."""
    queued = tuple(queued)
    return Permissions(
        reads=frozenset(file for job in queued for file in _job_files(job)),
        all_reads=own,
        processes=any(isinstance(job, jobs.Benchmark) for job in queued),  # memory is measured in new processes
        devices=own or any(it != CPU_PROVIDER for job in queued for it in getattr(job, "providers", ())),
        file_mib=MIN_FILE_LIMIT_MIB << max(0, -(-(memory_mib or 0) // MIN_FILE_LIMIT_MIB) - 1).bit_length(),
    )


def list_model_files(model: str) -> tuple[str, ...]:
    """Return the model file and its external data."""
    return (model, *measure_model(model).data_files)


def find_hidden_data(job: jobs.Job) -> str:
    """Return the location of external data that the job's models declare although its name is hidden; "" if none.

    A model could otherwise read files with credentials, such as `.env` or `.git/config`.
    """
    models = (job.model, job.baseline) if isinstance(job, jobs.Benchmark) else (getattr(job, "model", ""),)
    return next((location for model in models if model for location in measure_model(model).hidden_data), "")


def explain_denial(observation: jobs.Observation, job: jobs.Job, permissions: Permissions) -> jobs.Observation:
    """Return the observation. If the engine failed because the sandbox denied access to a file, it is `Unavailable`.

    The failure is not that of the model: without the sandbox, the engine could read the file.
    """
    match observation:
        case jobs.Unavailable(reason=text, hint=""):
            pass
        case jobs.Refused(failure=jobs.Failure(text=text)):
            pass
        case jobs.Completed(result=jobs.RunResult(cases=cases)):
            text = "\n".join(case.failure.text for case in cases if case.failure is not None)
        case _:
            return observation
    file = _find_denied_file(text, Path(getattr(job, "model", "")).parent, permissions)
    hint = OWN_FILES_HINT if permissions.all_reads else LOCKED_FILES_HINT
    return jobs.Unavailable(reason=f"the sandbox denies access to `{file}`", hint=hint) if file else observation


OWN_FILES_HINT = (
    "move the file, so that no part of its path below the home folder or the root of the repository begins with a dot"
)
LOCKED_FILES_HINT = (
    "a locked runtime reads only its packages, the model with its external data, inputs, and libraries next to those "
    "in `extensions`; to read other files, use an environment of your own (`python` of the target)"
)
_PATH = re.compile(r"'([^'\n]{1,500})'|\"([^\"\n]{1,500})\"|(/[^\s:'\",;]{1,500})")
MAX_PATHS = 20


def _find_denied_file(text: str, folder: Path, permissions: Permissions) -> str:
    """Return the file in an error text that this process can read, but not the worker; "" if none was denied.

    Paths in the text may be relative to the folder of the model.
    """
    if not sys.platform.startswith("linux"):
        return ""
    files = ((path, folder / path) for path in itertools.islice(_list_denied_paths(text), MAX_PATHS))
    return next((path for path, file in files if not permissions.names(str(file)) and _is_readable_file(file)), "")


def _list_denied_paths(text: str) -> Iterator[str]:
    """Yield the paths in the lines about missing permissions: those after the error, then the nearest before it.

    Other paths are those of the model, or of the files in a traceback.
    """
    for line in text.splitlines():
        before, denial, after = line.partition("ermission denied")
        for part in (after, before) if denial else ():
            paths = [next(filter(None, match.groups())) for match in _PATH.finditer(part)]
            yield from paths if part is after else reversed(paths)


def _is_readable_file(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):  # not a valid path
        return False


def _job_files(job: jobs.Job) -> Iterator[str]:
    if isinstance(job, jobs.SessionJob):
        yield from list_model_files(job.model)
        for extension in job.extensions:
            if Path(extension).is_absolute():
                yield from _list_libraries(extension)
    if isinstance(job, jobs.Benchmark):
        yield from list_model_files(job.baseline)
    if isinstance(job, jobs.Run | jobs.Benchmark):
        yield from (path for case in job.cases for path in case.inputs.values())


def _list_libraries(library: str) -> Iterator[str]:
    """Yield a library, and the shared libraries in its folders, which it may load."""
    real = os.path.realpath(library)
    if real == library or has_library_magic(real):  # a link may lead to any file
        yield library
    for folder in dict.fromkeys((os.path.dirname(library), os.path.dirname(real))):  # noqa: PTH120
        yield from list_libraries(folder)


def _find_private_folders(permissions: Permissions) -> set[Path]:
    """Return folders that may contain credentials: the home folder, and the repositories of models and of this process.

    Of a repository, these are the folders from each model up to the root. If all files are readable, the folders of
    models outside of repositories are also private.
    """
    folders = {Path(os.path.realpath(folder)) for folder in {Path(file).parent for file in permissions.reads}}
    private = {Path(os.path.realpath(folder)) for folder in _home_folders()}
    private |= folders if permissions.all_reads else set()
    with contextlib.suppress(OSError):  # the working directory was removed
        folders.add(Path(os.path.realpath(Path.cwd())))
    for folder in folders:
        above = (folder, *folder.parents)
        roots = [index for index, parent in enumerate(above) if _is_repository(parent)]
        private.update(above[: max(roots, default=-1) + 1])
    return private


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists()


def _list_user_files(private: Set[Path]) -> Iterator[str]:
    """Yield all files and folders, except those with hidden names in private folders.

    Hidden names begin with a dot. They may contain credentials.
    """
    ancestors = {parent for folder in private for parent in folder.parents}
    roots = (folder for folder in private if _is_repository(folder))  # may be in a hidden folder of the home folder
    pending = [Path("/"), *roots]
    while pending:
        path = pending.pop()
        if path in private or path in ancestors:
            with contextlib.suppress(OSError):
                pending += (entry for entry in path.iterdir() if path not in private or entry.name[0] != ".")
        elif not path.is_symlink() or not _leads_to(Path(os.path.realpath(path)), private, ancestors):
            yield str(path)


def _leads_to(target: Path, private: Set[Path], ancestors: Set[Path]) -> bool:
    return target in ancestors or any(target.is_relative_to(folder) for folder in private)


def _home_folders() -> Iterator[str]:
    yield os.path.expanduser("~")  # noqa: PTH111 - raises no error if the folder is unknown
    if sys.platform != "win32":
        with contextlib.suppress(KeyError):  # the user may have no entry
            yield pwd.getpwuid(os.getuid()).pw_dir


def runtime_variables(variables: Mapping[str, str], scratch: Path, *, own: bool) -> dict[str, str]:
    """Return the environment variables of a runtime's worker."""
    names = _compile_patterns((*RUNTIME_VARIABLES, *USER_ENVIRONMENT_VARIABLES) if own else RUNTIME_VARIABLES)
    passed = {name: value for name, value in variables.items() if names.fullmatch(name.upper())}
    passed = {name: value for name, value in passed.items() if name not in AFFINITY_VARIABLES}
    return {**passed, **private_folder_variables(scratch)}


def private_folder_variables(scratch: Path) -> dict[str, str]:
    """Return the variables that replace the user's folders, and that keep engines from writing elsewhere."""
    return {**dict.fromkeys(HOME_VARIABLES, str(scratch)), **TELEMETRY_VARIABLES}


def source_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a source's worker: all variables except those of the CI system."""
    return {name: value for name, value in without_ci_variables(variables).items() if name not in REMOVED_VARIABLES}


def _compile_patterns(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))


class InvalidOutputError(Exception):
    """An output of a worker is not a complete array."""


class WorkerFolder:
    """Private folder of one worker, which other workers cannot read."""

    def __init__(self) -> None:
        self._root = create_process_folder()
        self.path = (self._root / "work").absolute()
        """Home folder of the worker, and the only folder that it can write to."""
        self.path.mkdir()

    def write_permissions(self, permissions: Permissions, program_reads: Set[str] = frozenset()) -> Path:
        """Write the worker's permissions to a file that the worker cannot change.

        `program_reads` are the files and folders that its program needs for any job.
        """
        file = self.path.with_name("rights.json")
        private = _find_private_folders(permissions)
        program_files = exclude_private(program_reads, [*map(str, private)])  # `.pth` files may name the repository
        reads = {*permissions.reads, *program_files, *(_list_user_files(private) if permissions.all_reads else ())}
        fields = {**asdict(permissions), "reads": sorted(reads), "folder": str(self.path)}
        fields["private"] = sorted(map(str, private))
        file.write_bytes(msgspec.json.encode(fields))
        return file

    def redirect(self, job: jobs.Job) -> jobs.Job:
        """Return the job with its output redirected to this folder."""
        match job:
            case jobs.Run():
                return msgspec.structs.replace(job, output=str(self._new()))
            case jobs.Harvest():
                return msgspec.structs.replace(job, output=str(self._new() / Path(job.output).name))
            case _:
                return job

    def deliver(self, observation: jobs.Observation, inner: jobs.Job, job: jobs.Job) -> jobs.Observation:
        """Move the outputs of a redirected job to the original paths. Return the observation with these paths.

        Raises:
            InvalidOutputError: an output is not a regular file or not a complete array.
            OSError: an output cannot be moved.
        """
        try:
            match observation, inner, job:
                case jobs.Completed(result=jobs.RunResult() as result), jobs.Run(), jobs.Run():
                    cases = tuple(_move_outputs(case, Path(inner.output), Path(job.output)) for case in result.cases)
                    return jobs.Completed(result=msgspec.structs.replace(result, cases=cases))
                case jobs.Completed(result=jobs.HarvestResult()), jobs.Harvest(), jobs.Harvest():
                    _move_file(Path(inner.output), Path(job.output))
            return observation
        finally:
            if isinstance(inner, jobs.Run | jobs.Harvest):
                output = Path(inner.output)
                shutil.rmtree(output if isinstance(inner, jobs.Run) else output.parent, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _new(self) -> Path:
        folder = self.path / secrets.token_hex(8)
        folder.mkdir()
        return folder


def _move_outputs(case: jobs.CaseResult, source: Path, target: Path) -> jobs.CaseResult:
    moved: list[str | None] = []
    for path in case.outputs:
        if path is None:
            moved.append(None)
            continue
        if not Path(path).is_relative_to(source) or ".." in Path(path).parts:
            raise InvalidOutputError
        destination = target / Path(path).relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        _move_file(Path(path), destination)
        if not is_complete_npy_file(destination):
            raise InvalidOutputError
        moved.append(str(destination))
    return msgspec.structs.replace(case, outputs=tuple(moved))


def _move_file(file: Path, destination: Path) -> None:
    """Copy a file and delete the original. Renaming is unsafe, since the worker may still have the file open."""
    if not stat.S_ISREG(os.lstat(file).st_mode):
        raise InvalidOutputError
    with open_regular(file) as source, destination.open("wb") as copy:
        size_bytes = os.fstat(source.fileno()).st_size  # data that the worker appends later is not copied
        while (left := size_bytes - copy.tell()) and (chunk := source.read(min(left, COPIED_BYTES))):
            if chunk.strip(b"\0"):
                copy.write(chunk)
            else:  # keep sparse files sparse
                copy.seek(len(chunk), os.SEEK_CUR)
        copy.truncate()
        if left:
            raise InvalidOutputError
    file.unlink()
