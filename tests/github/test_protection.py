"""Code of the checked repository that tries to make a failing gate pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from onnxgate.github.protection import COMMAND_FILES, CommandFiles
from tests.github.test_act import actor_on
from tests.github.test_action_step import report
from tests.harness.github.actions_engine import ActionRun, Engine
from tests.harness.repositories.checkout import git

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses system calls of Linux")

CONFIG = """[targets.server]
runtime = "onnxruntime==1.18.1"

[[model]]
path = "models/a.onnx"
command = ["{python}", "export.py", "{output}"]
"""
MODEL = """<ir_version: 8, opset_import: ["": 17]>
main (float[N, 4] x) => (float[N, 4] y) { y = %s(x) }"""
EXPORT = '''
import glob, json, os, pathlib, shutil, signal, sys, time
shutil.copy("models/a.onnx", sys.argv[1])
runner = pathlib.Path(os.environ["RUNNER_TEMP"])

KINDS = {"GITHUB_ENV": "set_env", "GITHUB_PATH": "add_path", "GITHUB_OUTPUT": "set_output"}
KINDS["GITHUB_STEP_SUMMARY"] = "step_summary"

def command_files():
    """Find the files by their folder, and by the environment of every process."""
    found = {str(path): path.name.rpartition("_")[0] for path in runner.glob("_runner_file_commands/*")}
    for file in glob.glob("/proc/[0-9]*/environ"):
        try:
            words = pathlib.Path(file).read_bytes().split(b"\\0")
        except OSError:
            continue
        variables = dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)
        if variables.get("RUNNER_TEMP") == str(runner):
            found.update((variables[name], kind) for name, kind in KINDS.items() if name in variables)
    return [(kind, path) for path, kind in found.items() if kind in KINDS.values() and os.path.exists(path)]

def forge():
    evil = runner / "evil"
    evil.mkdir(exist_ok=True)
    (evil / "env.sh").write_text("exit 0")
    (evil / "bash").write_text("#!/bin/sh\\nexit 0")
    (evil / "bash").chmod(0o755)
    texts = {
        "set_env": f"BASH_ENV={evil}/env.sh\\nSHELLOPTS=noexec\\nBASH_FUNC_exec%%=() {{ exit 0; }}\\n",
        "add_path": f"{evil}\\n",
        "set_output": "exit-code=0\\nverdict=pass\\nerrors=0\\n",
        "step_summary": "All models pass.\\n",
    }
    for kind, path in command_files():
        with open(path, "a") as file:
            file.write(texts[kind])
    for path in runner.glob("onnxgate-*/report.json"):
        text = path.read_text().replace('"exit":1', '"exit":0')
        path.write_text(text.replace('"verdict":"fail"', '"verdict":"pass"'))

def ancestors():
    process = os.getppid()
    while process > 1:
        words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
        if b"onnxgate" not in words:
            return
        yield process
        process = int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

def kill(module):
    for process in ancestors():
        if module.encode() in pathlib.Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)

def detach(seconds):
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3):
        os.close(number)
    os.environ.clear()
    (runner / "daemon").write_text(str(os.getpid()))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            forge()
        except (OSError, ValueError):
            pass
        time.sleep(0.001)
    os._exit(0)

'''


def python(script: str) -> str:
    """Run a script in a new process and return its output."""
    prelude = "import os, subprocess, sys, time\nfrom onnxgate.github import protection\n"
    command = [sys.executable, "-I", "-c", prelude + textwrap.dedent(script)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True).stdout


@LINUX
def test_processes_that_outlive_their_parent_are_ended() -> None:
    """A process that left its session and its parent is ended; without adoption, it is not even known."""
    actual = python("""
        DAEMON = "import os, time\\nif not os.fork(): os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"
        for adopts in (False, True):
            if adopts:
                protection.adopt_orphans()
            read, write = os.pipe()
            subprocess.run([sys.executable, "-c", DAEMON], stdout=write)
            daemon = int(os.read(read, 20))
            print(protection.end_descendants(), os.path.exists(f"/proc/{daemon}"))
            if not adopts:
                os.kill(daemon, 9)
    """)

    assert actual == "True True\nTrue False\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Create the command files of a step, one of which has content."""
    environment = {name: str(tmp_path / name) for name in COMMAND_FILES}
    for path in environment.values():
        Path(path).touch()
    Path(environment["GITHUB_ENV"]).write_text("A=1\n", encoding="utf-8")
    return environment


def test_unchanged_command_files_are_not_reported(files: dict[str, str]) -> None:
    """A file that had content before is not a change."""
    assert CommandFiles(files).restore() == []


def test_changes_of_command_files_are_undone(files: dict[str, str], tmp_path: Path) -> None:
    """A file that was written, removed or replaced with a link has its previous content again."""
    guarded = CommandFiles(files)
    Path(files["GITHUB_ENV"]).write_text("A=2\n", encoding="utf-8")
    Path(files["GITHUB_PATH"]).unlink()
    Path(files["GITHUB_OUTPUT"]).unlink()
    (tmp_path / "empty").touch()
    Path(files["GITHUB_OUTPUT"]).symlink_to(tmp_path / "empty")

    assert guarded.restore() == ["GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH"]
    assert ["", "A=1\n", ""] == [Path(files[name]).read_text(encoding="utf-8") for name in COMMAND_FILES[:3]]
    assert not Path(files["GITHUB_OUTPUT"]).is_symlink()


VARIABLES = {
    "BASH_ENV": "{folder}/exit.sh",
    "SHELLOPTS": "noexec",
    "BASH_FUNC_exec%%": "() {{ exit 0; }}",
    "BASH_FUNC_set%%": "() {{ exit 0; }}",
    "LD_PRELOAD": "{folder}/none.so",
    "PYTHONPATH": "{folder}",
    "PYTHONHOME": "{folder}",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_of_the_job_do_not_make_the_gate_pass(engine: Engine, name: str) -> None:
    """An earlier step of the job may have run code of the repository that set variables for shells and Python."""
    (engine.workspace / "exit.sh").write_text("exit 0", encoding="utf-8")
    (engine.workspace / "onnxgate").mkdir()
    (engine.workspace / "onnxgate" / "__init__.py").write_text("raise SystemExit(0)", encoding="utf-8")
    (engine.workspace / "m.onnx").write_text("not a model", encoding="utf-8")
    set_by_job = {name: VARIABLES[name].format(folder=engine.workspace)}
    ran = replace(engine, environment={**engine.environment, **set_by_job}).use(paths="m.onnx")

    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("failure", "fail", "1"), ran.log
    assert "cannot be preloaded" not in ran.log


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with a lock, a model that does not match it, and an export script."""
    import onnx

    folder = tmp_path_factory.mktemp("attacked") / "workspace"
    (folder / "models").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "export.py").write_text(EXPORT, encoding="utf-8")
    onnx.save(onnx.parser.parse_model(MODEL % "Relu"), folder / "models/a.onnx")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=model")
    locking = [sys.executable, "-m", "onnxgate", "lock"]
    subprocess.run(locking, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=lock")
    onnx.save(onnx.parser.parse_model(MODEL % "NotAnOperator"), folder / "models/a.onnx")
    return folder


@pytest.fixture
def attacked(engine: Engine, workspace: Path) -> Engine:
    """Return an engine with a copy of that repository."""
    shutil.copytree(workspace, engine.workspace, dirs_exist_ok=True)
    return replace(engine, environment={**engine.environment, "ONNXGATE_CACHE_DIR": str(engine.scratch / "cache")})


def attack(engine: Engine, script: str) -> ActionRun:
    """Run the gate with an attack in the export script."""
    (engine.workspace / "export.py").write_text(EXPORT + textwrap.dedent(script), encoding="utf-8")
    return engine.use(stages="file,lock,support,export", args="--against none", cache="false")


@pytest.mark.index
def test_an_export_fails_without_attack(attacked: Engine) -> None:
    """The model fails for its own reasons, and nothing is reported about the step."""
    ran = attack(attacked, "")

    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("failure", "fail", "1"), ran.log
    assert "code of the repository" not in ran.log


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_restored_file_of_the_environment_is_noticed(tmp_path: Path, is_linked: bool) -> None:
    """Code could replace a module until onnxgate imports it, and restore its content and time; uv links files."""
    module = tmp_path / "venv/module.py"
    module.parent.mkdir()
    module.write_text("good", encoding="utf-8")
    if is_linked:
        (tmp_path / "cache.py").hardlink_to(module)
    actual = python(f"""
        from pathlib import Path
        sys.prefix = {str(module.parent)!r}
        module = Path({str(module)!r})
        guard, status = protection.StepGuard({{}}), module.stat()
        module.write_text("evil")
        module.write_text("good")
        os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns))
        print(*guard.finish())
    """)

    assert actual == f"code of the repository changed files of onnxgate's environment, such as `{module}`\n"


ATTACKS = {
    "writes to the command files": "forge()",
    "kills the worker": "forge(); os.kill(next(ancestors()), signal.SIGKILL)",
    "kills the command": "forge(); detach(60); kill('onnxgate.github.protection')",
}


@pytest.mark.index
@pytest.mark.parametrize("script", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_on_the_runner_fails_and_is_undone(attacked: Engine, script: str) -> None:
    """The job fails, the following steps have an unchanged environment, and no process is left."""
    ran = attack(attacked, script)

    assert (ran.conclusion, ran.steps["gate"].outcome) == ("failure", "failure"), ran.log
    assert attacked.environment == ran.environment
    expected = ("137", "undecided") if "kill('" in script else ("1", "fail")
    assert expected == (ran.outputs["exit-code"], ran.outputs["verdict"])
    assert "All models pass" not in ran.summary
    assert f"## {'❌' if expected[1] == 'fail' else '🟡'} onnxgate\n" in ran.summary
    assert "code of the repository wrote to the runner's command files `GITHUB_OUTPUT`, `GITHUB_ENV`" in ran.log
    daemon = attacked.scratch / "daemon"
    assert not daemon.exists() or not Path("/proc", daemon.read_text(encoding="utf-8")).exists()


@pytest.mark.index
def test_an_attack_makes_a_passing_gate_undecided(attacked: Engine) -> None:
    """A pass is not believed if the step was attacked."""
    git(attacked.workspace, "checkout", "--quiet", "models")
    ran = attack(attacked, "forge()")

    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("failure", "undecided", "3"), ran.log
    assert "✅" not in ran.summary
    assert "error: code of the repository interfered with this step" in ran.summary


@pytest.mark.index
def test_a_daemon_cannot_make_the_gate_pass(attacked: Engine) -> None:
    """A daemon that keeps writing, also to the report, is ended before the results are read."""
    ran = attack(attacked, "detach(60)\ntime.sleep(0.5)")

    assert (ran.conclusion, ran.outputs["exit-code"]) == ("failure", "1"), ran.log
    assert attacked.environment == ran.environment
    assert not Path("/proc", (attacked.scratch / "daemon").read_text(encoding="utf-8")).exists()


REPLACED_CODE = """
FORGED = {forged!r}
evil = f'''
import os as _os, sys as _sys
with open(next(word[5:] for word in _sys.argv if word.startswith("json=")), "w") as _file:
    _file.write({{FORGED!r}})
_os._exit(0)
'''
for process in ancestors():
    python = pathlib.Path(os.fsdecode(pathlib.Path(f"/proc/{{process}}/cmdline").read_bytes().split(b"\\0")[0]))
for file in python.parent.parent.glob("lib/python*/site-packages/onnxgate/formats/**/*.py"):
    file.write_text(evil)
"""


@pytest.mark.index
def test_replaced_code_of_onnxgate_is_noticed(attacked: Engine, installed: Path, tmp_path: Path) -> None:
    """A script that replaces modules that are imported after it can forge the report, but not unnoticed."""
    shutil.copytree(installed.parents[1], tmp_path / "venv", symlinks=True)
    python = str(tmp_path / "venv/bin/python")
    own = replace(attacked, stubs={**attacked.stubs, "install": lambda _: {"python": python}})
    ran = attack(own, REPLACED_CODE.format(forged=report("pass", 0)))

    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("failure", "undecided", "3"), ran.log
    assert "code of the repository changed files of onnxgate's environment, such as `" in ran.log


@pytest.mark.index
def test_a_killed_step_fails(attacked: Engine) -> None:
    """If the step itself is killed, its files stay as they are, but the job fails."""
    ran = attack(attacked, "forge(); kill('onnxgate.github.action')")

    assert ran.conclusion == "failure"


@pytest.mark.surface
@pytest.mark.index
@pytest.mark.parametrize("script", ["forge()", "forge(); detach(60); kill('onnxgate.github.protection')"])
def test_an_attack_fails_in_a_real_engine(attacked: Engine, quick: Path, tmp_path: Path, script: str) -> None:
    """`act` ends the job with a failure, although the script writes to its command files."""
    (attacked.workspace / "export.py").write_text(EXPORT + script, encoding="utf-8")
    given = {"stages": "file,lock,support,export", "args": "--against none", "working-directory": "attacked"}
    steps = [
        {"uses": "actions/checkout@v6"},
        {"run": 'cp -r "$ATTACKED" attacked'},
        {"uses": "./", "id": "gate", "with": {**given, "cache": "false"}},
        {"run": 'echo "BASH_ENV=$BASH_ENV"', "if": "always()", "id": "later"},
    ]
    workflow = {"on": "push", "jobs": {"gate": {"runs-on": "ubuntu-24.04", "steps": steps}}}
    (tmp_path / "workflow.yml").write_text(yaml.safe_dump(workflow), encoding="utf-8")
    ran = actor_on(quick, tmp_path / "act").push(
        tmp_path / "workflow.yml",
        ATTACKED=str(attacked.workspace),
        STUB_FOLDER=str(tmp_path),
        STUB_PYTHON=sys.executable,
        ONNXGATE_CACHE_DIR=str(tmp_path / "cache"),
    )

    assert (ran.status, ran.outcome("gate", "gate"), ran.outcome("gate")) == (1, "failure", "failure"), ran.log()
    assert ran.outputs("gate")["verdict"] != "pass"
    assert ran.printed("later") == "BASH_ENV=\n"
    assert "code of the repository wrote to the runner's command files" in ran.log()


CALLED_INPUTS = '''
import os, pathlib, subprocess
import numpy as np

FORGER = """
import sys
from pathlib import Path
import numpy as np
from onnxgate.core.jobs import CaseResult, RunResult
from onnxgate.gate import result_cache

def keep(self, spec, job, observation):
    cases = []
    for number, _ in enumerate(job.cases):
        path = Path(job.output, "forged", str(number) + ".npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.zeros((3, 5), np.float32))
        cases.append(CaseResult(outputs=(str(path),)))
    result = RunResult(providers=("CPUExecutionProvider",), outputs=("y",), cases=tuple(cases))
    run = self._run(spec, job)
    result_cache._write_entry(self._at(run), run, result, replace_existing=True)

result_cache.ResultCache.keep = keep
sys.argv = ["onnxgate", "check", "--stage", "runtime", "--against", "none"]
from onnxgate.cli import main
main()
"""

def build():
    if "NESTED" not in os.environ:
        gate = pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\\0")[0].decode()
        ran = subprocess.run([gate, "-I", "-c", FORGER], env={**os.environ, "NESTED": "1"}, capture_output=True)
        pathlib.Path(os.environ["RUNNER_TEMP"], "forged").write_bytes(ran.stdout + ran.stderr)
    return [{"x": np.ones((2, 4), np.float32)}]
'''
FAILING = """<ir_version: 8, opset_import: ["": 17]>
main (float[N, 4] x) => (float[3, 5] y) <int64[2] s = {3, 5}> { y = Reshape(x, s) }"""


@pytest.mark.index
def test_a_result_that_an_input_function_forged_is_not_reused(attacked: Engine) -> None:
    """Input functions run before the runtimes, and know how onnxgate stores results."""
    import onnx

    folder = attacked.workspace
    config = f'{CONFIG.partition("[[model]]")[0]}[toolchain]\npython = "{sys.executable}"\n\n[[model]]\n'
    config += 'path = "models/a.onnx"\ninputs = "inputs.py:build"\n'
    (folder / "onnxgate.toml").write_text(config, encoding="utf-8")
    (folder / "inputs.py").write_text(CALLED_INPUTS, encoding="utf-8")
    onnx.save(onnx.parser.parse_model(FAILING), folder / "models/a.onnx")
    command = [sys.executable, "-m", "onnxgate", "lock"]
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    networked = replace(attacked, environment={**os.environ, **attacked.environment})  # settings of the package index
    ran = networked.use(stages="file,lock,support,runtime", args="--against none", cache="false")

    assert "run-failed" in (attacked.scratch / "forged").read_text(encoding="utf-8")
    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("failure", "fail", "1"), ran.log
