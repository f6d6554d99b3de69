"""A small engine for composite actions, which implements log parsing, limits and the environment more faithfully than
`act`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tests.harness.github.actions_expressions import condition, interpolate
from tests.harness.github.workflow_commands import Command, annotations

SUMMARY_LIMIT_BYTES = 1024 * 1024
FILES = {
    "GITHUB_OUTPUT": "set_output",
    "GITHUB_ENV": "set_env",
    "GITHUB_PATH": "add_path",
    "GITHUB_STATE": "save_state",
    "GITHUB_STEP_SUMMARY": "step_summary",
}
"""Variables of the command files of a step, and the first words of their file names. Source: actions/runner."""
REFUSED_VARIABLES = {"NODE_OPTIONS"}
"""Variables that the runner does not accept from `GITHUB_ENV`. Source: actions/runner, FileCommandManager.cs."""
Stub = Callable[[Mapping[str, str]], dict[str, str]]


class StubFailure(Exception):  # noqa: N818
    """Failure of a stubbed third-party step."""


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one step."""

    outcome: str  # success, failure or skipped
    allowed: bool = False  # with `continue-on-error`: success despite a failure
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class ActionRun:
    """Result of one `uses:` step, as the workflow sees it."""

    conclusion: str
    outputs: dict[str, str]
    steps: dict[str, Step]
    log: str
    summary: str
    annotations: list[Command]
    warnings: list[str]
    environment: dict[str, str]  # of the following steps of the job


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs one composite action as a step of a job.
    `stubs` replace `uses:` steps and steps by name; they receive the step's `with` or `env` and return its outputs.
    """

    action: Path
    workspace: Path
    scratch: Path
    environment: Mapping[str, str]
    stubs: Mapping[str, Stub] = field(default_factory=dict)

    def use(self, **given: str) -> ActionRun:
        """Run the action with these inputs (`-` is written `_`)."""
        spec = yaml.safe_load((self.action / "action.yml").read_text(encoding="utf-8"))
        named = {name.replace("_", "-"): value for name, value in given.items()}
        github = {"github": {"token": "the token of the job"}}
        inputs = {
            name: named.get(name, interpolate(str(about.get("default", "")), github))
            for name, about in spec["inputs"].items()
        }
        steps: dict[str, Step] = {}
        context: dict[str, Any] = {"inputs": inputs, "steps": {}, "status": {}, "env": dict(self.environment)}
        for number, step in enumerate(spec["runs"]["steps"]):
            name = step.get("id", step.get("name", str(number)))
            _set_status(context, steps)
            steps[name] = self._step(step, context)
            context["steps"][name] = {"outputs": steps[name].outputs, "outcome": steps[name].outcome}
        outputs = {name: interpolate(about["value"], context) for name, about in spec.get("outputs", {}).items()}
        unknown = [f"unexpected input `{name}`" for name in named if name not in inputs]
        return _summed(steps, outputs, unknown, context["env"])

    def _step(self, step: Mapping[str, Any], context: Mapping[str, Any]) -> Step:
        if not condition(str(step.get("if", "success()")), context):
            return Step("skipped")
        stub = self.stubs.get(step.get("id", "")) or self.stubs.get(step.get("uses", "").partition("@")[0])
        values = {name: interpolate(str(text), context) for name, text in step.get("with", step.get("env", {})).items()}
        allowed = step.get("continue-on-error") is True
        if stub:
            return _answered(stub, values, allowed)
        return replace(self._script(step["run"], step["shell"], values, context["env"]), allowed=allowed)

    def _script(self, script: str, shell: str, values: Mapping[str, str], job: dict[str, str]) -> Step:
        """Run a script. `job` is the environment of the job, which the script can change for the following steps."""
        assert "${{" not in script, "nothing may be filled into a script"
        name = uuid.uuid4()
        run = self.scratch / f"{name}.sh"
        run.write_text(script, encoding="utf-8")
        folder = self.scratch / "_runner_file_commands"
        folder.mkdir(exist_ok=True)
        files = {variable: folder / f"{kind}_{name}" for variable, kind in FILES.items()}
        for path in files.values():
            path.touch()
        template = shell if "{0}" in shell else f"{shell} --noprofile --norc -e -o pipefail {{0}}"
        program, *options = shlex.split(template.format(run))
        result = subprocess.run(
            [shutil.which(program, path=job["PATH"]) or program, *options],
            cwd=self.workspace,
            env={**self._runner_environment(), **job, **{name: str(path) for name, path in files.items()}, **values},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        set_variables = key_values(files["GITHUB_ENV"].read_text(encoding="utf-8"))
        job |= {name: value for name, value in set_variables.items() if name not in REFUSED_VARIABLES}
        added = files["GITHUB_PATH"].read_text(encoding="utf-8").splitlines()
        job["PATH"] = ":".join([*reversed(added), job["PATH"]])
        return Step(
            outcome="success" if result.returncode == 0 else "failure",
            outputs=key_values(files["GITHUB_OUTPUT"].read_text(encoding="utf-8")),
            log=result.stdout.decode(errors="replace"),
            summary=_summary(files["GITHUB_STEP_SUMMARY"]),
        )

    def _runner_environment(self) -> dict[str, str]:
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(self.action),
            "RUNNER_TEMP": str(self.scratch),
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
        }


def _answered(stub: Stub, values: Mapping[str, str], allowed: bool) -> Step:
    try:
        return Step("success", allowed, stub(values))
    except StubFailure as failure:
        return Step("failure", allowed, log=str(failure))


def _set_status(context: dict[str, Any], steps: Mapping[str, Step]) -> None:
    failed = _has_failed(steps)
    context["status"] = {"success": not failed, "failure": failed, "always": True, "cancelled": False}


def _has_failed(steps: Mapping[str, Step]) -> bool:
    return any(step.outcome == "failure" and not step.allowed for step in steps.values())


def key_values(text: str) -> dict[str, str]:
    """Return the values in a command file, parsed as the runner does."""
    values: dict[str, str] = {}
    rest = text.split("\n")
    while rest:
        line = rest.pop(0)
        if match := re.match(r"([^=]*?)<<(.*)", line):
            end = rest.index(match[2])
            values[match[1]] = "\n".join(rest[:end])
            del rest[: end + 1]
        elif line:
            name, _, values[name] = line.partition("=")
    return values


def _summary(path: Path) -> str:
    content = path.read_bytes()
    return content.decode() if len(content) <= SUMMARY_LIMIT_BYTES else ""


def _summed(
    steps: Mapping[str, Step], outputs: dict[str, str], warnings: list[str], environment: dict[str, str]
) -> ActionRun:
    log = "\n".join(step.log for step in steps.values())
    return ActionRun(
        conclusion="failure" if _has_failed(steps) else "success",
        outputs=outputs,
        steps=dict(steps),
        log=log,
        summary="".join(step.summary for step in steps.values()),
        annotations=annotations(log),
        warnings=warnings,
        environment=environment,
    )
