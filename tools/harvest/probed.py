"""Measure one release of an engine that reports neither kernels nor schemas, by loading the probe models.

OpenVINO and tract convert a model when they load it. Each probe has one node; `probing/conditions` finds the types and
features with which a release refuses a version of an operator.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import onnx
from packaging.requirements import Requirement
from packaging.version import Version

from campaigns.conformance import engine_loads
from campaigns.conformance.real_loads import CRASHED, TIMED_OUT
from harvest.data import Description
from harvest.probing import conditions, probe_models
from harvest.probing.conditions import Condition, Probe
from onnxgate.core.files import replace_atomically
from onnxgate.model.reading.view import ModelView
from onnxgate.project.lock.index import UvIndex
from onnxgate.project.lock.releases import find_releases
from onnxgate.project.lock.types import LockedPackage
from onnxgate.runtimes.environments.wheels import rank_wheels
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support import harvest
from onnxgate.support.limits import Limits
from onnxgate.support.matching.probed import node_features
from onnxgate.support.matching.probed.node_matching import CONSTANT, NOT_CONSTANT
from onnxgate.support.matching.type_inference import format_known_type, infer_model_types
from onnxgate.support.operators import ConditionRow, KernelRow, Table, TableSource, find_newest_schema

PLATFORM = "linux x86_64"
PROVIDER = "CPUExecutionProvider"
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators whose probes are too few to conclude that a version of them is never loaded."""
MIN_PROBES = 8
"""Minimum number of probes, all of them refused, from which it follows that a version of an operator is refused."""
MIN_PROBES_OF_TYPE = 4  # as many as Identity has of each type
PROBES_PER_PART = 2000
"""Number of probes after which results are stored, so that an interrupted harvest loads few probes again."""
DIGEST_LENGTH = 16  # hex digits
LOADS, REFUSED, MISSING = range(3)
"""Result of a probe. MISSING: the release reports that it does not implement the operator."""
HEAD = """# Support data of {title}

`tools/harvest_support.py --engine {engine}` writes this page together with the data. {title} reports neither kernels
nor schemas, so each release loads models with one node: every version of each operator with each type, attribute value,
omitted or constant input and several shapes. `{engine}-kernels.json.z` contains the versions and types that are loaded,
and the conditions on which a version is refused.

Types are written without `tensor(…)`.
"""


class _ProbeModel(NamedTuple):
    operator: tuple[str, str]
    version: int
    features: frozenset[str]
    interface: frozenset[str]  # types of inputs and outputs
    data: bytes


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one release, stored in the work folder. Results of earlier lists of probes stay valid."""

    source: TableSource
    engine: str
    results: dict[str, int]  # by the digest of a probe
    platform: str = PLATFORM

    @property
    def harvest(self) -> harvest.HarvestRecord:
        """The harvest computed from the measurements."""
        results = [(probe, self.results[digest]) for digest, probe in list_probes().items()]
        return harvest.HarvestRecord(limits=_derive_limits(results), table=_derive_table(self, results))


@dataclass(frozen=True, slots=True)
class EngineRelease:
    """One release of an engine."""

    engine: str
    release: str

    @functools.cache  # noqa: B019 - there are few releases
    def find_wheel(self) -> TableSource:
        """Return the wheel of the release for this machine."""
        spec = engine_loads.find_spec(self.engine, self.release)
        package = next(it for it in spec.packages if isinstance(it, LockedPackage) and it.name == self.engine)
        wheel = next(iter(rank_wheels(package)))
        return TableSource(release=self.release, wheel=wheel.file, sha256=wheel.sha256)


def _bisect(releases: Sequence[EngineRelease]) -> Iterator[EngineRelease]:
    """Yield the first and the last release, then the middle one of each part."""
    yield from dict.fromkeys((*releases[:1], *releases[-1:]))
    parts = [(0, len(releases) - 1)]
    while parts:
        low, high = parts.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            yield releases[middle]
            parts += [(low, middle), (middle, high)]


class ProbedHarvester:
    """Harvests one engine."""

    def __init__(self, engine: str, title: str, oldest: str, series: int, missing: str, retries: int = 0) -> None:
        self.DESCRIPTION = Description(engine, PLATFORM, HEAD.format(engine=engine, title=title))
        self._engine, self._oldest, self._missing, self._retries = engine, oldest, missing, retries
        self._series = series  # number of parts of a release that name its series

    def find(self, named: Sequence[str]) -> tuple[EngineRelease, ...]:
        """Return the named releases, or all releases on the index since the oldest one, in the order of measurement.

        Of each series, the oldest and the newest release are measured first, then those in the middle of others.
        """
        requirements = [f"{self._engine}=={release}" for release in named] or [f"{self._engine}>={self._oldest}"]
        index = UvIndex()
        found = [release for text in requirements for release in find_releases(Requirement(text), "all", index)]
        parts = itertools.groupby((release.version for release in found), self._find_series)
        series = [[EngineRelease(self._engine, str(version)) for version in versions] for _, versions in parts]
        return tuple(release for releases in series for release in _bisect(releases))

    def _find_series(self, version: Version) -> tuple[int, ...]:
        return version.release[: self._series]

    def recorded(self, work: Path, release: EngineRelease) -> Record | None:
        """Return the stored record of this release if it contains all probes."""
        record = self._read(work, release)
        return record if record is not None and list_probes().keys() <= record.results.keys() else None

    def _read(self, work: Path, release: EngineRelease) -> Record | None:
        try:
            record = msgspec.json.decode(self._path(work, release).read_bytes(), type=Record)
        except (OSError, msgspec.MsgspecError):
            return None
        return record if record.source == release.find_wheel() else None

    def measure(self, work: Path, release: EngineRelease) -> Record:
        """Load the probes without a result with a release, and store all results after each part of them.

        Probes on which the nearest measured older and newer releases agree are assumed to have the same result.
        """
        stored = self._read(work, release)
        results = self.find_assumed(work, release) | (stored.results if stored is not None else {})
        record = Record(source=release.find_wheel(), engine=self._engine, results=results)
        missing = [digest for digest in list_probes() if digest not in results]
        self._store(work, release, record)
        spec = engine_loads.find_spec(self._engine, release.release)
        for start in range(0, len(missing), PROBES_PER_PART):
            part = {digest: list_probes()[digest] for digest in missing[start : start + PROBES_PER_PART]}
            texts = self._load(spec, {digest: probe.data for digest, probe in part.items()})
            record.results.update({digest: self._classify(probe, texts[digest]) for digest, probe in part.items()})
            self._store(work, release, record)
        return record

    def _load(self, spec: WorkerSpec, models: Mapping[str, bytes]) -> dict[str, str]:
        """Return the error texts of probes; those that crash are loaded again, as often as `retries`."""
        workers = len(os.sched_getaffinity(0))
        texts = engine_loads.load_all(spec, models, workers=workers)
        for _ in range(self._retries):
            crashed = {name: models[name] for name, text in texts.items() if text.startswith((CRASHED, TIMED_OUT))}
            texts |= engine_loads.load_all(spec, crashed, workers=workers) if crashed else {}
        return texts

    def _store(self, work: Path, release: EngineRelease, record: Record) -> None:
        path = self._path(work, release)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(path) as scratch:
            scratch.write_bytes(msgspec.json.encode(record))

    def find_assumed(self, work: Path, release: EngineRelease) -> dict[str, int]:
        """Return the results on which the nearest measured older and newer releases of the same series agree.

        Source: tract 0.23.0 to 0.23.7 load blocked DequantizeLinear, which 0.21.8 and 0.23.9 refuse.
        """
        version = Version(release.release)
        paths = work.glob(f"{self._engine}-*.json")
        found = sorted(Version(path.stem.removeprefix(f"{self._engine}-")) for path in paths)
        found = [it for it in found if self._find_series(it) == self._find_series(version)]
        measured = [
            (it, record) for it in found if (record := self.recorded(work, EngineRelease(self._engine, str(it))))
        ]
        older = [record.results for it, record in measured if it < version][-1:]
        newer = [record.results for it, record in measured if it > version][:1]
        results = [*older, *newer]
        if not older or not newer:
            return {}
        return {name: result for name, result in results[0].items() if results[1].get(name) == result}

    def _classify(self, probe: _ProbeModel, text: str) -> int:
        """Return the result of a probe. The names of missing operators follow the text that reports them."""
        if not text:
            return LOADS
        named = re.search(self._missing.format(name=re.escape(probe.operator[1])), text)
        return MISSING if named else REFUSED

    def _path(self, work: Path, release: EngineRelease) -> Path:
        return work / f"{self._engine}-{release.release}.json"


OPENVINO = ProbedHarvester(
    "openvino",
    "OpenVINO",
    "2024.5",
    1,
    missing=r"(?:No conversion rule found for|does not support the following ONNX) operations:"
    r"[^\n]*?[ .]{name}(?:-\d+)?(?:[,\s]|$)",
    retries=3,  # Source: 2024.5.0 to 2026.4.1 end the process in 1 of 4 loads of a Slice with computed `axes`
)
TRACT = ProbedHarvester("tract", "tract", "0.21.8", 2, missing=r"Unimplemented\({name}\)")


@functools.cache
def list_probes() -> dict[str, _ProbeModel]:
    """Return all probes by the digest of the model."""
    versions = probe_models.list_versions()
    models = [it for schema, last in versions for it in probe_models.generate(schema, last)]
    others = (probe_models.generate_others(), probe_models.generate_captures(), probe_models.generate_unnamed())
    models += itertools.chain(*others)
    probes = (describe_probe(model) for _, model in models)
    return {hashlib.sha256(probe.data).hexdigest()[:DIGEST_LENGTH]: probe for probe in probes}


def describe_probe(model: onnx.ModelProto) -> _ProbeModel:
    """Return a probe with the operator and the features of its node."""
    (node, *_) = infer_model_types(ModelView(model)).nodes
    operation = node.operation
    schema = find_newest_schema(operation.domain, operation.name, operation.version)
    return _ProbeModel(
        (operation.domain, operation.name),
        schema.since if schema is not None else 0,
        node_features.describe_node(node, schema) if schema is not None else frozenset(),
        frozenset(format_known_type(value.type) for value in (*model.graph.input, *model.graph.output)),
        model.SerializeToString(deterministic=True),
    )


def _derive_limits(results: Iterable[tuple[_ProbeModel, int]]) -> Limits:
    """Return the limits of a release: it accepts all versions, but not inputs and outputs of all types.

    A type of a sequence or optional value is refused only if several probes of implemented operators are.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for probe, result in results:
        for type_name in filter(None, probe.interface):
            found[type_name].append(result)
    refused = (
        name
        for name, results_of_type in found.items()
        if LOADS not in results_of_type
        and (name.startswith("tensor(") or results_of_type.count(REFUSED) >= MIN_PROBES_OF_TYPE)
    )
    return Limits(ir=None, opsets={}, refused_interface_types=tuple(sorted(refused)))


def _derive_table(record: Record, results: Iterable[tuple[_ProbeModel, int]]) -> Table:
    """Return the table of one release."""
    groups: dict[tuple[tuple[str, str], int], list[tuple[_ProbeModel, int]]] = defaultdict(list)
    for probe, result in results:
        groups[probe.operator, probe.version].append((probe, result))
    rows = harvest.TableBuilder()
    interface = _find_interface_conditions(groups)
    missing = _find_missing_operators(groups)
    for (operator, version), probed in groups.items():
        if any(result == LOADS for _, result in probed):
            found = _find_conditions(tuple(probed))
            constraints = rows.constraints(_list_constraints(operator, version, found))
            rows.add(operator, KernelRow(version, version, PROVIDER, constraints, 1))
            for condition in found:
                if not _is_type(condition):
                    rows.add(operator, ConditionRow(version, condition.features, 1))
        elif operator in missing or _is_never_loaded(operator, probed):
            rows.add(operator, ConditionRow(version, (), 1))
        else:
            rows.add(operator, KernelRow(version, version, PROVIDER, (), 1))
        for feature in sorted(interface[operator]):
            if any(feature in probe.features for probe, _ in probed):
                rows.add(operator, ConditionRow(version, (feature,), 1))
    return rows.table(record.engine, PLATFORM, (record.source,))


def _find_missing_operators(
    groups: Mapping[tuple[tuple[str, str], int], Sequence[tuple[_ProbeModel, int]]],
) -> set[tuple[str, str]]:
    """Return the operators of which no version is loaded, and at least one is reported as not implemented."""
    results: dict[tuple[str, str], set[int]] = defaultdict(set)
    for (operator, _), probed in groups.items():
        results[operator].update(result for _, result in probed)
    return {operator for operator, found in results.items() if MISSING in found and LOADS not in found}


def _find_interface_conditions(
    groups: Mapping[tuple[tuple[str, str], int], Sequence[tuple[_ProbeModel, int]]],
) -> Mapping[tuple[str, str], set[str]]:
    """Return by operator that its sequences cannot be inputs or outputs of the model, if all such probes are refused.

    Control flow is excluded: its subgraphs may convert the sequences, and few of them are probed.
    """
    loads: dict[tuple[tuple[str, str], str], list[bool]] = defaultdict(list)
    for (operator, _), probed in groups.items():
        for probe, result in probed if operator[1] not in CONTROL_FLOW else ():
            for feature in probe.features:
                if feature.endswith((node_features.MODEL_INPUT, node_features.MODEL_OUTPUT)):
                    loads[operator, feature].append(result == LOADS)
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (operator, feature), results in loads.items():
        if len(results) >= MIN_PROBES and not any(results):
            found[operator].add(feature)
    return found


@functools.cache  # most releases have the same results
def _find_conditions(probed: tuple[tuple[_ProbeModel, int], ...]) -> list[Condition]:
    """Return the conditions on which a version of an operator is refused.

    Some apply only if not all inputs are constants: a node of constants is computed when the model is loaded, often
    without the checks that other nodes need to pass.
    """
    probes = [Probe(it.features, int(result == LOADS)) for it, result in probed]
    found = [_restrict(condition, probes) for condition in conditions.find_conditions(probes, 1)]
    rest = [it for it in probes if NOT_CONSTANT in it.features and not _is_explained(it, found)]
    if not any(probe.loads for probe in rest):
        return [*found, Condition((NOT_CONSTANT,), 1)] if rest else found
    more = conditions.find_conditions(rest, 1)
    return [*found, *(Condition(tuple(sorted({*it.features, NOT_CONSTANT})), 1) for it in more)]


def _restrict(condition: Condition, probes: Sequence[Probe]) -> Condition:
    """Restrict a condition to nodes that are not computed from constants only, unless such a probe is refused, too."""
    covered = [it.features for it in probes if it.features.issuperset(condition.features)]
    if _is_type(condition) or any(": rank" in it for it in condition.features):
        return condition  # engines check these before they compute constants
    if any(CONSTANT in it for it in covered) or not all(NOT_CONSTANT in it for it in covered):
        return condition
    return Condition(tuple(sorted({*condition.features, NOT_CONSTANT})), condition.releases)


def _is_explained(probe: Probe, found: Sequence[Condition]) -> bool:
    return any(probe.features.issuperset(condition.features) for condition in found)


def _is_never_loaded(operator: tuple[str, str], probed: Sequence[tuple[_ProbeModel, int]]) -> bool:
    """Return whether it follows from refused probes that a version of an operator is always refused.

    Operators on sequences may be refused only because a sequence is an input or output of the model.
    """
    if any(result == MISSING for _, result in probed):
        return True
    only_tensors = all(type_.startswith("tensor(") for probe, _ in probed for type_ in probe.interface if type_)
    return operator[0] == "ai.onnx" and operator[1] not in CONTROL_FLOW and only_tensors and len(probed) >= MIN_PROBES


def _is_type(condition: Condition) -> bool:
    return len(condition.features) == 1 and "=" in condition.features[0] and condition.features[0].endswith(")")


def _list_constraints(
    operator: tuple[str, str], version: int, found: Iterable[Condition]
) -> Mapping[str, frozenset[str]]:
    """Return the accepted types of each type parameter of which the release refuses a type."""
    refused = {condition.features[0] for condition in found if _is_type(condition)}
    schema = find_newest_schema(*operator, version)
    accepted = {
        parameter: frozenset(it for it in types if f"{parameter}={it}" not in refused)
        for parameter, types in (schema.constraints if schema is not None else {}).items()
    }
    return {
        parameter: types
        for parameter, types in accepted.items()
        if any(it.startswith(f"{parameter}=") for it in refused)
    }
