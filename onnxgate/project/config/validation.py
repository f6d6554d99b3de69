"""Validate the config's values: names and sources must exist, and requirements must be satisfiable."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from onnxgate.core.findings import UNDECIDED_RULE
from onnxgate.core.text import join_quoted, suggest_spelling
from onnxgate.project.config.globs import is_glob
from onnxgate.project.config.project import suggest_file
from onnxgate.project.config.schema import (
    Budget,
    Config,
    Ignore,
    Limits,
    ModelSettings,
    Problem,
    Table,
    Target,
    Tolerance,
    Toolchain,
    read_opset,
)
from onnxgate.project.engines import (
    extension_problem,
    has_optimization_levels,
    has_providers,
    is_library,
    is_satisfiable,
    package_name,
    requirement_problem,
    runs_on_node,
    runtime_problem,
)
from onnxgate.project.toml import Keys

MANAGED_PROVIDERS = ("CPUExecutionProvider",)
PLACEHOLDERS = ("python", "output", "opset")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_PROVIDER = re.compile(r"[A-Za-z][A-Za-z0-9]*ExecutionProvider")
_SOURCE_REFERENCE = re.compile(r"(?P<file>[^:]+\.py):(?P<callable>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 4095
"""Maximum length of a name and of a path. Source: NAME_MAX and PATH_MAX of Linux's limits.h."""

POLICY_RULES = ("policy-weakened", "policy-changed")
"""Rules about changes to the config itself, which the changed config must not accept."""


class Validation(msgspec.Struct, frozen=True):
    """The context in which tables are validated. If `rule_ids` is None, rule names are not checked."""

    folder: Path
    root: Path
    targets: Collection[str]
    rule_ids: Collection[str] | None

    def check(self, table: Table, keys: Keys) -> Iterator[Problem]:
        """Yield the problems with one table."""
        match table:
            case Config():
                yield from self._check_config(table)
            case Target():
                yield from self._check_target(table, keys)
            case Toolchain():
                yield from _check_requirements(table.requires, (*keys, "requires"))
            case ModelSettings():
                yield from self._check_model(table, keys)
            case Budget():
                if set(msgspec.structs.astuple(table)) == {None}:
                    yield Problem(keys, f"expected at least one of {join_quoted(table.__struct_encode_fields__)}")
                yield from _check_positive(table, keys)
            case Tolerance():
                problems = {"rtol": _bound_problem(table.rtol), "atol": _bound_problem(table.atol)}
                yield from _list_problems(keys, problems)
            case Ignore():
                yield from self._check_ignore(table, keys)
            case Limits():
                yield from _check_positive(table, keys)

    def _check_config(self, config: Config) -> Iterator[Problem]:
        yield from _check_paths(config.models or (), ("models",))
        yield from _check_paths(config.exclude, ("exclude",))
        if config.models == ():
            yield Problem(("models",), "expected at least one path or glob")
        yield from _list_problems((), {"ir-version": ir_version_problem(config.ir_version)})
        yield from _check_opset(config.opset, ("opset",))
        paths: set[str] = set()
        for index, model in enumerate(config.model):
            path = model.path.removeprefix("./")
            if path in paths and not is_glob(path):
                yield Problem(
                    ("model", str(index), "path"), f"`{model.path}` has another `[[model]]` entry; merge both entries"
                )
            paths.add(path)
        yield from _check_shared_environments(config.targets)
        for rule in config.rules:
            yield from self._check_rule(rule, ("rules", rule))

    def _check_target(self, target: Target, keys: Keys) -> Iterator[Problem]:
        if problem := runtime_problem(target.runtime, own=target.python is not None):
            yield Problem((*keys, "runtime"), problem)
        else:
            yield from _check_engine_keys(target, keys)
        for name, values in (("providers", target.providers), ("optimization", target.optimization)):
            if not values:
                yield Problem((*keys, name), "expected at least one value")
            yield from _check_unique(values, (*keys, name))
        yield from _check_providers(target, (*keys, "providers"))
        yield from self._check_extensions(target.extensions, (*keys, "extensions"))
        if target.python is not None:
            if not target.python.strip():
                yield Problem((*keys, "python"), "expected an interpreter or the folder of an environment")
            elif problem := _spelling_problem(target.python):
                yield Problem((*keys, "python"), problem)
            if target.select != "minors":
                text = f"`{target.select}` has no effect with `python`: an environment contains only one release"
                yield Problem((*keys, "select"), text)

    def _check_extensions(self, extensions: tuple[str, ...], keys: Keys) -> Iterator[Problem]:
        first: dict[str, str] = {}
        for index, text in enumerate(extensions):
            if problem := _spelling_problem(text) or extension_problem(text):
                yield Problem((*keys, str(index)), problem)
                continue
            name = text if is_library(text) else package_name(text)
            if name in first:
                yield Problem(
                    (*keys, str(index)), f"`{text}` repeats `{name}`, which is already listed as `{first[name]}`"
                )
            first.setdefault(name, text)
            if is_library(text) and not self._is_inside(text):
                yield Problem((*keys, str(index)), f"`{text}` is outside the project")

    def _is_inside(self, path: str) -> bool:
        """Return whether a path that is relative to the config lies in the project."""
        return (self.folder / path).resolve().is_relative_to(self.root.resolve())

    def _check_model(self, model: ModelSettings, keys: Keys) -> Iterator[Problem]:
        if problem := _path_problem(model.path):
            yield Problem((*keys, "path"), problem)
        if model.targets == ():
            yield Problem((*keys, "targets"), "expected at least one target; remove the key to use all targets")
        yield from _check_unique(model.targets or (), (*keys, "targets"))
        for index, name in enumerate(model.targets or ()):
            if name not in self.targets:
                targets = join_quoted(sorted(self.targets)) or "none"
                near = suggest_spelling(name, self.targets) or f"; expected one of {targets}"
                yield Problem((*keys, "targets", str(index)), f"unknown target `{name}`{near}")
        problems = {
            "inputs": self._inputs_problem(model.inputs),
            "source": self._source_problem(model.source),
            "command": "" if model.command is None else command_problem(model.command),
            "quantized-from": self._float_model_problem(model),
        }
        yield from _list_problems(keys, problems)
        for axis, sizes in (model.sizes or {}).items():
            if not sizes:
                yield Problem((*keys, "sizes", axis), "expected at least one size")
            yield from _check_unique(sizes, (*keys, "sizes", axis))
            for index, size in enumerate(sizes):
                if size < 1:
                    yield Problem((*keys, "sizes", axis, str(index)), f"expected a size of 1 or more, got `{size}`")
        yield from _check_tolerances(model.tolerance or {}, (*keys, "tolerance"))
        yield from _check_opset(model.opset, (*keys, "opset"))

    def _inputs_problem(self, inputs: str | None) -> str:
        if inputs is None or ".py:" in inputs:
            return self._source_problem(inputs)
        if problem := _spelling_problem(inputs):
            return problem
        parts = PurePosixPath(inputs).parts
        if any("**" in part and part != "**" for part in parts):  # only Python 3.13 accepts `a**b`
            return f"`**` must be a whole path component, as in `a/**/b`, got `{inputs}`"
        first_glob = next((index for index, part in enumerate(parts) if is_glob(part)), len(parts))
        if not parts or parts[-1] == ".." or _is_absolute(inputs) or ".." in parts[first_glob:]:
            return f"expected a glob, relative to the config, got `{inputs}`"
        if not self._is_inside("/".join(parts[:first_glob])):
            return f"expected files in the repository, got `{inputs}`"
        return ""

    def _source_problem(self, source: str | None) -> str:
        if source is None:
            return ""
        matched = _SOURCE_REFERENCE.fullmatch(source)
        if matched is None:
            return f"expected `file.py:callable`, got `{source}`"
        if problem := _spelling_problem(matched["file"]):
            return problem
        if Path(matched["file"]).is_absolute() or not self._is_inside(matched["file"]):
            return f"`{matched['file']}` is outside the project"
        return self._missing_file_problem(matched["file"])

    def _missing_file_problem(self, name: str) -> str:
        path = (self.folder / name).resolve()
        if path.is_file():
            return ""
        near = "" if path.exists() else suggest_file(path, name)
        return f"`{name}` does not exist{f'; {near}' if near else ''}"

    def _float_model_problem(self, model: ModelSettings) -> str:
        name = model.quantized_from
        if name is None:
            return ""
        if problem := _spelling_problem(name):
            return problem
        path = (self.folder / name).resolve()
        if not name or Path(name).is_absolute() or not self._is_inside(name):
            return f"expected the path of a model in the project, got `{name}`"
        if is_glob(name):
            return f"expected one model, got the glob `{name}`"
        if not is_glob(model.path) and path == (self.folder / model.path).resolve():
            return f"`{name}` is the model itself; expected the float model that it was quantized from"
        return self._missing_file_problem(name)

    def _check_ignore(self, ignore: Ignore, keys: Keys) -> Iterator[Problem]:
        if ignore.rule != UNDECIDED_RULE:
            yield from self._check_rule(ignore.rule, (*keys, "rule"))
        if ignore.rule in POLICY_RULES:
            yield Problem((*keys, "rule"), f"`{ignore.rule}` cannot be ignored; set its level in `[rules]`")
        if not ignore.reason.strip():
            yield Problem((*keys, "reason"), "expected a reason")
        if ignore.sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", ignore.sha256):
            expected = "expected the 64 hexadecimal digits that `check --show-ignores` prints"
            yield Problem((*keys, "sha256"), f"{expected}, got `{ignore.sha256}`")
        if ignore.fingerprints == ():
            text = "expected at least one fingerprint; remove the key to accept all findings of the rule"
            yield Problem((*keys, "fingerprints"), text)
        for index, fingerprint in enumerate(ignore.fingerprints or ()):
            if not re.fullmatch(r"[0-9a-f]{16}", fingerprint):
                expected = "expected the 16 hexadecimal digits that `check --show-ignores` prints"
                yield Problem((*keys, "fingerprints", str(index)), f"{expected}, got `{fingerprint}`")
        yield from _check_unique(ignore.fingerprints or (), (*keys, "fingerprints"))

    def _check_rule(self, rule: str, keys: Keys) -> Iterator[Problem]:
        if self.rule_ids is not None and rule not in self.rule_ids:
            near = suggest_spelling(rule, self.rule_ids) or "; `onnxgate explain` lists all rules"
            yield Problem(keys, f"unknown rule `{rule}`{near}")


def _list_problems(keys: Keys, problems: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems with the keys of one table; "" means no problem."""
    return (Problem((*keys, key), text) for key, text in problems.items() if text)


def _check_engine_keys(target: Target, keys: Keys) -> Iterator[Problem]:
    """Yield a problem for each key that the target's engine does not support."""
    engine = package_name(target.runtime)
    if runs_on_node(engine) and target.python is not None:
        yield Problem((*keys, "python"), f"`{engine}` runs on Node, not in Python; remove the key")
    if not has_optimization_levels(engine) and target.optimization == ("disabled",):
        yield Problem((*keys, "optimization"), f"`{engine}` has no optimization levels; remove the key")
    if has_providers(engine):
        return
    if target.providers not in ((), MANAGED_PROVIDERS):
        yield Problem((*keys, "providers"), f"`{engine}` has no execution providers; remove the key")
    if target.extensions:
        yield Problem((*keys, "extensions"), f"`{engine}` does not load custom operator libraries; remove the key")


def _check_providers(target: Target, keys: Keys) -> Iterator[Problem]:
    """Yield problems with a target's providers. In a user environment, the worker checks whether they are available."""
    if not runtime_problem(target.runtime, own=True) and not has_providers(package_name(target.runtime)):
        return
    for index, provider in enumerate(target.providers):
        if provider in MANAGED_PROVIDERS:
            continue
        near = suggest_spelling(provider, MANAGED_PROVIDERS) if not provider.endswith("ExecutionProvider") else ""
        if target.python is None:
            text = f"provider `{provider}` is not available in the environments that onnxgate creates"
            yield Problem(
                (*keys, str(index)), text + (near or "; set `python` to an environment that contains this provider")
            )
        elif not _PROVIDER.fullmatch(provider):
            expected = "expected a name such as `CUDAExecutionProvider`"
            yield Problem((*keys, str(index)), f"{expected}, got `{provider}`{near}")


def _check_shared_environments(targets: Mapping[str, Target]) -> Iterator[Problem]:
    """Yield a problem for each environment that targets use with different providers, since it is a single runtime."""
    first: dict[str, str] = {}
    for name, target in targets.items():
        if target.python is None:
            continue
        earlier = first.setdefault(target.python, name)
        if targets[earlier].providers != target.providers:
            text = (
                f"target `{earlier}` uses `{target.python}` with different providers; use the same "
                "providers for both targets"
            )
            yield Problem(("targets", name, "providers"), text)


def _check_requirements(requirements: Iterable[str], keys: Keys) -> Iterator[Problem]:
    names: dict[str, str] = {}
    for index, text in enumerate(requirements):
        if problem := requirement_problem(text):
            yield Problem((*keys, str(index)), problem)
            continue
        name = package_name(text)
        if name in names:
            yield Problem((*keys, str(index)), f"`{text}` repeats `{name}`, which is already listed as `{names[name]}`")
        names[name] = text


def _check_positive(table: Budget | Limits, keys: Keys) -> Iterator[Problem]:
    """Yield a problem for each number that is not above 0."""
    for name, number in zip(table.__struct_encode_fields__, msgspec.structs.astuple(table), strict=True):
        if number is not None and not (math.isfinite(number) and number > 0):
            shown = number if isinstance(number, int) else format(number, "g")
            yield Problem((*keys, name), f"expected a number above 0, got `{shown}`")


def _check_opset(opset: int | Mapping[str, int] | None, keys: Keys) -> Iterator[Problem]:
    for domain, version in read_opset(opset).items():
        place = keys if isinstance(opset, int) else (*keys, domain)
        if not domain:
            yield Problem(place, "expected the name of a domain; the default domain is `ai.onnx`")
        if version < 1:
            yield Problem(place, f"expected version 1 or newer, got `{version}`")


def _check_tolerances(tolerance: dict[str, float | Tolerance], keys: Keys) -> Iterator[Problem]:
    """Check the bounds for all outputs. Any key except `rtol` and `atol` is an output, whose value must be a table."""
    both = {name: value for name, value in tolerance.items() if isinstance(value, float)}
    for name, value in both.items():
        if name not in ("rtol", "atol"):
            yield Problem((*keys, name), "expected a table with `rtol` and `atol`, got a number")
        elif problem := _bound_problem(value):
            yield Problem((*keys, name), problem)
    for name in ("rtol", "atol"):
        if name not in tolerance and both.keys() & {"rtol", "atol"}:
            yield Problem(keys, f"`{name}` is missing; expected both `rtol` and `atol`")


def _bound_problem(value: float) -> str:
    return "" if math.isfinite(value) and value >= 0 else f"expected a finite number, 0 or greater, got `{value:g}`"


def ir_version_problem(pinned: str | int | None) -> str:
    """Return why `ir-version` is neither an exact version nor a specifier of integers; "" if it is one."""
    wrong = f"expected an integer or a specifier such as `<=10`, got `{pinned}`"
    if pinned is None:
        return ""
    if isinstance(pinned, int):
        return "" if pinned >= 1 else wrong
    try:
        specifier = SpecifierSet(pinned)
    except InvalidSpecifier:
        return wrong
    if not len(specifier) or not all(clause.version.isdecimal() for clause in specifier):
        return wrong
    return "" if is_satisfiable(specifier) else f"no IR version can satisfy `{pinned}`"


def command_problem(command: tuple[str, ...]) -> str:
    """Return why a command cannot be run or would not write a model; "" if it is valid."""
    if not command:
        return "expected a program and its arguments"
    placeholders = [name for word in command for name in _PLACEHOLDER.findall(word)]
    for name in placeholders:
        if name not in PLACEHOLDERS:
            choices = join_quoted(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            return f"unknown placeholder `{{{name}}}`; expected one of {choices}"
    return (
        ""
        if "output" in placeholders
        else "expected the placeholder `{output}`, the path of the exported model, in the arguments"
    )


def _check_paths(paths: Collection[str], keys: Keys) -> Iterator[Problem]:
    yield from _list_problems(keys, {str(index): _path_problem(path) for index, path in enumerate(paths)})
    yield from _check_unique(paths, keys)


def _path_problem(path: str) -> str:
    if not path:
        return "expected a path or a glob"
    if "\\" in path:
        return f"expected a path with `/`, got `{path}`"
    if _is_absolute(path) or ".." in path.split("/"):
        return f"expected a path below the config's folder, got `{path}`"
    return _spelling_problem(path)


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or re.match(r"[A-Za-z]:", path) is not None


def _spelling_problem(path: str) -> str:
    """Return why the system cannot look up a path; "" if it can."""
    if "\0" in path:
        return f"expected a path without NUL characters, got `{path}`"
    longest = max(len(os.fsencode(part)) for part in path.split("/"))
    if longest > _MAX_NAME_BYTES or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        return f"expected a path of at most {_MAX_PATH_BYTES:,} bytes whose names have at most {_MAX_NAME_BYTES} bytes"
    return ""


def _check_unique(values: Iterable[object], keys: Keys) -> Iterator[Problem]:
    earlier: set[object] = set()
    for index, value in enumerate(values):
        if value in earlier:
            yield Problem((*keys, str(index)), f"`{value}` is listed twice")
        earlier.add(value)
