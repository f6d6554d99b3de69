"""A repository with twelve commits after the first, one per kind of change, and clones of it as CI creates them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from onnxgate.project.config.schema import Target
from onnxgate.project.lock.comparison import target_policy
from onnxgate.project.lock.lock_file import load_lock, write_lock
from onnxgate.project.lock.types import Lock, LockedTarget
from tests.conftest import ROOT
from tests.harness.models import make_external, parse, write
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.user_repository import Repository

REQUIREMENT = "onnxruntime>=1.17,<1.20"
CONFIG = f"""models = ["models/*.onnx"]

[targets.server]
runtime = "{REQUIREMENT}"
select = "newest"
"""
NET, OTHER, MOVED = "models/net.onnx", "models/other.onnx", "models/moved.onnx"
DATA = "net.bin"


@dataclass(frozen=True)
class Net:
    """Properties of the model that changes between commits."""

    inputs: str = "float[N, 4] x, int64[N] mask, float[N, 4] scale"
    fed: str = "x"
    outputs: str = "float[N, 4] y, float[N, 4] p"
    second: str = "p"
    head: str = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
    first: str = "Relu"
    metadata: tuple[str, ...] = ("labels", "license")
    external: bool = False
    weight: float = 4.0
    path: str = NET

    def write(self, folder: Path) -> None:
        """Write the model, and its external data if it has any."""
        graph = (
            f"g ({self.inputs}) => ({self.outputs}) <float[4] w = {{1, 2, 3, {self.weight}}}>"
            f" {{ a = {self.first} ({self.fed}) y = Add (a, w) {self.second} = Tanh (y) }}"
        )
        model = parse(graph, self.head)
        onnx.helper.set_model_props(model, dict.fromkeys(self.metadata, "words"))
        if self.external:
            data = make_external(model, DATA)
            (folder / "models" / DATA).write_bytes(data)
        write(folder / self.path, model)


@dataclass(frozen=True)
class Step:
    """One commit: its changes, and the expected findings as (level, rule)."""

    said: str
    net: Net
    findings: tuple[tuple[str, str], ...]


def _steps() -> tuple[Step, ...]:
    net = Net()
    steps = []

    def step(said: str, *findings: tuple[str, str], **changes: object) -> None:
        nonlocal net
        net = replace(net, **changes)  # type: ignore[arg-type]
        steps.append(Step(said, net, findings))

    step("input removed", ("error", "input-removed"), inputs="float[N, 4] x, int64[N] mask")
    step("input renamed", ("error", "input-renamed"), inputs="float[N, 4] image, int64[N] mask", fed="image")
    step("input retyped", ("error", "input-type-changed"), inputs="float[N, 4] image, int32[N] mask")
    step("axis made static", ("error", "input-shape-narrowed"), inputs="float[N, 4] image, int32[1] mask")
    step("output renamed", ("error", "output-renamed"), outputs="float[N, 4] y, float[N, 4] q", second="q")
    step("output removed", ("error", "output-removed"), outputs="float[N, 4] y")
    newer = '<ir_version: 8, opset_import: ["" : 21, "com.microsoft" : 1]>\n'
    step("newer opset", ("error", "minimum-runtime-raised"), head=newer)
    step("other domain", ("error", "domain-added"), ("note", "operators-changed"), first="com.microsoft.Gelu")
    step("data file", ("error", "data-file-added"), external=True)
    step("metadata lost", ("error", "metadata-removed"), metadata=("license",))
    step("weights", ("note", "weights-changed"), weight=4.5)
    step("file renamed", path=MOVED)
    return tuple(steps)


STEPS = _steps()


def make_history(repository: Repository, *, plain: Path | None = None) -> None:
    """Commit the initial state and the twelve steps, each with its lock, as branches `c0` to `c12`.

    With `plain`, the repository uses Git LFS, and its locks are those of this history, whose models are the same.
    """
    folder = repository.folder
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    if plain:
        git(folder, "lfs", "install", "--local")
        git(folder, "lfs", "track", "*.onnx", "*.bin")
    write(folder / OTHER)
    repository.write("onnxgate.toml", CONFIG)
    write_lock(small_lock(), folder / "onnxgate.lock")
    for index, net in enumerate([Net(), *(step.net for step in STEPS)]):
        (folder / NET).unlink(missing_ok=True)
        net.write(folder)
        if plain:
            repository.write("onnxgate.lock", git(plain, "show", f"c{index}:onnxgate.lock") + "\n")
        else:
            repository.run("lock", "--offline")
        commit(folder)
        git(folder, "branch", f"c{index}")


def small_lock() -> Lock:
    """Return a lock of one target, created without an index."""
    locked = load_lock(ROOT / "fixtures" / "projects" / "broken" / "onnxgate.lock")
    runtimes = locked.targets["server"].runtimes[-1:]
    policy = target_policy(Target(runtime=REQUIREMENT, select="newest"))
    target = LockedTarget(policy=policy, runtimes=runtimes)
    needed = {tuple(pin.split("==")) for runtime in runtimes for pin in runtime.packages}
    packages = tuple(package for package in locked.packages if (package.name, package.version) in needed)
    return Lock(targets={"server": target}, packages=packages)


def publish(folder: Path, origin: Path, *, lfs: bool) -> None:
    """Push the whole history to a bare repository, with its Git LFS content."""
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    git(folder, "remote", "add", "origin", origin.as_uri())
    if lfs:
        git(folder, "lfs", "push", "--all", "origin")
    git(folder, "push", "--quiet", "origin", "--all")


def clone(origin: Path, folder: Path, branch: str, depth: int, *, lfs: bool, smudged: bool) -> Path:
    """Clone the last commits of a branch as CI does; with `smudged`, Git LFS content of the last commit is fetched."""
    command = ["-c", "filter.lfs.smudge=cat", "-c", "filter.lfs.required=false", "clone", "--quiet", "--no-tags"]
    git(folder.parent, *command, f"--depth={depth}", f"--branch={branch}", origin.as_uri(), str(folder))
    if lfs:
        git(folder, "lfs", "install", "--local", *(() if smudged else ("--skip-smudge",)))
        if smudged:
            git(folder, "lfs", "pull")
    return folder


def forget(folder: Path) -> None:
    """Delete a clone to free disk space."""
    shutil.rmtree(folder)
