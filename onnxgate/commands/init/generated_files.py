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
from onnxgate.commands.init.survey import ExportScript, RepositorySurvey
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


@dataclass(frozen=True, slots=True)
class SuggestedRuntime:
    """A runtime requirement and its reason."""

    runtime: str
    why: tuple[str, ...] = ()


def suggest_runtime(survey: RepositorySurvey) -> SuggestedRuntime:
    """The newest few minors that take all models, by what was measured of each release."""
    minors = [minor for minor, _ in groupby(limits.load_limit_table().releases, lambda r: Version(r).release[:2])]
    newest_few = minors[-SUGGESTED_MINORS]
    since = _find_first_release(survey)
    if since is None:
        unloadable = "No release that was measured takes all models; `onnxgate check` says which and why."
        return SuggestedRuntime(_render_requirement(newest_few), (unloadable,))
    if since and Version(since).release[:2] > newest_few:
        return SuggestedRuntime(f"onnxruntime>={since},<2", (f"All models load since onnxruntime {since}.",))
    why = [f"The newest {SUGGESTED_MINORS} minors when this was written."]
    if since:
        why.append(
            f"By IR version and opset, all models load since onnxruntime {since}: the range may reach back to it."
        )
    return SuggestedRuntime(_render_requirement(newest_few), tuple(why))


def _render_requirement(minor: tuple[int, ...]) -> str:
    return f"onnxruntime>={'.'.join(map(str, minor))},<2"


def _find_first_release(survey: RepositorySurvey) -> str | None:
    """Return the first release for all present models; None if none is, "" if no model is present."""
    since = [limits.find_first_release_for_ir(fact.ir_version) for fact in survey.facts]
    since += [
        limits.find_first_release_for_opset(*opset) for fact in survey.facts for opset in fact.needed_opsets.items()
    ]
    if "" in since:
        return None
    return max(since, key=Version, default="")


def render_config(survey: RepositorySurvey, promise: SuggestedRuntime, exported: Sequence[ExportScript]) -> str:
    """`onnxgate.toml`. The `command` of a script in `exported` is active; that of others is a comment."""
    lines = [
        "# What the models of this repository must keep working on.",
        "# `onnxgate lock` pins it in onnxgate.lock; `onnxgate check` proves it.",
        f'required-version = "{_required_version()}"',
        '# models = ["models/**/*.onnx"]  # default: every .onnx file that git tracks',
        "",
        "[targets.cpu]",
        *(f"# {line}" for line in promise.why),
        f"runtime = {quote(promise.runtime)}",
        '# select = "minors"  # the newest patch of each minor; or: bounds, newest, all',
        *_render_extensions(survey),
    ]
    lines += _render_toolchain(survey, active=bool(exported))
    entries = {(find_written_model(survey, script), script.command): script for script in survey.exports}
    for script in entries.values():
        lines += _render_model_entry(survey, script, active=script in exported)
    return "\n".join((*lines, ""))


def _render_extensions(survey: RepositorySurvey) -> Iterator[str]:
    """Yield the packages that register the operators of the models, by domain."""
    used = {operator.rpartition(".")[0] for fact in survey.facts for operator in fact.operators}
    for domain in sorted(used & EXTENSION_PACKAGES.keys()):
        yield f"extensions = [{quote(EXTENSION_PACKAGES[domain])}]  # models use operators of `{domain}`"


def _required_version() -> str:
    major, minor, *_ = __version__.split(".")
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def quote(text: str) -> str:
    """Return a basic string of TOML, which is also a double-quoted one of YAML; control characters are escaped."""
    return "".join(
        dump if dump.isprintable() else _escape_character(dump) for dump in json.dumps(text, ensure_ascii=False)
    )


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _render_toolchain(survey: RepositorySurvey, *, active: bool) -> Iterator[str]:
    if survey.exports and survey.requires:
        mark = "" if active else "# "
        yield ""
        yield f"{mark}[toolchain]  # what models are exported with, as {escape_unprintable(survey.requirements)} has it"
        yield f"{mark}requires = [{', '.join(map(quote, survey.requires))}]"


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
    """`.github/workflows/onnxgate.yml`: read access only, and what annotations of a pull request need."""
    lines = [
        "name: onnxgate",
        "",
        "on:",
        "  push:",
        f"    branches: [{quote(survey.branch)}]",
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
        f"      - uses: {CHECKOUT_ACTION}",
        "        with:",
        "          fetch-depth: 2 # the commit before is what changes are held against",
    ]
    if survey.uses_lfs:
        lines.append("          lfs: true # else models are pointers, and nothing can be run")
    lines += [
        "          persist-credentials: false",
        *_render_install_steps(survey),
        f"      - uses: {REPOSITORY}@v{__version__}",
    ]
    if survey.below_root:
        lines += ["        with:", f"          working-directory: {quote(survey.below_root)}"]
    return "\n".join((*lines, ""))


def _render_install_steps(survey: RepositorySurvey) -> Iterator[str]:
    """Yield the setup of re-exports as a comment: only the user knows how long it may take."""
    if survey.exports:
        below = f"{survey.below_root}/" if survey.below_root else ""
        yield "      # To export again from source, install what the scripts need first:"
        yield f"      # - uses: {SETUP_PYTHON_ACTION}"
        yield "      #   with:"
        yield '      #     python-version: "3.11"'
        yield f"      # - run: pip install -r {escape_unprintable(below + (survey.requirements or 'requirements.txt'))}"


def render_hooks(survey: RepositorySurvey) -> str:
    """The entry of `.pre-commit-config.yaml`."""
    config_path = f"{survey.below_root}/onnxgate.toml" if survey.below_root else ""
    arguments = f'\n        args: ["--config", {quote(config_path)}]' if config_path else ""
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


def set_up_git_driver(root: Path, models: Sequence[str], tell: PrintAction, *, uses_lfs: bool) -> Iterator[str]:
    """Write the attribute and the local git setting; yield what remains to do."""
    yield from _write_attribute(root, models, tell)
    yield from _write_git_setting(root, tell, keeps=not uses_lfs)


def is_git_driver_set_up(root: Path, models: Sequence[str]) -> bool:
    """Return if git uses a driver of this name for models already."""
    return bool(_read_git_setting(root, TEXTCONV_KEY)) and not _find_unreached_models(root, models)


def _write_attribute(root: Path, models: Sequence[str], tell: PrintAction) -> Iterator[str]:
    path = root / ATTRIBUTES
    if path.is_symlink() or (path.exists() and not path.is_file()):
        tell("kept", f"{ATTRIBUTES}, which is no file of its own")
        yield f"let git know models: a line `{MODEL_PATTERN} {DRIVER_ATTRIBUTE}` in {ATTRIBUTES}"
        return
    before = path.read_bytes() if path.exists() else b""
    written = add_driver(before)
    _write_if_changed(path, before, written)
    if _find_unreached_models(root, models):  # a later line says otherwise
        _write_if_changed(path, written, written := _append_driver_line(written))
    tell(*_describe_attribute(before, written))
    for model in _find_unreached_models(root, models)[:1]:
        yield f"`git check-attr diff {model}` says that another {ATTRIBUTES} rules it: write `{DRIVER_ATTRIBUTE}` there"


def _write_if_changed(path: Path, before: bytes, content: bytes) -> None:
    if content != before:
        path.write_bytes(content)


def _describe_attribute(before: bytes, written: bytes) -> tuple[str, str]:
    if before == written:
        return "kept", f"{ATTRIBUTES}, which has `{MODEL_PATTERN} {DRIVER_ATTRIBUTE}`"
    return "wrote", f"{ATTRIBUTES}: `{DRIVER_ATTRIBUTE}` for `{MODEL_PATTERN}`"


def add_driver(content: bytes) -> bytes:
    """Return the attributes with our driver added to the last line about all models, or to a new line."""
    lines = content.splitlines(keepends=True)
    for index in range(len(lines) - 1, -1, -1):
        if _MODEL_LINE.match(lines[index]):
            lines[index] = _add_driver_to_line(lines[index])
            return b"".join(lines)
    return _append_driver_line(content)


def _add_driver_to_line(line: bytes) -> bytes:
    """Return the line with our driver; its other attributes stay."""
    driver = DRIVER_ATTRIBUTE.encode()
    if _DIFF_ATTRIBUTE.search(line):
        last = [*_DIFF_ATTRIBUTE.finditer(line)][-1]
        return line[: last.start()] + driver + line[last.end() :]
    body = line.rstrip(b" \t\r\n")
    return body + b" " + driver + line[len(body) :]


def _append_driver_line(content: bytes) -> bytes:
    end = b"\r\n" if b"\r\n" in content else b"\n"
    gap = b"" if not content or content.endswith(b"\n") else end
    return content + gap + f"{MODEL_PATTERN} {DRIVER_ATTRIBUTE}".encode() + end


def _find_unreached_models(root: Path, models: Sequence[str]) -> list[str]:
    """Return the models for which git would use another driver."""
    paths = list(models[:_MAX_CHECKED_MODELS]) or ["model.onnx"]
    answer = repository.read_git_output(root, "check-attr", "-z", "diff", "--", *paths)
    if answer is None:
        return []
    return [path for path, value in zip(paths, answer.split("\0")[2::3], strict=False) if value != "onnx"]


def _write_git_setting(root: Path, tell: PrintAction, *, keeps: bool) -> Iterator[str]:
    """`keeps`: git keeps descriptions. With Git LFS it would go on showing a pointer after its content was fetched."""
    command, cached = _textconv_command(), "true" if keeps else "false"
    there = _read_git_setting(root, TEXTCONV_KEY)
    if there and there != command and "onnxgate" not in there:
        tell("kept", f"git's setting {TEXTCONV_KEY}, which is `{there}`")
        yield f"let git describe models by onnxgate: `git config {TEXTCONV_KEY} '{command}'`"
        return
    if there == command and _read_git_setting(root, CACHE_KEY) == cached:
        tell("kept", f"git's setting {TEXTCONV_KEY}, which is the same")
        return
    for name, value in ((TEXTCONV_KEY, command), (CACHE_KEY, cached)):
        if repository.read_git_output(root, "config", "--local", name, value) is None:
            yield f"git could not be told: `git config {name} '{value}'`"
            return
    tell("set", f"{TEXTCONV_KEY} in this clone's git config, where each clone needs it: `{command}`")


def _textconv_command() -> str:
    """Return the command for git; with its folder, if it is not on the path."""
    program = shutil.which("onnxgate")
    own = Path(sys.executable).with_name(Path(sys.argv[0]).name)
    if program is None and own.name.startswith("onnxgate") and own.exists():
        return f"{shlex.quote(own.as_posix())} diff --textconv"
    return "onnxgate diff --textconv"


def _read_git_setting(root: Path, name: str) -> str:
    return repository.read_git_line(root, ["config", "--get", name])
