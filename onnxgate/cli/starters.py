"""The files that `onnxgate init` writes, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from onnxgate import __version__
from onnxgate.cli.export_scripts import ExportScript
from onnxgate.cli.survey import Survey
from onnxgate.formats.escape import visible

FEW = 4
"""So many minors are promised where the user names no range."""
REGISTERED_BY = {"ai.onnx.contrib": "onnxruntime-extensions"}
"""Domains whose operators a package registers. Source: its `default_opset_domain()`, 0.15.2."""
CHECKOUT = "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2"
SETUP_PYTHON = "actions/setup-python@a309ff8b426b58ec0e2a45f0f869d46889d02405 # v6.2.0"
REPOSITORY = "onnxgate/onnxgate"


@dataclass(frozen=True, slots=True)
class Promise:
    """A runtime requirement, and why it is this one."""

    runtime: str
    why: tuple[str, ...] = ()


def choose_promise(survey: Survey) -> Promise:
    """The newest few minors that take all models, by what was measured of each release."""
    from packaging.version import Version

    from onnxgate.support import limits

    minors = [minor for minor, _ in groupby(limits.table().releases, lambda r: Version(r).release[:2])]
    newest_few = minors[-FEW]
    since = _works_since(survey)
    if since is None:
        unloadable = "No release that was measured takes all models; `onnxgate check` says which and why."
        return Promise(_requirement(newest_few), (unloadable,))
    if since and Version(since).release[:2] > newest_few:
        return Promise(f"onnxruntime>={since},<2", (f"All models load since onnxruntime {since}.",))
    why = [f"The newest {FEW} minors when this was written."]
    if since:
        why.append(
            f"By IR version and opset, all models load since onnxruntime {since}: the range may reach back to it."
        )
    return Promise(_requirement(newest_few), tuple(why))


def _requirement(minor: tuple[int, ...]) -> str:
    return f"onnxruntime>={'.'.join(map(str, minor))},<2"


def _works_since(survey: Survey) -> str | None:
    """The first release that takes all models whose content is here; None where none does, "" where none is here."""
    from packaging.version import Version

    from onnxgate.support import limits

    since = [limits.ir_works_since(each.ir_version) for each in survey.facts]
    since += [limits.opset_works_since(*opset) for each in survey.facts for opset in each.needed_opsets.items()]
    if "" in since:
        return None
    return max(since, key=Version, default="")


def config(survey: Survey, promise: Promise, exported: Sequence[ExportScript]) -> str:
    """`onnxgate.toml`. The `command` of a script in `exported` is active; that of others is a comment."""
    lines = [
        "# What the models of this repository must keep working on.",
        "# `onnxgate lock` pins it in onnxgate.lock; `onnxgate check` proves it.",
        f'required-version = "{_compatible()}"',
        '# models = ["models/**/*.onnx"]  # default: every .onnx file that git tracks',
        "",
        "[targets.cpu]",
        *(f"# {line}" for line in promise.why),
        f"runtime = {quoted(promise.runtime)}",
        '# select = "minors"  # the newest patch of each minor; or: bounds, newest, all',
        *_extensions(survey),
    ]
    lines += _toolchain(survey, active=bool(exported))
    entries = {(written_model(survey, script), script.command): script for script in survey.exports}
    for script in entries.values():
        lines += _model(survey, script, active=script in exported)
    return "\n".join((*lines, ""))


def _extensions(survey: Survey) -> Iterator[str]:
    """The packages that register what the models use, as far as a domain tells its package."""
    used = {operator.rpartition(".")[0] for each in survey.facts for operator in each.operators}
    for domain in sorted(used & REGISTERED_BY.keys()):
        yield f"extensions = [{quoted(REGISTERED_BY[domain])}]  # models use operators of `{domain}`"


def _compatible() -> str:
    major, minor, *_ = __version__.split(".")
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def quoted(text: str) -> str:
    """A basic string of TOML, which is also a double-quoted one of YAML; what cannot be seen is escaped."""
    return "".join(each if each.isprintable() else _escaped(each) for each in json.dumps(text, ensure_ascii=False))


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _toolchain(survey: Survey, *, active: bool) -> Iterator[str]:
    if survey.exports and survey.requires:
        mark = "" if active else "# "
        yield ""
        yield f"{mark}[toolchain]  # what models are exported with, as {visible(survey.requirements)} has it"
        yield f"{mark}requires = [{', '.join(map(quoted, survey.requires))}]"


def _model(survey: Survey, script: ExportScript, *, active: bool) -> Iterator[str]:
    """An entry whose `command` line is all that is left to take the `#` from, where the model is known."""
    model = written_model(survey, script)
    mark, last = ("" if model else "# "), ("" if active else "# ")
    yield ""
    yield f"# {visible(script.path)}:{script.line} calls `torch.onnx.export`: `check` can export again and compare."
    yield f"{mark}[[model]]"
    yield f"{mark}path = {quoted(model or 'models/….onnx')}"
    if not script.command:
        yield "# Let the script take the path that it writes to, then say here how it is called:"
    elif not active:
        yield "# Take the `#` from the next line, wherever the gate runs with what the script needs:"
    words = script.command or ("{python}", script.path, "--out", "{output}")
    yield f"{last}command = [{', '.join(map(quoted, words))}]"


def written_model(survey: Survey, script: ExportScript) -> str:
    """The committed model that a script writes; "" where that cannot be told."""
    name = script.writes.rpartition("/")[2]
    same_name = [model for model in survey.models if name and model.rpartition("/")[2] == name]
    exact = [model for model in same_name if model == script.writes.removeprefix("./")]
    candidates = exact or same_name or (list(survey.models) if len(survey.exports) == 1 else [])
    return candidates[0] if len(candidates) == 1 else ""


def workflow(survey: Survey) -> str:
    """`.github/workflows/onnxgate.yml`: read access only, and what annotations of a pull request need."""
    lines = [
        "name: onnxgate",
        "",
        "on:",
        "  push:",
        f"    branches: [{quoted(survey.branch)}]",
        "  pull_request:",
        "",
        "permissions: {}",
        "",
        "concurrency:",
        "  group: onnxgate-${{ github.ref }}",
        "  cancel-in-progress: true",
        "",
        "jobs:",
        "  gate:",
        "    name: Models load, run and agree",
        "    runs-on: ubuntu-24.04",
        "    permissions:",
        "      contents: read",
        "    steps:",
        f"      - uses: {CHECKOUT}",
        "        with:",
        "          fetch-depth: 2 # the commit before is what changes are held against",
    ]
    if survey.uses_lfs:
        lines.append("          lfs: true # else models are pointers, and nothing can be run")
    lines += ["          persist-credentials: false", *_install(survey), f"      - uses: {REPOSITORY}@v{__version__}"]
    if survey.below_root:
        lines += ["        with:", f"          working-directory: {quoted(survey.below_root)}"]
    return "\n".join((*lines, ""))


def _install(survey: Survey) -> Iterator[str]:
    """What re-exporting needs, as a comment: only the user knows how long it may take."""
    if survey.exports:
        below = f"{survey.below_root}/" if survey.below_root else ""
        yield "      # To export again from source, install what the scripts need first:"
        yield f"      # - uses: {SETUP_PYTHON}"
        yield "      #   with:"
        yield '      #     python-version: "3.11"'
        yield f"      # - run: pip install -r {visible(below + (survey.requirements or 'requirements.txt'))}"


def hooks(survey: Survey) -> str:
    """The entry of `.pre-commit-config.yaml`."""
    config_path = f"{survey.below_root}/onnxgate.toml" if survey.below_root else ""
    arguments = f'\n        args: ["--config", {quoted(config_path)}]' if config_path else ""
    return (
        f"  - repo: https://github.com/{REPOSITORY}\n"
        f"    rev: v{__version__}\n"
        "    hooks:\n"
        f"      - id: onnxgate # changed models: the file, the lock, the limits of each runtime{arguments}\n"
        f"      - id: onnxgate-lock # config, lock and models against each other{arguments}\n"
        f"      - id: onnxgate-run # everything, before a push{arguments}\n"
    )
