"""The targets that `onnxgate init` suggests, with predictions for the models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.commands.files_without_config import make_request
from onnxgate.commands.init.dependencies.declarations import NPM_PACKAGES, PYTHON_ENGINES
from onnxgate.commands.init.deployed_runtimes import DeployedRuntime
from onnxgate.commands.matrix_prediction import predict_matrix
from onnxgate.core.errors import ConfigError, OnnxgateError
from onnxgate.core.findings import name_runtimes
from onnxgate.core.matrix import MatrixModel
from onnxgate.core.text import join_phrases
from onnxgate.gate import pipeline
from onnxgate.project.config.globs import is_glob
from onnxgate.project.engines import ONNXRUNTIME
from onnxgate.project.lock.index import UvIndex
from onnxgate.project.lock.releases import find_releases, minor_of
from onnxgate.support import limits
from onnxgate.support.matching.kernels import WEB_ENGINE

SUGGESTED_MINORS = 4
"""Number of minor releases in the target for a repository that does not declare a runtime."""
MANY_MINORS = 8
"""Number of minor releases in a target above which the config suggests checking only the oldest and the newest."""
MAX_PATCHES = 5
"""Number of patch releases of each old minor release that a range is compared with. ONNX Runtime had at most 4."""
MAX_NAMED = 3
"""Maximum number of files or models named in a comment."""
REFUSED_PHRASES = ("does not load on", "do not load on")
DEVELOPMENT_PHRASE = "This is a development dependency; the deployed release may differ"
NO_DATA_PHRASE = "There is no prediction: onnxgate has no support data for"
BUILD_PROVIDERS = {
    "onnxruntime-gpu": "CUDAExecutionProvider",
    "onnxruntime-directml": "DmlExecutionProvider",
    "onnxruntime-openvino": "OpenVINOExecutionProvider",
    "onnxruntime-qnn": "QNNExecutionProvider",
}


@dataclass(frozen=True, slots=True)
class SuggestedTarget:
    """One suggested target, with the comments for it in the config."""

    name: str
    runtime: str  # a requirement: "onnxruntime>=1.18"
    comments: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()  # requirements of builds for other hardware, which the target does not cover
    folders: tuple[str, ...] = ()  # folders that declare the runtime; "" for the whole repository

    @property
    def notes(self) -> tuple[str, ...]:
        """Comments that need attention: about refused models, releases without data and development dependencies."""
        return tuple(
            comment
            for comment in self.comments
            if any(phrase in comment for phrase in REFUSED_PHRASES)
            or comment.startswith((NO_DATA_PHRASE, DEVELOPMENT_PHRASE))
        )


Predictions = Sequence[MatrixModel]
"""The prediction for each readable model on every release that has support data."""


def predict_models(
    folder: Path, models: Sequence[str], jobs: int, engines: Iterable[str] = (ONNXRUNTIME,)
) -> Predictions:
    """Predict which releases of engines can load the models, based on their versions, operators, types and kernels."""
    if not models:
        return ()
    paths = [Path(model) for model in models]
    requests = [make_request(paths, engine, folder, jobs) for engine in engines if _has_table(engine)]
    by_engine = [predict_matrix(pipeline.run(request)) for request in requests]
    return [
        msgspec.structs.replace(same[0], runtimes=tuple(entry for model in same for entry in model.runtimes))
        for same in zip(*by_engine, strict=True)
    ]


def list_engines(deployed: Iterable[DeployedRuntime], requirements: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the engines of deployed packages and of requirements; ONNX Runtime if there are none."""
    engines = [*map(find_checked_engine, deployed), *map(_find_engine, requirements)]
    return tuple(dict.fromkeys(engines)) or (ONNXRUNTIME,)


def find_checked_engine(runtime: DeployedRuntime) -> str:
    """Return the engine of the target for a deployed package."""
    return runtime.package if runtime.package in PYTHON_ENGINES else ONNXRUNTIME


def _find_engine(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def _has_range(requirement: str) -> bool:
    return bool(Requirement(requirement).specifier)


def _has_table(engine: str) -> bool:
    return engine in limits.list_table_engines()


def _list_releases(engine: str) -> list[str]:
    """Return the releases that have support data, the oldest first."""
    return [*limits.load_limit_table(engine).releases]


def suggest_targets(
    deployed: Sequence[DeployedRuntime],
    predictions: Predictions,
    index: UvIndex | None,
    *,
    models: Sequence[str] = (),
    pointers: Sequence[str] = (),
) -> list[SuggestedTarget]:
    """Return a target for each distinct deployed release or range, or one target for the newest minor releases.

    The newest minor releases come from the index or, if it is None or not available, from the support data.
    `models` are all models of the repository, `pointers` the Git LFS pointers among them.
    """
    by_requirement: dict[str, list[DeployedRuntime]] = {}
    for runtime in deployed:
        by_requirement.setdefault(_checked_requirement(runtime), []).append(runtime)
    if not by_requirement:
        return [_suggest_newest(ONNXRUNTIME, predictions, index, pointers)]
    targets: list[SuggestedTarget] = []
    names = _name_targets([runtimes[0] for runtimes in by_requirement.values()])
    for name, (requirement, runtimes) in zip(names, by_requirement.items(), strict=True):
        builds = tuple(dict.fromkeys(it.requirement for it in runtimes if it.package in BUILD_PROVIDERS))
        folders = tuple(dict.fromkeys(_deployed_folder(runtime.file) for runtime in runtimes))
        comments = _describe_declarations(requirement, runtimes)
        targets.append(SuggestedTarget(name, requirement, comments, builds, folders))
    services = assign_targets(targets, models)
    return [_add_prediction(target, predictions, index, pointers, services) for target in targets]


def _add_prediction(
    target: SuggestedTarget,
    predictions: Predictions,
    index: UvIndex | None,
    pointers: Sequence[str],
    services: Mapping[str, Sequence[str]],
) -> SuggestedTarget:
    """Return the target with comments about its models.

    A target that allows any release becomes one for the newest minor releases.
    """

    def applies_to(path: str) -> bool:
        names = [names for folder, names in services.items() if path.startswith(f"{folder}/")]
        return not names or target.name in names[0]

    predictions = [model for model in predictions if applies_to(model.path)]
    pointers = [pointer for pointer in pointers if applies_to(pointer)]
    if not _has_range(target.runtime):
        newest = _suggest_newest(_find_engine(target.runtime), predictions, index, pointers)
        return replace(target, runtime=newest.runtime, comments=(*target.comments, *newest.comments))
    prediction = describe_prediction(target.runtime, predictions, index, pointers)
    return replace(target, comments=(*target.comments, *prediction))


def _deployed_folder(file: str) -> str:
    """Return the folder to whose models the dependencies in `file` apply; "" for the whole repository."""
    folder = PurePosixPath(file).parent
    folder = folder.parent if folder.name == "requirements" else folder
    return "" if folder == PurePosixPath() or ".." in folder.parts else folder.as_posix()


def assign_targets(targets: Sequence[SuggestedTarget], models: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each folder that is deployed with its own dependencies, and the names of the targets for its models.

    A deployed folder without models may deploy models outside of these folders; if there are none, those of any folder.
    The result is empty if all targets apply to all models.
    """
    folders = {folder for target in targets for folder in target.folders if folder}
    services = {folder for folder in folders if not any(folder.startswith(f"{other}/") for other in folders)}
    with_models = {folder for folder in services if any(model.startswith(f"{folder}/") for model in models)}
    if any(map(is_glob, services)):
        return {}
    has_others = any(not model.startswith(tuple(f"{folder}/" for folder in services)) for model in models)
    without_models = set() if has_others else services - with_models

    def applies_to(folder: str, service: str) -> bool:
        owners = {service, *without_models}
        return not folder or any(folder == owner or folder.startswith(f"{owner}/") for owner in owners)

    assigned = {
        service: tuple(target.name for target in targets if any(applies_to(it, service) for it in target.folders))
        for service in sorted(with_models)
    }
    return assigned if any(len(names) < len(targets) for names in assigned.values()) else {}


def _checked_requirement(runtime: DeployedRuntime) -> str:
    """Return the requirement of a target for a deployed package; it has no range if any release may be deployed."""
    engine = find_checked_engine(runtime)
    is_other = runtime.package != engine or runtime.is_conda
    if is_other and runtime.pin and _lacks_release(engine, runtime.pin):
        minor = Version(runtime.pin).release[:2]
        return f"{engine}=={'.'.join(map(str, minor))}.*"
    return f"{engine}{runtime.specifier}"


def _lacks_release(engine: str, pin: str) -> bool:
    """Return whether releases with the same minor version as `pin` are known for the pip package, but not `pin`."""
    known = list(map(Version, _list_releases(engine)))
    return Version(pin) not in known and Version(pin).release[:2] in {release.release[:2] for release in known}


def _name_targets(runtimes: Sequence[DeployedRuntime]) -> list[str]:
    """Return a distinct target name for each runtime. A single one is named `cpu`, unless it is of another engine."""
    if len(runtimes) == 1:
        return [name_target(find_checked_engine(runtimes[0]))]
    candidates = [_candidate_names(runtime) for runtime in runtimes]
    count = Counter(name for names in candidates for name in dict.fromkeys(names))
    used: list[str] = []
    for names in candidates:
        numbered = (f"{names[0]}-{number}" for number in range(2, len(runtimes) + 2))
        distinct = [name for name in names if count[name] == 1] or [names[0], *numbered]
        used.append(next(name for name in distinct if name not in used))
    return used


def name_target(engine: str) -> str:
    """Return the name of the only target of a config."""
    return engine if engine in PYTHON_ENGINES and engine != ONNXRUNTIME else "cpu"


def _candidate_names(runtime: DeployedRuntime) -> tuple[str, ...]:
    """Return possible names for a target, the best first. They consist of the package, the folder and the file."""
    file = PurePosixPath(runtime.file)
    folders = [name for name in file.parts[:-1] if name not in ("..", "requirements", "docker")]
    stem = re.sub(r"(?i)(docker|container)file", "docker", file.name if runtime.is_installed_directly else file.stem)
    if runtime.package in NPM_PACKAGES or find_checked_engine(runtime) != ONNXRUNTIME:
        stem = runtime.package.removeprefix(f"{ONNXRUNTIME}-")
        short = stem
    else:
        short = folders[-1] if folders else stem
    build = runtime.package.removeprefix(f"{ONNXRUNTIME}-").replace(ONNXRUNTIME, "cpu")
    names = [short, "-".join((*folders[-1:], stem)), "-".join((*folders[-2:-1], short)), f"{short}-{build}"]
    replaced = [re.sub(r"[^a-z0-9]", "-", name.lower()).strip("-") for name in names]
    return tuple(name or "cpu" for name in replaced)


def _describe_declarations(requirement: str, runtimes: Sequence[DeployedRuntime]) -> tuple[str, ...]:
    """Return comments that name the files that declare a runtime.

    They also name the package that is checked, if it is not the deployed one.
    """
    places = [f"{it.file}:{it.line} (`{it.declaration}`)" for it in runtimes]
    engine, has_range = _find_engine(requirement), _has_range(requirement)
    without_version = "" if has_range else " without a version"
    lines = [f"Declared{without_version} in {join_phrases(places, MAX_NAMED)}."]
    if all(it.is_for_development for it in runtimes):
        lines.append(f"{DEVELOPMENT_PHRASE}.")
    others = {it.package: f"`{it.package}`" for it in runtimes if it.package != engine}
    if any(it.is_conda for it in runtimes):
        others["conda"] = "the conda package"
    if others:
        package = "CPU" if others.keys() & BUILD_PROVIDERS.keys() else "pip"
        replaced = any(it.pin and it.pin not in requirement for it in runtimes)
        same = " of the same minor release" if replaced else " of the same release"
        if not all(it.pin for it in runtimes):  # another package has other patch releases in the same range
            same = " in the same range" if has_range else ""
        names = join_phrases(list(others.values()))
        lines.append(f"Checked with the {package} package `{engine}`{same}, not with {names}.")
    if has_range and (web := next((it for it in runtimes if it.package == WEB_ENGINE), None)):
        lines.append(f'To check `{WEB_ENGINE}` itself with Node.js, set `runtime = "{web.requirement}"`.')
    return tuple(lines)


def describe_prediction(
    requirement: str, predictions: Predictions, index: UvIndex | None = None, pointers: Sequence[str] = ()
) -> tuple[str, ...]:
    """Describe which releases in the range can load the models, and which have no prediction."""
    engine, specifier = _find_engine(requirement), Requirement(requirement).specifier
    if not _has_table(engine):
        return ()
    runtimes = [f"{engine} {release}" for release in _newest_patches(engine, specifier)]
    if not runtimes:
        return (f"{NO_DATA_PHRASE} `{requirement}`.",)
    sentences = []
    refused = _group_models(engine, runtimes, predictions, "refused")
    unknown = _group_models(engine, runtimes, predictions, "unknown")
    problems = [
        f"{_name_models(models)} {REFUSED_PHRASES[len(models) > 1]} {where}" for where, models in refused.items()
    ]
    if predictions and not refused and not unknown:
        verb = "loads" if len(predictions) == 1 else "load"
        (where,) = _group_models(engine, runtimes, predictions, "loads")
        problems = [f"{_name_models([model.path for model in predictions])} {verb} on {where}"]
    if problems:
        gaps = (
            _find_older_releases(engine, specifier, index),
            _find_newer_releases(engine, specifier, index),
        )
        ending = f" (no prediction for {' or for '.join(filter(None, gaps))})" if any(gaps) else ""
        more = "; …" if len(problems) > MAX_NAMED else ""
        sentences.append(f"Prediction: {'; '.join(problems[:MAX_NAMED])}{more}{ending}.")
    for where, models in unknown.items():
        sentences.append(f"There is no prediction for {_name_models(models)} on {where}.")
    if pointers:
        state = "a Git LFS pointer" if len(pointers) == 1 else "Git LFS pointers"
        verb = "was" if len(pointers) == 1 else "were"
        sentences.append(
            f"There is no prediction for {_name_models(pointers)}, which {verb} {state} when this file was written."
        )
    return tuple(sentences)


def _group_models(engine: str, runtimes: Sequence[str], predictions: Predictions, state: str) -> dict[str, list[str]]:
    """Return the models that are in a state on some of the runtimes, grouped by the names of these runtimes."""
    known = [f"{engine} {release}" for release in _newest_patches(engine, SpecifierSet())]
    known = sorted({*known, *runtimes}, key=lambda name: Version(name.partition(" ")[2]))
    groups: dict[str, list[str]] = {}
    for model in predictions:
        states = {entry.runtime: entry.state for entry in model.runtimes}
        affected = [runtime for runtime in runtimes if states.get(runtime, "unknown") == state]
        if affected:
            groups.setdefault(name_runtimes(affected, known), []).append(model.path)
    return groups


def _name_models(models: Sequence[str]) -> str:
    """Return the names of a few models, or the number of many. Other models may exist, which cannot be read."""
    if len(models) > MAX_NAMED:
        return f"{len(models)} models"
    return join_phrases([f"`{model}`" for model in models])


def _find_newer_releases(engine: str, specifier: SpecifierSet, index: UvIndex | None) -> str:
    """Return the releases in a range that are newer than the support data, such as `1.32.0`; "" if there are none."""
    newest = Version(_list_releases(engine)[-1])
    later = ((newest.major, newest.minor + 1), (newest.major, newest.minor + 100), (newest.major + 1, 0))
    if not any(specifier.contains(_join(minor)) for minor in later):
        return ""
    return _name_releases(engine, f">{newest},{specifier}", index, f"releases newer than {newest}")


def _find_older_releases(engine: str, specifier: SpecifierSet, index: UvIndex | None) -> str:
    """Return the releases in a range that are older than the support data, such as `1.7.0`; "" if there are none."""
    oldest = Version(_list_releases(engine)[0])
    earlier = (f"{oldest.major}.{minor}.{patch}" for minor in range(oldest.minor) for patch in range(MAX_PATCHES))
    if not any(specifier.contains(release) for release in earlier):
        return ""
    limit = f"{oldest.major}.{oldest.minor}"  # another patch of the oldest minor release may not be the selected one
    return _name_releases(engine, f"<{limit},{specifier}", index, f"releases older than {limit}")


def _name_releases(engine: str, specifier: str, index: UvIndex | None, default: str) -> str:
    """Return the newest patch of each minor release in a range of the index; `default` if it is not available."""
    if index is not None:
        try:
            releases = find_releases(Requirement(f"{engine}{specifier}"), "minors", index)
            return join_phrases([str(release.version) for release in releases], MAX_NAMED)
        except ConfigError:  # the index has no such release
            return ""
        except OnnxgateError:  # `onnxgate lock` reports that the index is not available
            pass
    return default


def _newest_patches(engine: str, specifier: SpecifierSet) -> list[str]:
    """Return the newest patch of each minor release in the range that has support data."""
    fitting = [release for release in _list_releases(engine) if specifier.contains(release)]
    return list({Version(release).release[:2]: release for release in fitting}.values())


def find_uncovered_runtimes(deployed: Sequence[DeployedRuntime], targets: Sequence[str]) -> list[DeployedRuntime]:
    """Return the deployed runtimes with a release that none of the targets' requirements allows."""
    requirements = [Requirement(target) for target in targets]
    return [runtime for runtime in deployed if not _is_covered(runtime, requirements)]


def _is_covered(runtime: DeployedRuntime, targets: Sequence[Requirement]) -> bool:
    engine, specifier = find_checked_engine(runtime), Requirement(_checked_requirement(runtime)).specifier
    releases = [runtime.pin] if runtime.pin and runtime.pin in str(specifier) else _newest_patches(engine, specifier)
    ranges = [target.specifier for target in targets if target.name in (engine, runtime.package)]
    return not specifier or all(any(allowed.contains(release) for allowed in ranges) for release in releases)


def has_many_minors(requirement: str) -> bool:
    """Return whether the range contains so many minor releases that checking all of them would take long."""
    engine = _find_engine(requirement)
    return _has_table(engine) and len(_newest_patches(engine, Requirement(requirement).specifier)) > MANY_MINORS


def _suggest_newest(
    engine: str, predictions: Predictions, index: UvIndex | None, pointers: Sequence[str] = ()
) -> SuggestedTarget:
    """Suggest a target with the newest minor releases, or with fewer releases if a model loads only on some of them."""
    minors, is_current = _find_newest_minors(engine, index)
    oldest, newest = minors[0], minors[-1]
    end = str(newest[0] + 1) if is_current else _join((newest[0], newest[1] + 1))
    requirement = f"{engine}>={_join(oldest)},<{end}"
    reason = ""
    first = _first_accepted_release(engine, predictions)
    if first and Version(first).release[:2] > oldest:
        requirement = f"{engine}>={first},<{end}"
        minors = [minor for minor in minors if minor >= Version(first).release[:2]]
        reason = ". Older releases do not load all models"
    described = f"The newest {len(minors)} minor releases" if len(minors) > 1 else "The newest minor release"
    described += (
        " when this file was written"
        if is_current
        else " for which onnxgate has support data; later releases may exist"
    )
    prediction = describe_prediction(requirement, predictions, index, pointers)
    return SuggestedTarget("cpu", requirement, (f"{described}{reason}.", *prediction))


def _find_newest_minors(engine: str, index: UvIndex | None) -> tuple[list[tuple[int, int]], bool]:
    """Return the newest minor releases in ascending order, and whether the package index provided them."""
    known = sorted({Version(release).release[:2] for release in _list_releases(engine)})
    found = [(minor[0], minor[1]) for minor in known]
    if index is not None:
        for since in (found[-SUGGESTED_MINORS:][0], found[0]):  # an index may lag behind, and then has older ones only
            try:
                releases = find_releases(Requirement(f"{engine}>={_join(since)}"), "minors", index)
            except ConfigError:
                continue
            except OnnxgateError:  # `onnxgate lock` reports that the index is not available
                break
            resolved = sorted({minor_of(release.version)[1:] for release in releases})
            if len(resolved) >= SUGGESTED_MINORS:
                return [(minor[0], minor[1]) for minor in resolved[-SUGGESTED_MINORS:]], True
    return found[-SUGGESTED_MINORS:], False


def _join(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"


def _first_accepted_release(engine: str, predictions: Predictions) -> str:
    """Return the first release from which no model is predicted to fail; "" if a model fails on the newest release."""
    refused = {entry.runtime for model in predictions for entry in model.runtimes if entry.state == "refused"}
    first = ""
    for release in reversed(_list_releases(engine)):
        if f"{engine} {release}" in refused:
            break
        first = release
    return first if predictions else ""
