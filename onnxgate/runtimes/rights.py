"""What a worker may do: read what its jobs name, write into a folder of its own, and nothing that no engine needs.

The worker takes the rest from itself before it imports its engine (`worker/rights.py`). A source's worker runs the
repository's own code, which fetches weights, starts programs and fills caches: it loses the runner's own keys alone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgate.runtimes.jobs import Job, Load, Race, Run

CPU = "CPUExecutionProvider"
LEAST_FILE_MIB = 8192

PASSED = (
    *("PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TERM"),
    *("LD_*", "DYLD_*", "NIX_LD", "NIX_LD_LIBRARY_PATH", "LOCPATH", "MALLOC_*", "GLIBC_TUNABLES"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "VECLIB_*", "TBB_*", "NUMEXPR_*"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "PROCESSOR_*", "NUMBER_OF_PROCESSORS"),
    *("PROGRAMDATA", "PROGRAMFILES*", "COMMONPROGRAMFILES*"),
)
"""Variables that a locked runtime may need to be loaded at all; none is about an account."""
PASSED_TO_OWN = (
    *("CUDA*", "CUDNN*", "NVIDIA_*", "NCCL_*", "TENSORRT*", "TRT_*", "ORT_*", "ONNXRUNTIME_*", "OPENVINO*", "OV_*"),
    *("INTEL_*", "ONEAPI_*", "SYCL_*", "ZE_*", "NEO_*", "ROCM*", "HIP*", "HSA_*", "ROCR_*", "MIGRAPHX_*", "GPU_*"),
    *("MIOPEN_*", "QNN_*", "TVM_*", "IREE_*", "VULKAN_*", "VK_*", "CONDA_PREFIX", "CONDA_DLL_SEARCH_*"),
)
"""Variables that say where a build of the user's own has its libraries and devices."""
SCRATCH = ("HOME", "USERPROFILE", "TMPDIR", "TMP", "TEMP")

UNWANTED = ("ALLOW_RELEASED_ONNX_OPSET_ONLY", "PYTHONHOME")
"""The first would change what a runtime takes, the second is another interpreter's.

Source: measured, onnxruntime 1.28 to 1.31 load opset 27 with it.
"""
OF_RUNNERS = (
    *("ACTIONS_*", "INPUT_*", "ONNXGATE_INPUT_*", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE"),
    *("GITHUB_STEP_SUMMARY", "CI_JOB_TOKEN", "CI_JOB_JWT*", "CI_REGISTRY_PASSWORD", "CI_DEPLOY_PASSWORD"),
    *("CI_DEPENDENCY_PROXY_PASSWORD", "SYSTEM_ACCESSTOKEN"),
)
"""How a CI system is told what later steps do, and signed in at; no export needs it."""

PRIVATE = frozenset(
    (".git", ".ssh", ".gnupg", ".aws", ".azure", ".config", ".docker", ".kube", ".netrc", ".npmrc", ".pypirc", ".env")
)
"""Where keys are kept, beside models or not."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What one worker is started with."""

    reads: frozenset[str] = frozenset()  # files, and folders with all below them
    all_reads: bool = False
    processes: bool = False
    devices: bool = False
    file_mib: int = LEAST_FILE_MIB  # no file that it writes gets larger

    def covers(self, other: Rights) -> bool:
        """Whether a worker with these can do what needs the others."""
        flags = (self.all_reads, self.processes, self.devices)
        wanted = (other.all_reads, other.processes, other.devices)
        if any(want and not has for has, want in zip(flags, wanted, strict=True)) or other.file_mib > self.file_mib:
            return False
        return self.all_reads or all(self._shows(path) for path in other.reads)

    def _shows(self, path: str) -> bool:
        return path in self.reads or any(str(parent) in self.reads for parent in Path(path).parents)

    def __or__(self, other: Rights) -> Rights:
        return Rights(
            self.reads | other.reads,
            self.all_reads or other.all_reads,
            self.processes or other.processes,
            self.devices or other.devices,
            max(self.file_mib, other.file_mib),
        )


def needed(job: Job, memory_mib: int | None, *, own: bool) -> Rights:
    """What a job needs; `own` says that its environment is the user's, of which nobody knows where all of it lies."""
    return Rights(
        reads=frozenset(_shown(_files(job))),
        all_reads=own,
        processes=isinstance(job, Race),  # it weighs models in fresh processes
        devices=own or any(each != CPU for each in getattr(job, "providers", ())),
        file_mib=LEAST_FILE_MIB << max(0, -(-(memory_mib or 0) // LEAST_FILE_MIB) - 1).bit_length(),
    )


def shown(folders: Iterable[Path]) -> Iterator[str]:
    """These folders; where one holds keys, all else that it holds: models may lie at the top of a repository."""
    for folder in dict.fromkeys(folders):
        if any(os.path.lexists(folder / name) for name in PRIVATE):
            with contextlib.suppress(OSError):
                yield from (str(entry) for entry in folder.iterdir() if entry.name not in PRIVATE)
        else:
            yield str(folder)


def _shown(files: Iterable[str]) -> Iterator[str]:
    """What lies beside files, and beside what they link to: weights do."""
    for file in dict.fromkeys(files):
        yield from shown((Path(file).absolute().parent, Path(os.path.realpath(file)).parent))


def _files(job: Job) -> Iterator[str]:
    if isinstance(job, Load | Run | Race):
        yield job.model
        yield from (each for each in job.extensions if Path(each).is_absolute())
    if isinstance(job, Race):
        yield job.baseline
    if isinstance(job, Run | Race):
        yield from (path for case in job.cases for path in case.inputs.values())


def for_runtime(variables: Mapping[str, str], scratch: Path, *, own: bool) -> dict[str, str]:
    """The environment of a runtime's worker."""
    wanted = _matching((*PASSED, *PASSED_TO_OWN) if own else PASSED)
    passed = {name: value for name, value in variables.items() if wanted.fullmatch(name.upper())}
    return {**passed, **dict.fromkeys(SCRATCH, str(scratch))}


def for_source(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a source's worker: the user's."""
    unwanted = _matching((*UNWANTED, *OF_RUNNERS))
    return {name: value for name, value in variables.items() if not unwanted.fullmatch(name)}


def _matching(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))
