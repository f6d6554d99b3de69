"""The files that `onnxgate init` writes, as text."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from packaging.version import Version

from onnxgate import __version__
from onnxgate.commands.repository_survey import ExportScript, RepositorySurvey
from onnxgate.core.escape import escape_unprintable
from onnxgate.project.git import repository
from onnxgate.support import limits

SUGGESTED_MINORS = 4
"""The number of minors to support if the user names no range."""
EXTENSION_PACKAGES = {"ai.onnx.contrib": "onnxruntime-extensions"}
"""Domains whose operators a package registers. Source: its `default_opset_domain()`, 0.15.2."""
CHECKOUT_ACTION = "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2"
SETUP_PYTHON_ACTION = "actions/setup-python@a309ff8b426b58ec0e2a45f0f869d46889d02405 # v6.2.0"
REPOSITORY = "onnxgate/onnxgate"
WORKFLOW_HEADER = """\
name: onnxgate

on:
  push:
    branches: [%(branch)s]
  pull_request:

permissions: {}

concurrency:
  group: onnxgate-${{ github.ref }}
  cancel-in-progress: true

jobs:
  gate:
    name: Models load, run and agree
    runs-on: ubuntu-24.04
    permissions:
      contents: read
    steps:
      - uses: %(checkout)s
        with:
          fetch-depth: 2 # the commit before is what changes are held against
"""
WORKFLOW_INSTALL_STEPS = """\
      # To export again from source, install what the scripts need first:
      # - uses: %(setup)s
      #   with:
      #     python-version: "3.11"
      # - run: pip install -r %(requirements)s
"""


@dataclass(frozen=True, slots=True)
class SuggestedRuntime:
    """A runtime requirement and its reason."""

    runtime: str
    why: tuple[str, ...] = ()


def suggest_runtime(survey: RepositorySurvey) -> SuggestedRuntime:
    """Suggest the newest few minors that load all models according to the support data of each release."""
    minors = [minor for minor, _ in groupby(limits.load_limit_table().releases, lambda r: Version(r).release[:2])]
    newest_few = minors[-SUGGESTED_MINORS]
    newest_requirement = f"onnxruntime>={'.'.join(map(str, newest_few))},<2"
    first_releases = [limits.find_first_release_for_ir(fact.ir_version) for fact in survey.facts]
    for fact in survey.facts:
        first_releases += [limits.find_first_release_for_opset(*opset) for opset in fact.needed_opsets.items()]
    if "" in first_releases:
        unloadable = "No release that was measured takes all models; `onnxgate check` says which and why."
        return SuggestedRuntime(newest_requirement, (unloadable,))
    since = max(first_releases, key=Version, default="")
    if since and Version(since).release[:2] > newest_few:
        return SuggestedRuntime(f"onnxruntime>={since},<2", (f"All models load since onnxruntime {since}.",))
    why = [f"The newest {SUGGESTED_MINORS} minors when this was written."]
    if since:
        why.append(
            f"By IR version and opset, all models load since onnxruntime {since}: the range may reach back to it."
        )
    return SuggestedRuntime(newest_requirement, tuple(why))


def render_config(survey: RepositorySurvey, suggestion: SuggestedRuntime, exported: Sequence[ExportScript]) -> str:
    """Return `onnxgate.toml`. The `command` of a script in `exported` is active; that of others is a comment."""
    major, minor, *_ = __version__.split(".")
    lines = [
        "# What the models of this repository must keep working on.",
        "# `onnxgate lock` pins it in onnxgate.lock; `onnxgate check` proves it.",
        f'required-version = ">={major}.{minor},<{major}.{int(minor) + 1}"',
        '# models = ["models/**/*.onnx"]  # default: every .onnx file that git tracks',
        "",
        "[targets.cpu]",
        *(f"# {line}" for line in suggestion.why),
        f"runtime = {quote(suggestion.runtime)}",
        '# select = "minors"  # the newest patch of each minor; or: bounds, newest, all',
    ]
    used_domains = {operator.rpartition(".")[0] for fact in survey.facts for operator in fact.operators}
    for domain in sorted(used_domains & EXTENSION_PACKAGES.keys()):
        lines.append(f"extensions = [{quote(EXTENSION_PACKAGES[domain])}]  # models use operators of `{domain}`")
    if survey.exports and survey.requires:
        mark = "" if exported else "# "
        file = escape_unprintable(survey.requirements)
        lines += [
            "",
            f"{mark}[toolchain]  # what models are exported with, as {file} has it",
            f"{mark}requires = [{', '.join(map(quote, survey.requires))}]",
        ]
    entries = {(find_written_model(survey, script), script.command): script for script in survey.exports}
    for script in entries.values():
        lines += _render_model_entry(survey, script, active=script in exported)
    return "\n".join((*lines, ""))


def quote(text: str) -> str:
    """Return a basic string of TOML, which is also a double-quoted one of YAML; control characters are escaped."""
    dumped = json.dumps(text, ensure_ascii=False)
    codes = {ord(character) for character in dumped if not character.isprintable()}
    return dumped.translate({code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}" for code in codes})


def _render_model_entry(survey: RepositorySurvey, script: ExportScript, *, active: bool) -> Iterator[str]:
    """Yield an entry of which only the `command` line must be uncommented, if the model is known."""
    model = find_written_model(survey, script)
    mark, last = ("" if model else "# "), ("" if active else "# ")
    yield ""
    place = f"{escape_unprintable(script.path)}:{script.line}"
    yield f"# {place} calls `torch.onnx.export`: `check` can export again and compare."
    yield f"{mark}[[model]]"
    yield f"{mark}path = {quote(model or 'models/….onnx')}"
    if not script.command:
        yield "# Let the script take the path that it writes to, then say here how it is called:"
    elif not active:
        yield "# Take the `#` from the next line, wherever the gate runs with what the script needs:"
    words = script.command or ("{python}", script.path, "--out", "{output}")
    yield f"{last}command = [{', '.join(map(quote, words))}]"


def find_written_model(survey: RepositorySurvey, script: ExportScript) -> str:
    """Return the committed model that a script writes; "" if that is unknown."""
    name = script.writes.rpartition("/")[2]
    same_name = [model for model in survey.models if name and model.rpartition("/")[2] == name]
    exact = [model for model in same_name if model == script.writes.removeprefix("./")]
    candidates = exact or same_name or (list(survey.models) if len(survey.exports) == 1 else [])
    return candidates[0] if len(candidates) == 1 else ""


def render_workflow(survey: RepositorySurvey) -> str:
    """Return `.github/workflows/onnxgate.yml`: read access only, and what annotations of a pull request need.

    The setup of exports is a comment: only the user knows how long it may take.
    """
    text = WORKFLOW_HEADER % {"branch": quote(survey.branch), "checkout": CHECKOUT_ACTION}
    if survey.uses_lfs:
        text += "          lfs: true # else models are pointers, and nothing can be run\n"
    text += "          persist-credentials: false\n"
    if survey.exports:
        below = f"{survey.below_root}/" if survey.below_root else ""
        requirements = escape_unprintable(below + (survey.requirements or "requirements.txt"))
        text += WORKFLOW_INSTALL_STEPS % {"setup": SETUP_PYTHON_ACTION, "requirements": requirements}
    text += f"      - uses: {REPOSITORY}@v{__version__}\n"
    if survey.below_root:
        text += f"        with:\n          working-directory: {quote(survey.below_root)}\n"
    return text


def render_hooks(survey: RepositorySurvey) -> str:
    """Return the entry of `.pre-commit-config.yaml`."""
    arguments = ""
    if survey.below_root:
        arguments = f'\n        args: ["--config", {quote(f"{survey.below_root}/onnxgate.toml")}]'
    return (
        f"  - repo: https://github.com/{REPOSITORY}\n"
        f"    rev: v{__version__}\n"
        "    hooks:\n"
        f"      - id: onnxgate # changed models: the file, the lock, the limits of each runtime{arguments}\n"
        f"      - id: onnxgate-lock # config, lock and models against each other{arguments}\n"
        f"      - id: onnxgate-run # everything, before a push{arguments}\n"
    )


ATTRIBUTES = ".gitattributes"
MODEL_PATTERN, DRIVER_ATTRIBUTE = "*.onnx", "diff=onnx"
TEXTCONV_KEY, CACHE_KEY = "diff.onnx.textconv", "diff.onnx.cachetextconv"
_MAX_CHECKED_MODELS = 200
"""The number of models for which the attribute is verified."""
_MODEL_LINE = re.compile(rb'^[ \t]*(?:\*\.onnx|"\*\.onnx")[ \t]')
_DIFF_ATTRIBUTE = re.compile(rb"(?<=[ \t])(?:diff=\S*|[-!]?diff)(?=\s|$)")

PrintAction = Callable[[str, str], None]


def set_up_git_driver(root: Path, models: Sequence[str], report: PrintAction, *, uses_lfs: bool) -> Iterator[str]:
    """Write the attribute and the local git setting; yield what remains to do."""
    yield from _write_attribute(root, models, report)
    # git keeps descriptions, but with Git LFS it would go on showing a pointer after its content was fetched.
    yield from _write_git_setting(root, report, cached="false" if uses_lfs else "true")


def is_git_driver_set_up(root: Path, models: Sequence[str]) -> bool:
    """Return if git uses a driver of this name for models already."""
    return bool(_read_git_setting(root, TEXTCONV_KEY)) and not _find_unreached_models(root, models)


def _write_attribute(root: Path, models: Sequence[str], report: PrintAction) -> Iterator[str]:
    path, attribute = root / ATTRIBUTES, f"{MODEL_PATTERN} {DRIVER_ATTRIBUTE}"
    if path.is_symlink() or (path.exists() and not path.is_file()):
        report("kept", f"{ATTRIBUTES}, which is no file of its own")
        yield f"let git know models: a line `{attribute}` in {ATTRIBUTES}"
        return
    before = path.read_bytes() if path.exists() else b""
    if (written := add_driver(before)) != before:
        path.write_bytes(written)
    if _find_unreached_models(root, models):  # a later line says otherwise
        written = _append_driver_line(written)
        path.write_bytes(written)
    if before == written:
        report("kept", f"{ATTRIBUTES}, which has `{attribute}`")
    else:
        report("wrote", f"{ATTRIBUTES}: `{DRIVER_ATTRIBUTE}` for `{MODEL_PATTERN}`")
    for model in _find_unreached_models(root, models)[:1]:
        yield f"`git check-attr diff {model}` says that another {ATTRIBUTES} rules it: write `{DRIVER_ATTRIBUTE}` there"


def add_driver(content: bytes) -> bytes:
    """Return the attributes with our driver added to the last line about all models, or to a new line."""
    driver, lines = DRIVER_ATTRIBUTE.encode(), content.splitlines(keepends=True)
    for index, line in reversed(list(enumerate(lines))):
        if _MODEL_LINE.match(line):  # its other attributes stay
            body = line.rstrip(b" \t\r\n")
            lines[index] = body + b" " + driver + line[len(body) :]
            for match in _DIFF_ATTRIBUTE.finditer(line):  # the last one counts
                lines[index] = line[: match.start()] + driver + line[match.end() :]
            return b"".join(lines)
    return _append_driver_line(content)


def _append_driver_line(content: bytes) -> bytes:
    end = b"\r\n" if b"\r\n" in content else b"\n"
    gap = b"" if not content or content.endswith(b"\n") else end
    return content + gap + f"{MODEL_PATTERN} {DRIVER_ATTRIBUTE}".encode() + end


def _find_unreached_models(root: Path, models: Sequence[str]) -> list[str]:
    """Return the models for which git would use another driver."""
    paths = list(models[:_MAX_CHECKED_MODELS]) or ["model.onnx"]
    answer = repository.read_git_output(root, "check-attr", "-z", "diff", "--", *paths) or ""
    return [path for path, value in zip(paths, answer.split("\0")[2::3], strict=False) if value != "onnx"]


def _write_git_setting(root: Path, report: PrintAction, *, cached: str) -> Iterator[str]:
    command = "onnxgate diff --textconv"
    own = Path(sys.executable).with_name(Path(sys.argv[0]).name)
    if shutil.which("onnxgate") is None and own.name.startswith("onnxgate") and own.exists():  # not on the path
        command = f"{shlex.quote(own.as_posix())} diff --textconv"
    present = _read_git_setting(root, TEXTCONV_KEY)
    if present and present != command and "onnxgate" not in present:
        report("kept", f"git's setting {TEXTCONV_KEY}, which is `{present}`")
        yield f"let git describe models by onnxgate: `git config {TEXTCONV_KEY} '{command}'`"
        return
    if present == command and _read_git_setting(root, CACHE_KEY) == cached:
        report("kept", f"git's setting {TEXTCONV_KEY}, which is the same")
        return
    for name, value in ((TEXTCONV_KEY, command), (CACHE_KEY, cached)):
        if repository.read_git_output(root, "config", "--local", name, value) is None:
            yield f"git could not be told: `git config {name} '{value}'`"
            return
    report("set", f"{TEXTCONV_KEY} in this clone's git config, where each clone needs it: `{command}`")


def _read_git_setting(root: Path, name: str) -> str:
    return repository.read_git_line(root, ["config", "--get", name])
