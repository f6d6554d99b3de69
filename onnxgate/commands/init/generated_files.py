"""Text of the files that `onnxgate init` writes."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence, Set

from onnxgate import __version__
from onnxgate.commands.init.export_scripts import ExportScript
from onnxgate.commands.init.repository_survey import RepositorySurvey
from onnxgate.commands.init.targets import BUILD_PROVIDERS, SuggestedTarget, assign_targets, has_many_minors
from onnxgate.core.escape import escape_unprintable
from onnxgate.core.text import join_quoted

EXTENSION_PACKAGES = {"ai.onnx.contrib": "onnxruntime-extensions"}
"""For each operator domain, the package that registers its operators.

Source: `default_opset_domain()` in release 0.15.2.
"""
CHECKOUT_ACTION = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"
SETUP_PYTHON_ACTION = "actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0"
REPOSITORY = "onnxgate/onnxgate"
HOOK_FILES = r"(\.(onnx|onnx_data|data|bin|weights)|onnxgate\.(toml|lock)|pyproject\.toml)$"
"""Pattern of the files that the hook `onnxgate` receives, which `files` in a project's config replaces.

Source: `.pre-commit-hooks.yaml`.
"""
COMMENT_WIDTH = 80
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
    name: Check ONNX models
    runs-on: ubuntu-24.04
    permissions:
      contents: read
    steps:
      - uses: %(checkout)s
        with:
          # The base of a pull request, or the history, because a push can contain several commits
          fetch-depth: ${{ github.event_name == 'pull_request' && 2 || 0 }}
"""
WORKFLOW_INSTALL_STEPS = """\
      # To export models from their sources, install the packages that the export script needs:
      # - uses: %(setup)s
      #   with:
      #     python-version: "3.11"
      # - run: pip install %(packages)s
"""


def render_config(
    survey: RepositorySurvey, targets: Sequence[SuggestedTarget], exported: Sequence[ExportScript]
) -> str:
    """Return the content of `onnxgate.toml`.

    The sources and commands of the scripts in `exported` are active; those of other scripts are comments.
    """
    major, minor, *_ = __version__.split(".")
    lines = [
        "# Runtimes that the models in this repository must support.",
        "# `onnxgate lock` pins exact releases; `onnxgate check` checks models on them.",
        f'required-version = ">={major}.{minor},<{major}.{int(minor) + 1}"',
        '# models = ["models/**/*.onnx"]  # default: all .onnx files that git tracks',
    ]
    if survey.nested_folders:
        folders = ", ".join(map(quote, survey.nested_folders))
        lines.append(f"exclude = [{folders}]  # these folders have their own config")
    used_domains = {operator.rpartition(".")[0] for fact in survey.facts for operator in fact.operators}
    extensions = sorted(used_domains & EXTENSION_PACKAGES.keys())
    for target in targets:
        lines += [
            "",
            f"[targets.{target.name}]",
            *(line for comment in target.comments for line in _wrap_comment(comment)),
            f"runtime = {quote(target.runtime)}",
        ]
        if has_many_minors(target.runtime):
            lines.append('# select = "bounds"  # faster: only the oldest and the newest minor release')
        elif "==" not in target.runtime or "*" in target.runtime:
            lines.append('# select = "minors"  # newest patch of each minor release; or "bounds", "newest", "all"')
        for domain in extensions:
            lines.append(f"extensions = [{quote(EXTENSION_PACKAGES[domain])}]  # models use operators of `{domain}`")
    for build in dict.fromkeys(build for target in targets for build in target.builds):
        lines += _render_build_target(build, {target.name for target in targets})
    lines += _render_assigned_targets(survey, targets)
    if survey.exports and survey.requires:
        mark = "" if exported else "# "
        file = escape_unprintable(survey.requirements)
        lines += [
            "",
            f"{mark}[toolchain]  # packages that export the models, from {file}",
            f"{mark}requires = [{', '.join(map(quote, survey.requires))}]",
        ]
    lines += _render_exports(survey, exported)
    return "\n".join((*lines, ""))


def _render_assigned_targets(survey: RepositorySurvey, targets: Sequence[SuggestedTarget]) -> Iterator[str]:
    """Yield a `[[model]]` entry for each folder that is deployed with its own dependencies."""
    services = assign_targets(targets, survey.models)
    for folder, names in services.items():
        yield ""
        yield "[[model]]"
        yield f"path = {quote(f'{folder}/**')}"
        yield f"targets = [{', '.join(map(quote, names))}]  # the runtimes that this folder declares"
    if len(targets) > 1 and not services:
        yield ""
        yield "# All models are checked on all targets. To select targets for some models:"
        yield "# [[model]]"
        yield '# path = "models/**"'
        yield f"# targets = [{quote(targets[0].name)}]"


def quote(text: str) -> str:
    """Return the text as a TOML basic string, which is also a valid YAML string. Control characters are escaped."""
    dumped = json.dumps(text, ensure_ascii=False)
    codes = {ord(character) for character in dumped if not character.isprintable()}
    return dumped.translate({code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}" for code in codes})


def _wrap_comment(text: str) -> list[str]:
    """Wrap a comment to several lines without breaking paths."""
    return textwrap.wrap(
        escape_unprintable(text),
        COMMENT_WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _render_build_target(build: str, used_names: Set[str]) -> Iterator[str]:
    """Yield a commented-out target for a build that needs special hardware, such as `onnxruntime-gpu==1.18.1`."""
    package = next(package for package in BUILD_PROVIDERS if build.startswith(package))
    yield ""
    yield from _wrap_comment(
        f"`{package}` needs special hardware and drivers. To check the models with this package, set `python` to an "
        "environment that contains the package:"
    )
    name = package.removeprefix("onnxruntime-")
    yield f"# [targets.{package if name in used_names else name}]"
    yield f"# runtime = {quote(build)}"
    yield f'# providers = [{quote(BUILD_PROVIDERS[package])}, "CPUExecutionProvider"]'
    yield '# python = ".venv"'
    yield "# required = false  # skip this target on machines without this environment"


def _render_exports(survey: RepositorySurvey, exported: Sequence[ExportScript]) -> Iterator[str]:
    """Yield a `[[model]]` entry for each model that scripts export, and one for each script whose model is unknown."""
    scripts = {(find_written_model(survey, it), it.source or it.command or it.path): it for it in survey.exports}
    entries: dict[str, list[ExportScript]] = {}
    for (model, _), script in scripts.items():
        entries.setdefault(model or f"unknown model of {script.path}", []).append(script)
    toolchain = " and `[toolchain]` above" if survey.requires and not exported else ""
    for alternatives in entries.values():
        active = next((script for script in alternatives if script in exported), None)
        for script in alternatives:
            yield ""
            yield from _describe_export(script)
            model = find_written_model(survey, script)
            if script is not active and (script.source or script.command):
                line = f"the `{'source' if script.source else 'command'}` line" if model else "these lines"
                path = "" if model else ", and set `path`"
                yield f"# Uncomment {line}{toolchain}{path} to enable this."
            mark = "" if model else "# "
            if script is alternatives[0] or not model:  # another script of the same model needs no second entry
                yield f"{mark}[[model]]"
                yield f"{mark}path = {quote(model or 'models/….onnx')}"
            yield f"{'' if script is active else '# '}{_render_export_setting(script)}"


def _render_export_setting(script: ExportScript) -> str:
    if script.source:
        return f"source = {quote(script.source)}"
    words = script.command or ("{python}", script.path, "--out", "{output}")
    return f"command = [{', '.join(map(quote, words))}]"


def _describe_export(script: ExportScript) -> Iterator[str]:
    """Yield comments about an export script, and about what it needs for the comparison with PyTorch."""
    yield f"# {escape_unprintable(script.path)}:{script.line} calls `torch.onnx.export`."
    if script.source:
        function = f"`{escape_unprintable(script.source.rpartition(':')[2])}`"
        yield from _wrap_comment(
            f"`check` can export the module that {function} builds, and compare the outputs with PyTorch."
        )
        if script.settings:
            settings = join_quoted(script.settings)
            yield from _wrap_comment(
                f"The export also sets {settings}. To keep this, make {function} return a mapping with these keys in "
                "addition to `model` and `args`."
            )
    elif script.command:
        yield "# `check` can run the script and compare its model with the committed model."
    else:
        yield "# Give the script an option that sets the output path; `check` can then run the script."
    if script.builder:
        function = f"`{escape_unprintable(script.builder.rpartition(':')[2])}`"
        yield from _wrap_comment(
            f"To compare the model with PyTorch, add a function that returns the result of {function} and a tuple of "
            f"example inputs, and set `source = {quote(name_source_function(script))}` instead of `command`."
        )
    elif script.exporting_file:
        yield from _wrap_comment(f"To compare the model with PyTorch, {describe_needed_guard(script)}.")


def name_source_function(script: ExportScript) -> str:
    """Return the name of a new source that calls the function in `builder`: `model.py:build_with_inputs`."""
    return f"{script.builder}_with_inputs"


def describe_needed_guard(script: ExportScript) -> str:
    """Return the change that lets `check` import the file of the function that builds the module.

    Without it, each import would overwrite the committed model.
    """
    file = escape_unprintable(script.exporting_file)
    where = f"the export in {file}" if file == script.path else f"the export that an import of {file} runs"
    return f'first move {where} below `if __name__ == "__main__":`'


def render_source_function(script: ExportScript) -> str:
    """Return the code of the source that calls the function in `builder`, which must return only the module."""
    inputs = script.inputs or "(torch.zeros(1, 3, 224, 224),)  # replace with example inputs of the model"
    name = name_source_function(script).rpartition(":")[2]
    return f"def {name}():\n    import torch\n    return {script.builder.rpartition(':')[2]}().eval(), {inputs}\n"


def find_written_model(survey: RepositorySurvey, script: ExportScript) -> str:
    """Return the path of the committed model that an export script writes; "" if it is unknown."""
    name = script.writes.rpartition("/")[2]
    same_name = [model for model in survey.models if name and model.rpartition("/")[2] == name]
    exact = [model for model in same_name if model == script.writes.removeprefix("./")]
    candidates = exact or same_name or (list(survey.models) if len(survey.exports) == 1 else [])
    return candidates[0] if len(candidates) == 1 else ""


def render_workflow(survey: RepositorySurvey) -> str:
    """Return the content of `.github/workflows/onnxgate.yml`. The workflow has read access only.

    The setup of exports is commented out, since it depends on the project.
    """
    text = WORKFLOW_HEADER % {"branch": quote(survey.branch), "checkout": CHECKOUT_ACTION}
    if survey.uses_lfs:
        text += "          lfs: true # fetch the models from Git LFS\n"
    text += "          persist-credentials: false\n"
    if survey.exports:
        below = f"{survey.below_root}/" if survey.below_root else ""
        packages = (
            f"-r {escape_unprintable(below + survey.requirements)}" if survey.requirements else "torch onnxscript"
        )
        text += WORKFLOW_INSTALL_STEPS % {"setup": SETUP_PYTHON_ACTION, "packages": packages}
    return text + render_workflow_step(survey)


def render_workflow_step(survey: RepositorySurvey) -> str:
    """Return the workflow step that runs onnxgate."""
    step = f"      - uses: {REPOSITORY}@v{__version__}\n"
    if survey.below_root:
        step += f"        with:\n          working-directory: {quote(survey.below_root)}\n"
    return step


def render_hooks(survey: RepositorySurvey) -> str:
    """Return the entry for onnxgate in `.pre-commit-config.yaml`."""
    arguments, files = "", ""
    if survey.below_root:
        arguments = f'\n        args: ["--config", {quote(f"{survey.below_root}/onnxgate.toml")}]'
        files = f"\n        files: {_quote_pattern(f'^{re.escape(survey.below_root)}/.*{HOOK_FILES}')}"
    return (
        f"  - repo: https://github.com/{REPOSITORY}\n"
        f"    rev: v{__version__}\n"
        "    hooks:\n"
        f"      - id: onnxgate # static check of changed models{arguments}{files}\n"
        f"      - id: onnxgate-lock # onnxgate.lock is up to date{arguments}\n"
        f"      - id: onnxgate-run # full check before a push{arguments}\n"
    )


def _quote_pattern(pattern: str) -> str:
    """Return a regular expression as a YAML string. In single quotes, backslashes need no escape."""
    if pattern.isprintable():
        return "'{}'".format(pattern.replace("'", "''"))
    return quote(pattern)
