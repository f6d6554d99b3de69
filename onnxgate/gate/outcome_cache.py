"""Cache of outcomes by content: observations, comparisons and incomplete checks of unchanged models.

One entry is the complete outcome of one model on all its runtimes. An outcome is cached if everything that it depends
on can be digested and another run would have the same result. This excludes crashes, timeouts, lack of memory, unstable
outputs, missing environments and errors that the machine may cause. Models with a source, custom builds and models on a
GPU are always run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from onnxgate.core.cache_entries import decode_entry, encode_entry, record_damage
from onnxgate.core.files import file_identity, read_limited, remove_path
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import Completed, Failure, Observation, Refused, RunResult
from onnxgate.core.report import Measured, Replay
from onnxgate.diagnostics.classification import failure_family
from onnxgate.evidence.parity import Comparison, find_mismatches
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.gate.request import (
    CollectedModel,
    ExecutionResult,
    GateRequest,
    StageResults,
    StepResult,
    create_execution_result,
)
from onnxgate.gate.result_cache import (
    FileChangedError,
    FileDigests,
    identify_machine,
    identify_node,
    list_relevant_variables,
    prune,
)
from onnxgate.gate.static_cache import HarvestedBuilds
from onnxgate.inputs.stored_inputs import touch_stored_inputs
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import classify_layouts, list_content_files
from onnxgate.project.engines import runs_on_node
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.runtimes.worker_spec import WorkerSpec

OUTCOME_LAYOUT = 3
"""Version of the entry format."""
ENTRY_FILE = "outcome.msgpack"
ENTRY_NAME = re.compile("[0-9a-f]{64}")
MAX_OUTCOME_BYTES = 8 * 2**20
"""Maximum size of a cached outcome."""
CPU_PROVIDERS = frozenset({"CPUExecutionProvider"})
"""Providers with cacheable results; results of other providers depend on drivers and devices."""
MACHINE_FAMILIES = frozenset({"", "ext_missing", "locale", "no_file"})
"""Families of errors that the machine may cause; "" stands for an unknown error text."""

_COMPUTING_PACKAGES = {
    "onnx": "onnx",
    "numpy": "numpy",
    "ml_dtypes": "ml_dtypes",
    "google.protobuf": "protobuf",
    "msgspec": "msgspec",
}
"""Modules that compute outcomes, each with the name of its distribution."""

Entry = TypeVar("Entry", bound=msgspec.Struct)


class ModelOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Evidence of one model on all its runtimes, with its incomplete checks."""

    runs: tuple[ModelRuns, ...]
    comparisons: tuple[Comparison, ...]
    undone: tuple[IncompleteCheck, ...]
    skipped: tuple[IncompleteCheck, ...]
    measured: tuple[Measured, ...]
    observed: tuple[str, ...]  # runtime of each run
    replay: Replay | None
    entries: tuple[str, ...]  # names of the cached runs in the outcome; marked as used whenever the outcome is used


class OutcomeEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An outcome with its cache key."""

    key: str
    folders: tuple[
        str, ...
    ]  # project folders, if the outcome contains their paths and is therefore valid for one checkout only
    outcome: ModelOutcome


class OutcomeCache:
    """Cached outcomes for the models in one request.

    `results` are the results of the file and lock stages; `builds` contains the support data of custom builds.
    """

    def __init__(
        self,
        request: GateRequest,
        folder: Path,
        results: StageResults,
        planned: Iterable[PlannedModel],
        builds: HarvestedBuilds,
    ) -> None:
        self._request = request
        self._folder = folder
        self._results = results
        self._harvests = {name: support.sha256 for name, support in builds.supports.items()}
        self._digests = FileDigests()
        project = request.project
        folders = (project.folder, project.root, project.folder.resolve(), project.root.resolve())
        self._folders = tuple(sorted({os.fsdecode(folder) for folder in folders}))
        self._keys = {model.path: self._key(model) for model in planned}  # before anything runs
        self._added = False
        found = ((path, self._find(key)) for path, key in self._keys.items() if key and not request.caches.fresh)
        self.known = {path: outcome for path, outcome in found if outcome is not None}
        """Outcomes of unchanged models, by path."""

    def _find(self, key: str) -> ModelOutcome | None:
        entry = read_entry(self._folder / key, OutcomeEntry)
        outcome = entry.outcome if entry is not None and entry.key == key else None
        if entry is not None and entry.folders and entry.folders != self._folders:
            return None
        if outcome is None or not self._touch_replayed_inputs(outcome.replay):
            return None
        for name in (key, *filter(ENTRY_NAME.fullmatch, outcome.entries)):
            with contextlib.suppress(OSError):
                os.utime(self._folder / name)
        return outcome

    def keep(
        self, planned: PlannedModel, collected: CollectedModel, replay: Replay | None, entries: Iterable[str]
    ) -> None:
        """Cache the outcome of a model if it is reproducible; write errors are ignored."""
        key = self._keys.get(planned.path, "")
        if not key or not collected.is_lasting or not self._has_all_inputs(collected, replay):
            return
        if self._key(planned) != key:  # a file changed during the run
            return
        step = collected.step
        outcome = ModelOutcome(
            collected.runs,
            tuple(subject for subject in step.subjects if isinstance(subject, Comparison)),
            step.undone,
            step.skipped,
            step.measured,
            collected.observed,
            replay,
            tuple(entries),
        )
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError, TypeError, OverflowError):
            content = msgspec.msgpack.encode(outcome)
            separators = ("\\", "\\\\", "/")  # Windows separators, plain and escaped
            spellings = [folder.replace("\\", it) for folder in self._folders for it in separators]
            names_folder = any(spelling.encode() in content for spelling in spellings)
            entry = OutcomeEntry(key, self._folders if names_folder else (), outcome)
            self._added |= write_entry(self._folder / key, entry)

    def restore(self, planned: PlannedModel) -> Iterator[ExecutionResult]:
        """Yield the cached result of a model, if there is one, limited to the stages of the request."""
        outcome = self.known.get(planned.path)
        if outcome is None:
            return
        place = self._results.lock.places[planned.path]  # the line in the lock changes when other entries change
        runs = tuple(msgspec.structs.replace(it, place=place) for it in outcome.runs)
        comparisons = tuple(msgspec.structs.replace(it, place=place) for it in outcome.comparisons)
        subjects = (*(runs if Stage.RUNTIME in self._request.stages else ()), *comparisons)
        step = StepResult(subjects, outcome.undone, outcome.skipped, outcome.measured)
        yield replace(
            create_execution_result(step, runs),
            reused=tuple((str(planned.model.absolute), runtime) for runtime in outcome.observed),
            replays=(outcome.replay,) if outcome.replay is not None else (),
        )

    def tidy(self) -> None:
        """Prune the cache if entries were added."""
        if self._added:
            prune(self._folder)

    def _touch_replayed_inputs(self, replay: Replay | None) -> bool:
        """Mark the stored inputs that `replay` needs as used; return False if one is missing or damaged."""
        if replay is None or self._request.caches.inputs is None:
            return True
        folder = self._request.caches.inputs()
        return all(touch_stored_inputs(folder / Path(name).name) for name in replay.inputs)

    def _has_all_inputs(self, collected: CollectedModel, replay: Replay | None) -> bool:
        """Return whether all generated inputs that `replay` needs could be stored."""
        if replay is None or self._request.caches.inputs is None:
            return True
        generated = [case for case in collected.cases if case.name in replay.cases and case.origin != "user"]
        return len(generated) == len(replay.inputs)

    # Keys

    def _key(self, planned: PlannedModel) -> str:
        """Digest everything that the outcome of a model depends on; "" if that is not possible."""
        facts = self._results.facts.get(planned.path)
        if facts is None or planned.path in self._results.file.missing or not self._is_digestible(planned, facts):
            return ""
        try:
            values = self._key_values(planned, facts)
            return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()
        except (
            FileChangedError,
            OSError,
            ValueError,
        ):  # including text that is not valid UTF-8, and files on different drives
            return ""

    def _is_digestible(self, planned: PlannedModel, facts: ModelFacts) -> bool:
        """Return whether the outcome depends only on files, settings and this machine."""
        settings = planned.model.settings
        races = settings.budget is not None and (
            settings.budget.slower_than_baseline is not None or settings.budget.memory_over_baseline is not None
        )
        return not (
            facts.unread
            or settings.is_exported
            or settings.called_inputs
            or (races and Stage.RUNTIME in self._request.stages)
            or any(it.runtime.environment or not CPU_PROVIDERS.issuperset(it.providers) for it in planned.runtimes)
        )

    def _key_values(self, planned: PlannedModel, facts: ModelFacts) -> dict[str, object]:
        request, model, project = self._request, planned.model, self._request.project
        settings, limits = model.settings, project.config.limits
        return {
            "layout": OUTCOME_LAYOUT,
            "program": digest_program(),
            "machine": [identify_machine(), platform.release(), list_relevant_variables()],
            "stages": sorted(stage.value for stage in request.stages),
            "seed": request.selection.inputs.seed,
            "stores inputs": request.caches.inputs is not None,
            "config": [os.path.relpath(project.folder, project.root), project.path.name],
            "levels": project.config.rules,
            "limits": limits,
            "model": [planned.path, self._content(facts, model.absolute)],
            "settings": settings,
            "locked": request.lock.models.get(planned.path),
            "runtimes": [self._runtime_values(runtime) for runtime in planned.runtimes],
            "inputs": _digest_input_files(settings.inputs, project.folder, self._digests),
            "float model": self._float_content(settings.quantized_from),
        }

    def _runtime_values(self, planned: PlannedRuntime) -> list[object]:
        libraries = [Path(it) for it in planned.extensions if Path(it).is_absolute()]
        return [
            planned,
            self._harvests.get(planned.name),
            WorkerSpec.of_runtime(planned.runtime, self._request.lock.pinned, self._request.project.folder).packages,
            [self._digests.of(library) for library in libraries],
            identify_node() if runs_on_node(planned.runtime.engine) else "",
        ]

    def _content(self, facts: ModelFacts, path: Path) -> list[object]:
        """Return the digests of a model's files, which must match the digests in its facts."""
        files = list_content_files(facts, path)
        for file, sha256 in files.items():
            if self._digests.of(file) != sha256:
                raise FileChangedError(str(file))
        names = [os.path.relpath(file, path.parent) for file in files]
        return [names, list(files.values()), classify_layouts(facts, path)]

    def _float_content(self, name: str | None) -> object:
        """Return the file digests of a float model, which must be among the checked models."""
        if name is None:
            return None
        path = self._request.project.folder / name
        facts = next((self._results.facts.get(it.path) for it in self._request.models if it.absolute == path), None)
        if facts is None or facts.unread or facts.path in self._results.file.missing:
            raise FileChangedError(name)
        return self._content(facts, path)


# Reproducible results


def is_lasting_answer(answer: Future[Observation]) -> bool:
    """Return whether an observation is reproducible, and not caused by the machine or by chance."""
    if not answer.done() or answer.cancelled() or answer.exception() is not None:
        return False
    match answer.result():
        case Completed(result=RunResult(cases=cases)):
            return all(not case.unstable and (case.failure is None or _is_lasting(case.failure)) for case in cases)
        case Completed():
            return True
        case Refused(failure=failure):
            return _is_lasting(failure)
        case _:
            return False


def _is_lasting(failure: Failure) -> bool:
    return not failure.memory and failure_family(failure.text) not in MACHINE_FAMILIES


def is_lasting_step(step: StepResult) -> bool:
    """Return whether a step is reproducible: no check is incomplete because of time limits or the machine."""
    return not any(check.transient for check in (*step.undone, *step.skipped)) and not any(
        isinstance(subject, Comparison)
        and subject.pair == "quantized"
        and find_mismatches(subject)
        and not subject.layers
        for subject in step.subjects
    )


# Digests


@functools.cache
def digest_program() -> str:
    """Digest onnxgate and the packages that compute outcomes."""
    digest = hashlib.sha256(sys.version.encode())
    package = Path(__file__).parents[1]
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(files):
            path = Path(folder, name)
            digest.update(f"{path.relative_to(package).as_posix()}\0".encode(errors="surrogateescape"))
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for module, distribution in _COMPUTING_PACKAGES.items():
        digest.update(f"{module}\0{_digest_package(module, distribution)}\n".encode())
    return digest.hexdigest()


def _digest_package(module: str, distribution: str) -> str:
    """Digest the RECORD file of an installed package, which lists file digests; if it is missing, digest the files."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return ""
    folder = Path(next(iter(spec.submodule_search_locations)))
    site = folder.parents[module.count(".")]
    records = sorted(site.glob(f"{distribution}-*.dist-info/RECORD"))
    if len(records) == 1:
        return hashlib.sha256(records[0].read_bytes()).hexdigest()
    identities = [(path.name, file_identity(path.stat())) for path in sorted(folder.iterdir()) if path.is_file()]
    return hashlib.sha256(repr(identities).encode(errors="surrogateescape")).hexdigest()


def _digest_input_files(pattern: str | None, base: Path, digests: FileDigests) -> list[tuple[str, str]]:
    """Return the names and digests of the user's input files, including all files in test data folders."""
    if pattern is None:
        return []
    return [
        (file.relative_to(base).as_posix(), digests.of(file) if file.is_file() else "")
        for path in sorted(base.glob(pattern))
        for file in ((path, *sorted(path.iterdir())) if path.is_dir() else (path,))
    ]


# Entries


def read_entry(folder: Path, kind: type[Entry]) -> Entry | None:
    """Return the entry in a folder; if it is damaged, remove the folder and return None."""
    if not os.path.lexists(folder):
        return None
    with contextlib.suppress(OSError):
        entry = decode_entry(folder.name, read_limited(folder / ENTRY_FILE, MAX_OUTCOME_BYTES), kind)
        if entry is not None:
            return entry
    record_damage(str(folder))
    with contextlib.suppress(OSError):
        remove_path(folder)
    return None


def write_entry(folder: Path, entry: msgspec.Struct) -> bool:
    """Write or replace an entry; return False if it is too large or cannot be encoded without loss."""
    content = encode_entry(folder.name, entry, type(entry))
    if content is None or len(content) > MAX_OUTCOME_BYTES:
        return False
    scratch = folder.with_name(f"{secrets.token_hex(8)}.part")
    try:
        scratch.mkdir(parents=True)
        (scratch / ENTRY_FILE).write_bytes(content)
        remove_path(folder)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return True
