"""Run the static stages for many models in child processes, with a cache for unchanged models.

If a child process crashes, hangs or runs out of memory, only the checks of its current model are undecided.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from onnxgate import rules
from onnxgate.core.bug_reports import ErrorBoundary, contain_errors
from onnxgate.core.files import (
    REMEMBERED_BYTES,
    Identity,
    file_identity,
    known_digest,
    remember_digests,
    sha256_of,
)
from onnxgate.core.findings import IncompleteCheck, Place, RuleHit, Stage
from onnxgate.core.process_pool import Call, CallFailure, CallLimits, FailedCallError, ProcessPool, describe_failure
from onnxgate.evidence.file import ModelFile
from onnxgate.gate.results import resolution
from onnxgate.gate.static_cache import FileDigestCache, StaticResultCache, digest_static_key
from onnxgate.model.facts import ModelFacts
from onnxgate.model.onnx_functions import record_failed_calls
from onnxgate.model.onnx_package import defer_initialization
from onnxgate.model.reading.external_data import (
    classify_layout,
    find_external_files,
    has_replaced_locations,
    inspect_data_file,
)
from onnxgate.model.subgraphs.node_context import track_source_lookups
from onnxgate.model.validity import CheckedModel
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.environments.storage import create_private_folder
from onnxgate.stages import file as file_stage
from onnxgate.stages.support import stage as support_stage
from onnxgate.stages.support.operator_predictions import LocatedModel
from onnxgate.support.matching.operations import LoadVerdict, RefusedOperations

if TYPE_CHECKING:
    from onnxgate.support.harvest import BuildSupport

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

CHILD_TIME_S = 300
CHILD_BYTES_PER_S = 10 * 2**20
"""Assumed reading speed of a child process, based on five passes over the weights on a slow disk (50 MiB/s)."""
CHILD_MEMORY_BYTES = 4 * 2**30
"""Memory limit of a child process in bytes, in addition to four times the model size."""
MODELS_PER_CHILD = 8
"""Number of small models that can be read in the time that starting a child process takes."""
BYTES_PER_CHILD = 32 * 2**20
HASHED_BYTES = 64 * 2**20
"""Files of at least this size in bytes are not hashed to detect changes; only known digests are used."""
NO_REQUESTS: Mapping[str, SupportRequest] = {}


class SupportFindings(msgspec.Struct, frozen=True):
    """The part of a `SupportResult` that is cached."""

    judged: tuple[RuleHit, ...] = ()
    verdicts: dict[str, LoadVerdict] = msgspec.field(default_factory=dict)  # by runtime


class SupportResult(msgspec.Struct, frozen=True):
    """Result of the support stage for one model, with predicted refusals if the query requests them."""

    findings: SupportFindings = SupportFindings()
    predictions: dict[str, RefusedOperations] = msgspec.field(default_factory=dict)  # by runtime
    lasting: bool = False
    undone: tuple[IncompleteCheck, ...] = ()


class SupportRequest(msgspec.Struct, frozen=True):
    """Input of the support stage for one model, except the content of its file."""

    model: SelectedModel
    place: Place
    root: Path
    folder: Path
    runtimes: tuple[PlannedRuntime, ...]
    harvested: Mapping[str, BuildSupport]
    levels: Mapping[str, str]
    predictions: bool  # include predictions in the result


class SupportQuery(msgspec.Struct, frozen=True):
    """Input of the support stage for one model."""

    request: SupportRequest
    facts: ModelFacts
    is_complete: bool = True  # the facts come from complete files, not from the lock


class FileQuery(msgspec.Struct, frozen=True):
    """One model to read, with an optional support request to answer at the same time."""

    model: SelectedModel
    support: SupportRequest | None = None
    records_failures: bool = False  # read the model even if functions of onnx fail


class FileReading(msgspec.Struct, frozen=True):
    """Facts of one file, and the predictions based on them."""

    file: ModelFile
    lasting: bool
    digests: tuple[tuple[Identity, str], ...] = ()  # digests of large files that were computed
    support: SupportResult | None = None


def create_caching_analyzer(jobs: int, folder: Path, project: Path, *, fresh: bool = False) -> StaticAnalyzer:
    """Create an analyzer that caches results in `folder`. If other users can write to the folder, nothing is cached.

    With `fresh`, cached results are replaced instead of reused.
    """
    if create_private_folder(folder) is None:
        return StaticAnalyzer(jobs)
    return StaticAnalyzer(jobs, StaticResultCache(folder, project, fresh=fresh), FileDigestCache(folder, fresh=fresh))


class StaticAnalyzer:
    """Analyzer that reads models for the static stages in up to `jobs` child processes."""

    def __init__(
        self, jobs: int, unchanged: StaticResultCache | None = None, digests: FileDigestCache | None = None
    ) -> None:
        self._children = ProcessPool(jobs, defer_initialization)
        self._unchanged = unchanged
        self._digests = digests
        self.reused_files = 0  # number of models that were not read, because their results are cached
        self._predicted: dict[
            str, tuple[SupportQuery, SupportResult]
        ] = {}  # by model, computed while its file was read

    def __enter__(self) -> StaticAnalyzer:
        return self

    def end_children(self) -> None:
        """End the child processes to free their memory; the next call starts new processes."""
        self._children.__exit__()

    def __exit__(self, *_: object) -> None:
        self.end_children()
        if self._unchanged is not None:
            self._unchanged.save()

    # The file stage

    def files(
        self,
        project: Project,
        models: Sequence[SelectedModel],
        lock: Lock,
        requests: Mapping[str, SupportRequest] = NO_REQUESTS,
    ) -> tuple[ModelFile, ...]:
        """Read the file of each model; results are in the order of `models`.

        `requests` contains the support requests that will follow, by model. They are processed while the file is read.
        """
        locked = ((model, lock.models.get(model.path)) for model in models)
        self._recall((path for model, entry in locked for path in _model_files(model, entry)), project.root)
        keys = list(map(self._file_key, models))
        cached = [self._unchanged.find(key, ModelFile) if self._unchanged and key else None for key in keys]
        present = [(model, file) for model, file in zip(models, cached, strict=True) if file is not None]
        self._recall((path for model, file in present for path in _model_files(model, file.facts)), project.root)
        current = [
            file if file is not None and _is_current(file, model, self._hashed_bytes()) else None
            for model, file in zip(models, cached, strict=True)
        ]
        queries = [
            FileQuery(model, requests.get(model.path)) for model, file in zip(models, current, strict=True) if not file
        ]
        self.reused_files = len(models) - len(queries)
        answers = iter(self._read(queries))
        files = [
            file or self._accept_reading(next(answers), model, key, requests.get(model.path))
            for model, key, file in zip(models, keys, current, strict=True)
        ]
        if self._digests is not None:
            self._digests.keep(
                path for model, file in zip(models, files, strict=True) for path in _model_files(model, file.facts)
            )
        return tuple(
            _add_known_state(model, lock.models.get(model.path), file, project.root)
            for model, file in zip(models, files, strict=True)
        )

    def _file_key(self, model: SelectedModel) -> str:
        digest = _sha256_if_known(model.absolute, self._hashed_bytes()) if self._unchanged else ""
        return digest_static_key("file", model.path, digest) if digest else ""

    def _hashed_bytes(self) -> int:
        """Return the size below which files are hashed for a cache lookup; it is small if the cache is empty."""
        return HASHED_BYTES if self._unchanged and self._unchanged.has_entries else REMEMBERED_BYTES

    def _read(self, queries: Sequence[FileQuery]) -> list[FileReading | CallFailure]:
        """Read the files. If a child process fails, read its file again without what may be the cause.

        This is the prediction of its support, or a function of onnx, whose failure is recorded.
        """
        calls = [Call(read_model_file, query, FileReading, _child_bounds(query.model)) for query in queries]
        answers = self._children.run(calls, at_once=_child_count(calls))
        failed = [
            index
            for index, answer in enumerate(answers)
            if isinstance(answer, CallFailure) and answer.how != "changed" and not queries[index].records_failures
        ]
        if failed:
            again = self._read([FileQuery(queries[index].model, records_failures=True) for index in failed])
            for index, answer in zip(failed, again, strict=True):
                if not (isinstance(answer, CallFailure) and answer.how == "not-started"):
                    answers[index] = answer
        return answers

    def _recall(self, files: Iterable[Path], root: Path) -> None:
        if self._digests is not None:
            self._digests.recall(files, root)

    def _accept_reading(
        self, answer: FileReading | CallFailure, model: SelectedModel, key: str, request: SupportRequest | None
    ) -> ModelFile:
        if isinstance(answer, CallFailure):
            return ModelFile(model.path, Place(model.path), undecided=describe_failure(answer, "reading the file"))
        file = answer.file
        remember_digests(dict(answer.digests))
        if answer.support is not None and request is not None and file.facts is not None:
            query = SupportQuery(request, file.facts, file.is_complete)
            self._predicted[model.path] = query, answer.support
        if file.undecided is not None and request is not None and file.facts is not None:
            query = SupportQuery(request, file.facts, file.is_complete)
            undone = IncompleteCheck(Stage.SUPPORT, model.path, "", *file.undecided, decided_by_runs=True)
            self._predicted[model.path] = query, SupportResult(undone=(undone,))
        if answer.lasting and self._unchanged is not None and file.facts is not None:
            read = digest_static_key("file", model.path, file.facts.sha256)
            if key in ("", read) and _is_current(file, model):
                self._unchanged.keep(read, file)
        return file

    # The support stage

    def support(self, queries: Sequence[SupportQuery], *, reuse: bool = True) -> list[SupportResult]:
        """Predict the support of each model; if its child process fails, the result contains only the reason.

        With `reuse`, findings may come from the cache, which does not contain predicted refusals.
        """
        keys = [self._support_key(query) for query in queries]
        known = [self._find_support(query, key if reuse else "") for query, key in zip(queries, keys, strict=True)]
        calls = [
            Call(match_support, query, SupportResult, _child_bounds(query.request.model))
            for query, result in zip(queries, known, strict=True)
            if result is None
        ]
        answers = iter(self._children.run(calls, at_once=_child_count(calls)))
        return [
            self._accept_result(next(answers) if result is None else result, query, key)
            for query, key, result in zip(queries, keys, known, strict=True)
        ]

    def _find_support(self, query: SupportQuery, key: str) -> SupportResult | None:
        """Return the result computed when the file was read or, if there is none, the cached result."""
        predicted = self._predicted.get(query.request.model.path)
        if predicted is not None and predicted[0] == query:
            return predicted[1]
        findings = self._unchanged.find(key, SupportFindings) if self._unchanged and key else None
        return None if findings is None else SupportResult(findings)

    def _accept_result(self, answer: SupportResult | CallFailure, query: SupportQuery, key: str) -> SupportResult:
        if isinstance(answer, CallFailure):
            reason, hint = describe_failure(answer, "the support prediction")
            is_decided = answer.how in ("crashed", "timed-out", "memory")
            undone = IncompleteCheck(Stage.SUPPORT, query.facts.path, "", reason, hint, decided_by_runs=is_decided)
            return SupportResult(undone=(undone,))
        if answer.lasting and self._unchanged is not None and key:
            self._unchanged.keep(key, answer.findings)
        return answer

    def _support_key(self, query: SupportQuery) -> str:
        """Return the cache key of a query; "" if its result cannot be cached."""
        request = query.request
        if self._unchanged is None:
            return ""
        if query.facts.unread or not query.is_complete:
            return ""
        path, external = request.model.absolute, query.facts.external
        digests = [(data.location, data.sha256, classify_layout(path, data.location)) for data in external]
        harvests = {name: support.sha256 for name, support in request.harvested.items()}
        runtimes = [(runtime, runtime.runtime.name, harvests.get(runtime.name)) for runtime in request.runtimes]
        return digest_static_key(
            "support", request.model.path, query.facts.sha256, digests, request.place, runtimes, request.levels
        )

    # Other stages

    def call(
        self, function: Callable[[Argument], Answer], argument: Argument, answer: type[Answer], files: Sequence[Path]
    ) -> Answer | CallFailure:
        """Call `function`, which reads `files`, in a child process, and return its result."""
        sizes = [status.st_size for status in map(_stat_or_none, files) if status is not None]
        bounds = CallLimits(CHILD_TIME_S + sum(sizes) // CHILD_BYTES_PER_S, CHILD_MEMORY_BYTES + 4 * sum(sizes))
        (result,) = self._children.run([Call(function, argument, answer, bounds)], at_once=1)
        return result

    def recall(self, key: Sequence[object], answer: type[Answer]) -> Answer | None:
        """Return the cached result with this key, or None."""
        return self._unchanged.find(digest_static_key(*key), answer) if self._unchanged is not None else None

    def keep(self, key: Sequence[object], answer: object, files: Mapping[Path, str]) -> None:
        """Cache a result that depends only on its key, if each of `files` still has the SHA-256 in the key."""
        if self._unchanged is None:
            return
        if all(_sha256_if_known(file, HASHED_BYTES) == sha256 for file, sha256 in files.items()):
            self._unchanged.keep(digest_static_key(*key), answer)


def read_model_file(query: FileQuery) -> FileReading:
    """Read a model file and predict its support. Runs in a child process.

    Raises:
        FailedCallError: the model or its data changed while it was read.
    """
    try:
        return _read_unchanged(query)
    except (FailedCallError, MemoryError):
        raise
    except Exception as error:
        _read_unchanged(query)  # fails again, unless the files changed
        raise FailedCallError(CallFailure("changed")) from error


def _read_unchanged(query: FileQuery) -> FileReading:
    model = query.model
    with track_source_lookups() as was_consulted:
        before = _stat_or_none(model.absolute)
        failed: dict[str, str] = {}
        with record_failed_calls(failed) if query.records_failures else nullcontext():
            inspected = file_stage.inspect_file(model)
        file = inspected.file
        if failed:
            file = msgspec.structs.replace(file, undecided=next(iter(failed.items())))
        after = _stat_or_none(model.absolute)
        is_same = before is not None and after is not None and file_identity(before) == file_identity(after)
        statuses = filter(None, map(_stat_or_none, _model_files(model, file.facts)))
        digests = ((file_identity(status), known_digest(status)) for status in statuses)
        known_digests = tuple((identity, digest) for identity, digest in digests if digest is not None)
        lasting = is_same and not failed and not was_consulted()
        support = None
        if query.support is not None and inspected.content is not None and file.facts is not None:
            support = _match_content(query.support, file.facts, inspected.content, lasting=is_same)
        _require_unchanged(model.absolute, before, file.facts, inspected.content)
        return FileReading(file, lasting, known_digests, support)


def match_support(query: SupportQuery) -> SupportResult:
    """Run the support stage for a model. Runs in a child process.

    Raises:
        FailedCallError: the model or its data changed since the facts were read, or while the support was predicted.
    """
    path, facts = query.request.model.absolute, query.facts
    before, content = _stat_or_none(path), file_stage.read_checked_model(path)
    is_same = content is not None and (content.view.sha256 or sha256_of(path)) == facts.sha256
    if query.is_complete and not is_same:
        raise FailedCallError(CallFailure("changed"))
    result = _match_content(query.request, facts, content, lasting=is_same)
    if query.is_complete:
        _require_unchanged(path, before, facts, content)
    return result


def _require_unchanged(
    path: Path, before: os.stat_result | None, facts: ModelFacts | None, content: CheckedModel | None
) -> None:
    """Raise an error if a model or its data changed since it was read. `before` is its state before that."""
    after = _stat_or_none(path)
    identities = [None if status is None else file_identity(status)[:-1] for status in (before, after)]
    try:
        # A program that restores the same content, or only touches the file, does not change the result.
        is_same = identities[0] == identities[1] or (facts is not None and sha256_of(path) == facts.sha256)
        if is_same and facts is not None and content is not None and content.view.external:
            is_same = find_external_files(content.view, path) == (facts.external, facts.unread)
    except OSError:
        is_same = False
    if not is_same:
        raise FailedCallError(CallFailure("changed"))


def _match_content(
    request: SupportRequest, facts: ModelFacts, content: CheckedModel | None, *, lasting: bool
) -> SupportResult:
    with track_source_lookups() as was_consulted:
        evidence = support_stage.collect_model_evidence(
            LocatedModel(request.model, request.place, request.root, request.folder),
            facts,
            content,
            request.runtimes,
            request.harvested,
        )
        undone: list[IncompleteCheck] = []
        judged = tuple(
            resolution.apply_rules(
                evidence.subjects,
                rules.ALL,
                request.levels,
                lambda _: contain_errors(facts.path, (Stage.SUPPORT,), undone),
            )
        )
        findings = SupportFindings(
            judged, {name: prediction.verdict for name, prediction in evidence.predictions.items()}
        )
        refused = {name: prediction.refused for name, prediction in evidence.predictions.items()}
        lasting = lasting and not undone and not was_consulted()
        lasting = lasting and not (content and has_replaced_locations(content.view))
        return SupportResult(findings, refused if request.predictions else {}, lasting, tuple(undone))


def _child_bounds(model: SelectedModel) -> CallLimits:
    status = _stat_or_none(model.absolute)
    return CallLimits(CHILD_TIME_S, CHILD_MEMORY_BYTES + 4 * (status.st_size if status is not None else 0))


def _child_count(
    calls: Sequence[Call[FileQuery, FileReading]] | Sequence[Call[SupportQuery, SupportResult]],
) -> int:
    """Return the number of child processes to start; 0 if there is no work."""
    total = sum((call.bounds.memory_bytes - CHILD_MEMORY_BYTES) // 4 for call in calls)
    return max(1 if calls else 0, 1 + len(calls) // MODELS_PER_CHILD, min(len(calls), 1 + total // BYTES_PER_CHILD))


def _sha256_if_known(path: Path, hashed_bytes: int) -> str:
    """Return the digest of a file if it is cached or the file is smaller than `hashed_bytes`; otherwise ""."""
    try:
        if not path.is_file():
            return ""
        status = path.stat()
        return known_digest(status) or (sha256_of(path) if status.st_size < hashed_bytes else "")
    except (OSError, ValueError):
        return ""


def _stat_or_none(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _add_known_state(model: SelectedModel, entry: LockedModel | None, file: ModelFile, root: Path) -> ModelFile:
    with ErrorBoundary() as caught:
        return file_stage.add_known_state(model, entry, file, root)
    return ModelFile(model.path, model.place, undecided=(caught.reason, caught.hint))


def _is_current(file: ModelFile, model: SelectedModel, hashed_bytes: int = REMEMBERED_BYTES) -> bool:
    """Return whether the facts list every file that was read, and the data files are unchanged."""
    facts = file.facts
    if facts is None or facts.unread or not file.is_complete:
        return False
    try:
        return all(
            classify_layout(model.absolute, data.location) == "inside"
            and data_file.problem is None
            and data_file.size_bytes == data.size_bytes
            and _sha256_if_known(data_file.path, hashed_bytes) == data.sha256
            for data in facts.external
            for data_file in (inspect_data_file(model.absolute, data.location),)
        )
    except OSError:  # a file was removed meanwhile
        return False


def _model_files(model: SelectedModel, described: ModelFacts | LockedModel | None) -> Iterator[Path]:
    """Yield a model file, and the data files that its facts or lock entry list."""
    yield model.absolute
    yield from (model.absolute.parent / data.location for data in (described.external if described is not None else ()))
