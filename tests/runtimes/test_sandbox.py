"""The sandbox denies a hostile engine everything it does not need; without the sandbox the same attempts succeed."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from onnxgate.core.jobs import (
    Benchmark,
    BenchmarkResult,
    CaseResult,
    Completed,
    Crashed,
    Failure,
    InputCase,
    Load,
    LoadResult,
    Observation,
    Probe,
    ProbeResult,
    Refused,
    Run,
    RunResult,
    Unavailable,
)
from onnxgate.core.subprocesses import TELEMETRY_VARIABLES
from onnxgate.numerics.streams import load_array
from onnxgate.runtimes import sandbox
from onnxgate.runtimes.engine_program import EngineProgram
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.health import check_health
from onnxgate.runtimes.pool import UNSANDBOXED_NOTE, WorkerPool
from onnxgate.runtimes.sandbox import Permissions
from onnxgate.runtimes.worker import linux_sandbox
from onnxgate.runtimes.worker.sandbox import exclude_private
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.harness.models import write
from tests.runtimes.conftest import Locked

LINUX = sys.platform.startswith("linux")
held = pytest.mark.skipif(
    not LINUX or not linux_sandbox.landlock_version(), reason="files are limited by Landlock alone"
)

FILES = (
    *("read_a_key", "list_keys", "read_what_git_signs_in_with", "write_outside", "change_a_key", "remove_a_key"),
    *("change_the_model", "change_its_environment"),
)
OTHERS = (
    *("connect", "ask_a_name", "ask_an_agent", "read_the_gate_s_variables", "read_the_gate_s_memory"),
    *("signal_the_gate", "fork", "start_a_program", "enter_a_namespace", "dump_core", "fill_the_disk"),
)
NEEDS = {
    "read_the_model": "the model",
    "write_at_home": "x",
    "start_a_thread": "['done']",
}


class Den:
    """A hostile engine with its models, and files outside that it must not touch."""

    def __init__(self, folder: Path, worker_spec: WorkerSpec, worker: Path, cache: Path) -> None:
        self.folder = folder
        self.outside = folder / "outside"
        self.models = folder / "models"
        (self.models / ".git").mkdir(parents=True)
        (self.models / ".git" / "config").write_text("extraheader")
        self.outside.mkdir()
        self._worker = worker
        self._cache = cache
        self._worker_spec = worker_spec

    def host(self, *, limited: bool) -> WorkerPool:
        """Return a worker pool that runs the engine."""
        environments = Environments(self._cache, offline=False)
        return WorkerPool(environments, 1, JobLimits(time_s=30), worker=self._worker, limited=limited)

    def hostile_spec(self, port: int) -> WorkerSpec:
        """Return a locked runtime whose engine is hostile."""
        return replace(self._worker_spec, environment=(("OUTSIDE", str(self.outside)), ("PORT", str(port))))

    def model(self, name: str) -> str:
        """Write a model that requests an attempt, and restore the outside files."""
        (self.models / name).write_text("the model")
        (self.outside / "key").write_text("secret")
        (self.outside / "spare").write_text("secret")
        return str(self.models / name)


@pytest.fixture
def den(tmp_path: Path, fake_worker: Path, cache: Path, locked: Callable[[str], Locked]) -> Den:
    """Return a hostile engine in the environment of a real one."""
    runtime, packages = locked("1.31.1")
    return Den(tmp_path, WorkerSpec("hostile 1.0", "hostile", runtime, packages), fake_worker, cache)


def attempts(den: Den, port: int, names: tuple[str, ...], *, limited: bool) -> dict[str, Observation]:
    """Return the observation of each attempt."""
    with den.host(limited=limited) as host:
        host.show(models=[Path(den.model(name)) for name in names])
        return {name: host.submit(den.hostile_spec(port), Load(model=den.model(name))).result(60) for name in names}


@held
def test_sandbox_refuses_unneeded_actions(den: Den, port: int) -> None:
    """The system refuses each attempt, the worker stays usable, and nothing outside has changed."""
    seen = attempts(den, port, (*FILES, *OTHERS, "tell_a_secret"), limited=True)

    assert [name for name, each in seen.items() if not isinstance(each, Refused | Unavailable)] == []
    assert [path.name for path in sorted(den.outside.iterdir())] == ["key", "spare"]


@held
def test_attempts_succeed_without_the_sandbox(
    den: Den, port: int, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt succeeds without the sandbox, so it is the sandbox that refuses it."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    names = tuple(name for name in (*FILES, *OTHERS, "tell_a_secret") if name not in impossible())
    seen = attempts(den, port, names, limited=False)
    for left in cache.rglob("onnxgate_test_hostile.py"):
        left.unlink()

    assert {name: type(each) for name, each in seen.items()} == dict.fromkeys(seen, Completed)


def impossible() -> set[str]:
    """Return the attempts that this system forbids for every process."""
    actual = set()
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        actual.add("dump_core")
    restricted = Path("/proc/sys/kernel/yama/ptrace_scope")
    if restricted.exists() and restricted.read_text().strip() != "0":
        actual.add("read_the_gate_s_memory")
    for setting in ("apparmor_restrict_unprivileged_userns", "unprivileged_userns_clone"):
        if Path("/proc/sys/kernel", setting).exists():
            actual.add("enter_a_namespace")
    return actual


@held
def test_sandbox_allows_what_engines_need(den: Den, port: int) -> None:
    """The engine can read its model, write to its own folder and start threads; its abort costs one job."""
    seen = attempts(den, port, (*NEEDS, "end_itself", "read_the_model"), limited=True)

    assert {name: Completed(result=LoadResult(providers=(NEEDS[name],))) for name in NEEDS} == {
        name: seen[name] for name in NEEDS
    }
    assert isinstance(seen["end_itself"], Crashed)
    assert seen["end_itself"].signal == "SIGABRT"


@held
def test_only_a_race_starts_programs(den: Den, port: int) -> None:
    """A benchmark may start processes, because it measures memory in fresh ones, but has no network access."""
    job = Benchmark(model=den.model("x"), baseline=den.model("y"), cases=(), rounds=0, memory_runs=1, time_s=1)
    with den.host(limited=True) as host:
        raced = host.submit(den.hostile_spec(port), job).result(60)

    assert raced == Completed(result=BenchmarkResult(reason="children, and no network"))


def test_an_output_that_is_a_link_is_no_answer(den: Den, port: int, tmp_path: Path) -> None:
    """A symbolic link in place of an output is an invalid response."""
    (tmp_path / "out").mkdir()
    case = InputCase(name="one", origin="generated", inputs={})
    with den.host(limited=True) as host:
        ran = host.submit(
            den.hostile_spec(port), Run(model=den.model("x"), cases=(case,), output=str(tmp_path / "out"))
        )
        observation = ran.result(60)

    assert isinstance(observation, Crashed)
    assert observation.signal == "an invalid response"
    assert [path for path in tmp_path.rglob("*") if path.name in ("0.npy", "other")] == []


def test_environment_contains_no_secrets(den: Den, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only required variables are passed on, and all scratch folders are the worker's own."""
    for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PIP_INDEX_URL", "SSH_AUTH_SOCK", "HF_TOKEN", "CUDA_PATH"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with den.host(limited=True) as host:
        observation = host.submit(den.hostile_spec(port), Probe()).result(60)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ProbeResult)
    seen = observation.result.packages
    assert "secret" not in seen.values()
    assert seen["OMP_NUM_THREADS"] == "2"
    assert {seen[name] for name in sandbox.HOME_VARIABLES} == {seen["HOME"]}
    assert not Path(seen["HOME"]).exists()  # removed with the pool


def test_custom_build_gets_device_paths() -> None:
    """A user's own build also gets device paths, but no secrets."""
    variables = {"CUDA_PATH": "/opt/cuda", "LD_LIBRARY_PATH": "/opt/lib", "HF_TOKEN": "x", "ORT_TOKEN_FREE": "1"}
    variables |= {"OMP_PROC_BIND": "true", "KMP_AFFINITY": "compact"}  # libgomp ends a process that it cannot bind
    variables |= dict.fromkeys(TELEMETRY_VARIABLES, "0")
    own = sandbox.runtime_variables(variables, Path("/scratch"), own=True)
    locked = sandbox.runtime_variables(variables, Path("/scratch"), own=False)

    always = {*sandbox.HOME_VARIABLES, *TELEMETRY_VARIABLES}
    assert own.items() >= TELEMETRY_VARIABLES.items()
    assert own.keys() - always == {"CUDA_PATH", "LD_LIBRARY_PATH", "ORT_TOKEN_FREE"}
    assert locked.keys() - always == {"LD_LIBRARY_PATH"}


def test_an_engine_has_a_private_home_without_the_sandbox(den: Den, port: int) -> None:
    """Without the sandbox, an engine still gets the home and temporary folders of its worker."""
    with den.host(limited=False) as host:
        observation = host.submit(den.hostile_spec(port), Probe()).result(60)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ProbeResult)
    homes = {observation.result.packages[name] for name in sandbox.HOME_VARIABLES}
    assert len(homes) == 1
    assert str(Path.home()) not in homes


def test_source_does_not_get_runner_tokens() -> None:
    """A source keeps credentials for its weights, but loses the runner's tokens and command files."""
    variables = dict.fromkeys(("HF_TOKEN", "SSH_AUTH_SOCK", "GITHUB_WORKSPACE", "GITHUB_ACTIONS", "HOME"), "x")
    taken = ("ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "GITHUB_ENV", "GITHUB_PATH", "INPUT_TOKEN")

    assert variables == sandbox.source_variables({**variables, **dict.fromkeys(taken, "x")})


def test_job_with_another_model_gets_a_new_worker(den: Den, port: int, tmp_path: Path) -> None:
    """One worker serves all models that it was started for; another model needs a new worker."""
    elsewhere = tmp_path / "elsewhere" / "read_the_model"
    elsewhere.parent.mkdir()
    elsewhere.write_text("another")
    with den.host(limited=True) as host:
        host.show(models=[Path(den.model("read_the_model"))])
        first, second = (str(host.submit(den.hostile_spec(port), Probe()).result(60)) for _ in range(2))
        there = host.submit(den.hostile_spec(port), Load(model=den.model("read_the_model"))).result(60)
        third = str(host.submit(den.hostile_spec(port), Probe()).result(60))
        moved = host.submit(den.hostile_spec(port), Load(model=str(elsewhere))).result(60)
        fourth = str(host.submit(den.hostile_spec(port), Probe()).result(60))

    assert first == second == third != fourth
    assert [there, moved] == [Completed(result=LoadResult(providers=(said,))) for said in ("the model", "another")]


@held
def test_a_model_that_came_later_is_read(den: Den, port: int) -> None:
    """A model added after the start is readable; files next to it are not."""
    with den.host(limited=True) as host:
        first = host.submit(den.hostile_spec(port), Load(model=den.model("start_a_thread"))).result(60)
        second = host.submit(den.hostile_spec(port), Load(model=den.model("read_the_model"))).result(60)
        third = host.submit(den.hostile_spec(port), Load(model=den.model("read_what_git_signs_in_with"))).result(60)

    assert (type(first), type(second), type(third)) == (Completed, Completed, Unavailable)


@held
def test_a_model_may_be_a_link(den: Den, port: int, tmp_path: Path) -> None:
    """A model is readable through a link, as in download caches."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_text("by a link")
    (den.models / "read_the_model").symlink_to(tmp_path / "blobs" / "1")
    with den.host(limited=True) as host:
        seen = host.submit(den.hostile_spec(port), Load(model=str(den.models / "read_the_model"))).result(60)

    assert seen == Completed(result=LoadResult(providers=("by a link",)))


@held
def test_a_user_environment_cannot_read_credentials(
    den: Den, port: int, tmp_path: Path, fake_worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine in a user environment reads all files except for hidden ones in the home and model folders."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path / "home" / ".ssh")
    keys = {home / ".ssh" / "id": False, home / "data": True, den.outside / "key": True, den.models / ".env": False}
    keys |= {tmp_path / ".git" / "config": False, tmp_path / ".env": False}
    (home / "keys").symlink_to(".ssh")
    for key in keys:
        key.parent.mkdir(exist_ok=True)
        key.write_text("secret")
    keys[home / "keys" / "id"] = False
    seen = {}
    with WorkerPool(Environments(tmp_path, offline=True), 1, worker=fake_worker) as host:
        for key in keys:
            variables = (("OUTSIDE", str(key.parent)), ("KEY", key.name))
            spec = WorkerSpec("own 1.0", "hostile", interpreter=Path(sys.executable), environment=variables)
            job = Load(model=den.model("read_the_named_key"))
            key.write_text("secret")
            seen[key] = isinstance(host.submit(spec, job).result(60), Completed)

    assert seen == keys


@held
def test_a_repository_in_a_hidden_folder(den: Den, fake_worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's build can import modules of the repository, such as `~/.jenkins/workspace/app`, but reads no keys."""
    repository = den.outside / ".jenkins" / "app"
    files = {"src/module.py": True, ".env": False, "../token": False}
    for file in files:
        (repository / file).parent.mkdir(parents=True, exist_ok=True)
        (repository / file).write_text("x")
    (repository / ".git").mkdir()
    monkeypatch.setenv("HOME", str(den.outside))
    monkeypatch.chdir(repository)
    seen = {}
    with WorkerPool(Environments(den.folder, offline=True), 1, worker=fake_worker) as host:
        for file in files:
            variables = (("OUTSIDE", str(repository)), ("KEY", file))
            spec = WorkerSpec("own 1.0", "hostile", interpreter=Path(sys.executable), environment=variables)
            job = Load(model=den.model("read_the_named_key"))
            seen[file] = isinstance(host.submit(spec, job).result(60), Completed)

    assert files == seen


def test_packages_that_are_linked_into_an_environment(tmp_path: Path) -> None:
    """Packages of a user's environment are readable in hidden folders: uv's links, and those of `.pth` files.

    A package cannot make other hidden folders readable with a `.pth` file.
    """
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    for folder in (
        packages / "numpy",
        packages / "plain",
        tmp_path / ".uv" / "hash" / "numpy",
        tmp_path / ".src" / "a",
    ):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (packages / "numpy" / "__init__.py").unlink()
    (packages / "numpy" / "__init__.py").symlink_to(tmp_path / ".uv" / "hash" / "numpy" / "__init__.py")
    (packages / "module.py").symlink_to(tmp_path / ".uv" / "module.py")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").touch()
    (packages / "a.pth").write_text(f"# comment\nimport sys\n{tmp_path}/.src\n{tmp_path}/missing\n")
    (packages / "c.pth").write_text(f"{tmp_path}/.ssh\n../../../../.ssh\n")
    (packages / "b.pth").write_bytes(bytes(2**17))
    program = EngineProgram.of_python("onnxruntime", tmp_path / "venv" / "bin" / "python", own=True)

    assert {str(tmp_path / name) for name in (".uv/hash", ".uv/module.py", ".src")} == program.reads


@pytest.mark.parametrize("own", [True, False])
def test_program_files_never_include_private_files(own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `.pth` file may name the repository (an editable installation); Node.js may be in a folder that contains it."""
    repository = tmp_path / "lib" / "app"
    for file in ("lib/node.js", "lib/app/src/a.py", "lib/app/.env", "lib/app/.git/config"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.chdir(repository)
    folder = sandbox.WorkerFolder()
    program_reads = frozenset({str(repository) if own else str(tmp_path / "lib")})
    reads = set(json.loads(folder.write_permissions(Permissions(all_reads=own), program_reads).read_bytes())["reads"])
    folder.close()

    expected = repository / "src" if own else tmp_path / "lib" / "node.js"
    private = {tmp_path, tmp_path / "lib", repository, repository / ".env", repository / ".git"}
    assert str(expected) in reads
    assert not reads & {*map(str, private)}


@held
def test_a_hidden_file_that_a_user_s_build_needs(den: Den, fake_worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that cannot read a file is undecided, not the failure of a model; the reason names the sandbox."""
    monkeypatch.setenv("HOME", str(den.outside))
    (den.outside / ".settings").write_text("threads=1")
    variables = (("OUTSIDE", str(den.outside)), ("KEY", ".settings"))
    spec = WorkerSpec("own 1.0", "hostile", interpreter=Path(sys.executable), environment=variables)
    with WorkerPool(Environments(den.folder, offline=True), 1, worker=fake_worker) as host:
        observation = host.submit(spec, Load(model=den.model("read_the_named_key"))).result(60)

    assert observation == Unavailable(
        reason=f"the sandbox denies access to `{den.outside / '.settings'}`", hint=sandbox.OWN_FILES_HINT
    )


DENIALS = {
    "PermissionError: [Errno 13] Permission denied: '{}/.cfg'": "{}/.cfg",
    "{}/.cfg: cannot open shared object file: Permission denied": "{}/.cfg",
    'open file "{}/.cfg" fail, errno = 13 - Permission denied': "{}/.cfg",
    "[Errno 13] Permission denied: '.cfg'": ".cfg",  # relative to the model
    "File '{}/a.py', line 1\nPermissionError: [Errno 13] Permission denied: '{}/.cfg'": "{}/.cfg",
    "Load of '{}/a.py' failed: '{}/.cfg': Permission denied": "{}/.cfg",
    "[Errno 13] Permission denied: '{}/missing'": "",
    "[Errno 13] Permission denied: '{}'": "",  # a folder
    "[Errno 13] Permission denied: '\ud800'": "",
    "the node '{}/.cfg' is invalid": "",
}


@pytest.mark.skipif(not LINUX, reason="files are only restricted on Linux")
@pytest.mark.parametrize("text", DENIALS)
def test_errors_of_denied_files(text: str, tmp_path: Path) -> None:
    """The sandbox is the cause of an error only if this process can read the file."""
    for name in (".cfg", "a.py"):
        (tmp_path / name).touch()
    file = DENIALS[text].replace("{}", str(tmp_path))
    failure = Failure(type="Fail", text=text.replace("{}", str(tmp_path)))
    job = Load(model=str(tmp_path / "m.onnx"))
    result = RunResult(providers=(), outputs=(), cases=(CaseResult(), CaseResult(failure=failure)))
    for observation in (Refused(failure=failure), Unavailable(reason=failure.text), Completed(result=result)):
        denied = Unavailable(reason=f"the sandbox denies access to `{file}`", hint=sandbox.LOCKED_FILES_HINT)

        assert (denied if file else observation) == sandbox.explain_denial(observation, job, Permissions())
        assert observation == sandbox.explain_denial(observation, job, Permissions(frozenset({str(tmp_path)})))


@held
def test_a_repository_in_a_system_folder_is_unreadable(
    den: Den, tmp_path: Path, fake_worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository and the home folder are excluded from readable folders; links to them are, too."""
    system = tmp_path / "system"
    files = {"lib/a.so": True, "lib/home/token": False, "lib/app/.git/config": False, "lib/app/key": False}
    files |= {"lib/app/ops.so": True, "lib/app/key.so": False}
    for file in files:
        (system / file).parent.mkdir(parents=True, exist_ok=True)
        (system / file).write_text("\x7fELF" if file == "lib/app/ops.so" else "secret")
    for link, target in {"link": "lib/app", "lib/up": "..", "lib/b": "a.so"}.items():
        (system / link).symlink_to(target)
    files |= {"lib/b": True, "link/key": False, "lib/up/lib/app/key": False}
    monkeypatch.setenv("HOME", str(system / "lib" / "home"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{system}:{system / 'lib' / 'app'}")
    monkeypatch.chdir(system / "lib" / "app")
    seen = {}
    with den.host(limited=True) as host:
        for file in files:
            variables = (("OUTSIDE", str((system / file).parent)), ("KEY", (system / file).name))
            spec = replace(den.hostile_spec(0), environment=variables)
            seen[file] = isinstance(
                host.submit(spec, Load(model=den.model("read_the_named_key"))).result(60), Completed
            )

    assert seen == files


def test_a_system_folder_that_is_private(tmp_path: Path) -> None:
    """If the home folder is a system folder such as `/usr/bin`, its hidden files are unreadable, also through links."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3.11", ".netrc"):
        (folder / name).touch()
    for link, target in {"X11": ".", "python3": "python3.11", "key": ".netrc", "up": "..", "out": "../out"}.items():
        (folder / link).symlink_to(target)
    (tmp_path / "link").symlink_to("bin")
    paths = set(exclude_private([str(folder), str(tmp_path / "link")], [str(folder)]))

    assert {str(folder / name) for name in ("python3.11", "out")} == paths


@held
def test_a_private_folder_in_the_standard_library(den: Den, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are found even if the standard library contains the repository or the home folder: Python lists it."""
    python = Environments(cache, offline=True).interpreter("3.11")
    ask = [python, "-I", "-S", "-c", "import os; print(os.path.dirname(os.__file__))"]
    library = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    seen = {}
    for home in (library / "wsgiref", library):
        monkeypatch.setenv("HOME", str(home))
        variables = (("OUTSIDE", str(home)), ("KEY", "util.py"))
        spec = replace(den.hostile_spec(0), environment=variables)
        with den.host(limited=True) as host:
            for attempt in ("import_a_module", "read_the_named_key"):
                seen[home.name, attempt] = host.submit(spec, Load(model=den.model(attempt))).result(60)

    assert seen["wsgiref", "import_a_module"] == Completed(result=LoadResult(providers=("wave",)))
    assert isinstance(seen["wsgiref", "read_the_named_key"], Unavailable)
    assert seen[library.name, "import_a_module"] == Completed(result=LoadResult(providers=("wave",)))


@held
@pytest.mark.parametrize("folder", ["/opt", "/usr/src", "/usr/local"])
def test_folders_that_may_contain_a_checkout(folder: str, den: Den) -> None:
    """A checkout in these folders is unreadable."""
    if not Path(folder).is_dir():
        pytest.skip("does not exist")
    with den.host(limited=True) as host:
        spec = replace(den.hostile_spec(0), environment=(("OUTSIDE", folder),))
        listed = host.submit(spec, Load(model=den.model("list_keys"))).result(60)

    assert isinstance(listed, Refused), listed


@pytest.mark.skipif(not LINUX, reason="the sandbox is only available on Linux")
def test_a_locked_engine_never_runs_without_the_sandbox(den: Den) -> None:
    """A locked engine that does not start in the sandbox is unavailable; a package could cause this on purpose."""
    with den.host(limited=True) as host:
        spec = replace(den.hostile_spec(0), engine="shy")
        observation = host.submit(spec, Load(model=den.model("x"))).result(60)

        assert isinstance(observation, Unavailable)
        assert observation.reason == "ImportError: something is missing"
        assert host.notes == ()


EXTERNAL = {
    "w.bin": ("w.bin",),
    "data/w.bin": ("data/w.bin",),
    "link.bin": ("link.bin",),
    "linked/w.bin": ("linked/w.bin",),
    "absolute": ("w.bin",),
    "outside.bin": (),
    "../other.bin": (),
    "missing.bin": (),
    "data": (),
    ".env": (),
    "data/.git/config": (),
    "secret.bin": (),
}
"""Declared locations of external data, and the files that a runtime may read next to the model."""


@pytest.mark.parametrize("location", EXTERNAL)
def test_only_declared_data_is_readable(location: str, tmp_path: Path) -> None:
    """The external data that a model declares is readable if it is in the folder of the model and not hidden."""
    folder = tmp_path / "models"
    for file in ("w.bin", "data/w.bin", ".env", "data/.git/config", "../other.bin"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(bytes(8192))
    links = {"link.bin": "w.bin", "linked": "data", "outside.bin": "../other.bin", "secret.bin": ".env"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    declared = str(folder / "w.bin") if location == "absolute" else location
    job = Load(model=str(write_external(folder / "m.onnx", declared)))
    reads = sandbox.required_permissions([job], None, own=False).reads

    assert {str(folder / "m.onnx"), *(str(folder / file) for file in EXTERNAL[location])} == reads
    assert sandbox.find_hidden_data(job) == (location if location in HIDDEN else "")


HIDDEN = (".env", "data/.git/config", "secret.bin")


def write_external(path: Path, location: str) -> Path:
    """Write a model with external data at this location."""
    weights = onnx.TensorProto(name="w", data_type=1, dims=[2048], data_location=onnx.TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    model = onnx.ModelProto(ir_version=8)
    model.graph.initializer.append(weights)
    path.write_bytes(model.SerializeToString())
    return path


def test_hidden_data_is_not_loaded(den: Den) -> None:
    """A model that declares a hidden file as external data is not loaded; the reason names the file."""
    (den.models / ".env").write_text("secret")
    with den.host(limited=True) as host:
        job = Load(model=str(write_external(den.models / "read_the_model", ".env")))
        observation = host.submit(den.hostile_spec(0), job).result(60)

    assert observation == Unavailable(
        reason="external data `.env` is hidden, and the sandbox denies access to it",
        hint="rename the file, so that no part of its path begins with a dot",
    )


def test_libraries_next_to_an_extension_are_readable(tmp_path: Path) -> None:
    """An extension may load shared libraries in its folder; other files there are unreadable."""
    libraries = {"ops.so", "libdep.so.1.2", "libdep.so", "helper.dylib"}
    for name in (*libraries, ".env", "secret.so.key", "notes.txt"):
        (tmp_path / name).write_bytes(b"\x7fELF" if name in libraries else b"secret")
    (tmp_path / "key.so").symlink_to(".env")
    job = Load(model=str(tmp_path / "m.onnx"), extensions=(str(tmp_path / "ops.so"), "package"))
    reads = sandbox.required_permissions([job], None, own=False).reads

    assert {str(tmp_path / name) for name in ("m.onnx", *libraries)} == reads


def test_an_extension_that_leads_to_a_secret_is_unreadable(tmp_path: Path) -> None:
    """A committed link could otherwise give the libraries of a pull request access to any file of the user."""
    (tmp_path / "id_rsa").write_text("secret")
    (tmp_path / "blob").write_bytes(b"\x7fELF")
    (tmp_path / "key.so").symlink_to("id_rsa")
    (tmp_path / "ops.so").symlink_to("blob")  # as in caches of large files
    job = Load(model=str(tmp_path / "m.onnx"), extensions=(str(tmp_path / "key.so"), str(tmp_path / "ops.so")))
    reads = sandbox.required_permissions([job], None, own=False).reads

    assert {str(tmp_path / "m.onnx"), str(tmp_path / "ops.so")} == reads


@pytest.mark.skipif(not LINUX, reason="says something else elsewhere")
def test_missing_restrictions_are_noted(den: Den, port: int, tmp_path: Path, fake_worker: Path) -> None:
    """The missing restrictions are noted, and the job runs."""
    old = tmp_path / "worker"
    shutil.copytree(fake_worker, old)
    with (old / "linux_sandbox.py").open("a") as module:
        module.write("\ndef landlock_version():\n    return 0\n")
    with (old / "system_calls.py").open("a") as module:
        module.write("\ndef restrict_system_calls(**_):\n    raise OSError(38, 'Function not implemented')\n")
    with WorkerPool(Environments(den.folder / "c", offline=True), 1, worker=old) as host:
        worker_spec = WorkerSpec("x", "hostile", interpreter=Path(sys.executable))
        assert isinstance(host.submit(worker_spec, Load(model=den.model("read_the_model"))).result(60), Completed)

        assert host.notes == (
            "x: files could not be restricted: Landlock is not available",
            "x: network and processes could not be restricted: Function not implemented",
        )


@pytest.mark.skipif(not LINUX, reason="engines are limited on Linux alone")
def test_an_engine_that_does_not_start_with_limits_runs_without(fake_worker: Path, tmp_path: Path) -> None:
    """The engine runs without the sandbox, and a note reports it."""
    with WorkerPool(Environments(tmp_path, offline=True), 1, worker=fake_worker) as host:
        worker_spec = WorkerSpec("shy 1.0", "shy", interpreter=Path(sys.executable))
        observation = host.submit(worker_spec, Load(model=str(tmp_path / "x.onnx"))).result(60)

        assert observation == Completed(result=LoadResult(providers=("Shy",)))
        assert host.notes == (f"shy 1.0: {UNSANDBOXED_NOTE} (ImportError: something is missing)",)


@pytest.mark.index
@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("release", ["1.29.0", "1.30.0", "1.31.1", "1.32.0"])
def test_telemetry_is_off(
    release: str,
    limited: bool,
    locked: Callable[..., Locked],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Releases with telemetry run in the sandbox, and neither they nor their health check write to the user's folders.

    This is also true if the user's environment turns telemetry on.
    """
    runtime, packages = locked(release, numpy="2.3.1")
    environments = Environments(cache, offline=False)
    interpreter = environments.prepare(runtime, packages)
    folders = [tmp_path / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")]
    for folder in folders:
        folder.mkdir()
        monkeypatch.setenv(folder.name, str(folder))
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    check_health(runtime, EngineProgram.of_python("onnxruntime", interpreter), environments.commands)
    with WorkerPool(environments, 1, limited=limited) as host:
        job = Load(model=str(write(tmp_path / "x.onnx")))
        observation = host.submit(WorkerSpec(runtime.name, "onnxruntime", runtime, packages), job).result(60)
        notes = host.notes

    assert (type(observation), notes) == (Completed, ())
    assert [path for folder in folders for path in folder.rglob("*")] == []


@pytest.mark.parametrize(
    ("has", "wants", "covered"),
    [
        (Permissions(frozenset(["/a"])), Permissions(frozenset(["/a/b/c"])), True),
        (Permissions(frozenset(["/a/b"])), Permissions(frozenset(["/a"])), False),
        (Permissions(frozenset(["/a"])), Permissions(frozenset(["/ab"])), False),
        (Permissions(frozenset(["/"])), Permissions(frozenset(["/a"])), True),
        (Permissions(frozenset(["/a"])), Permissions(all_reads=True), False),
        (Permissions(), Permissions(processes=True), False),
        (Permissions(), Permissions(devices=True), False),
        (Permissions(file_mib=1), Permissions(file_mib=2), False),
    ],
)
def test_scope_of_permissions(has: Permissions, wants: Permissions, *, covered: bool) -> None:
    """Permission for a folder covers everything below it, and combined permissions cover both."""
    assert covered is has.covers(wants)
    assert (has | wants).covers(wants)


@pytest.mark.parametrize(("memory_mib", "file_mib"), [(None, 8192), (8192, 8192), (8193, 16384), (40_000, 65536)])
def test_files_may_be_as_large_as_a_job_s_memory(memory_mib: int | None, file_mib: int) -> None:
    """The file size limit follows from the memory limit, because outputs are in memory before they are written."""
    assert sandbox.required_permissions([Load(model="/a/b.onnx")], memory_mib, own=False).file_mib == file_mib


def deliver(write: Callable[[Path], object], target: Path) -> Path:
    """Deliver one output of `write`, then truncate its file, as a worker could that still has it open."""
    folder, job = sandbox.WorkerFolder(), Run(model="m.onnx", cases=(), output=str(target))
    inner = folder.redirect(job)
    assert isinstance(inner, Run)
    path = Path(inner.output) / "0.npy"
    write(path)
    case = CaseResult(outputs=(str(path),))
    with path.open("r+b") as kept:
        answer = Completed(result=RunResult(providers=(), outputs=("y",), cases=(case,)))
        delivered = folder.deliver(answer, inner, job)
        kept.truncate(200)
    folder.close()

    assert isinstance(delivered, Completed)
    assert isinstance(delivered.result, RunResult)
    assert delivered.result.cases[0].outputs == (str(target / "0.npy"),)
    return target / "0.npy"


def test_a_delivered_output_is_out_of_reach(tmp_path: Path) -> None:
    """A worker that keeps an output file open cannot change or truncate the delivered copy."""
    delivered = deliver(lambda path: np.save(path, np.ones(300_000, np.float32)), tmp_path / "outputs")

    assert load_array(delivered).sum() == 300_000


def test_a_hole_of_an_output_takes_no_space(tmp_path: Path) -> None:
    """A sparse output stays sparse when it is copied, and the data around its holes is complete."""

    def write(path: Path) -> None:
        values = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(75 * 2**20,))
        values[[0, 2**24, -3]] = 1

    delivered = deliver(write, tmp_path / "outputs")

    assert delivered.stat().st_blocks * 512 < 16 * 2**20
    assert np.flatnonzero(np.load(delivered, mmap_mode="r")).tolist() == [0, 2**24, 75 * 2**20 - 3]


def test_an_output_of_zeros_is_complete(tmp_path: Path) -> None:
    """The copy is complete if the last chunk is a hole."""
    delivered = deliver(lambda path: np.save(path, np.zeros(3 * 2**20, np.uint8)), tmp_path / "outputs")

    assert load_array(delivered).shape == (3 * 2**20,)
