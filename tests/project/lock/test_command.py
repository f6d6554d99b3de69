"""The installed `onnxgate lock` command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.parser
import pytest

from .conftest import LocalIndex, use_index

RELU = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }'
CONFIG = 'models = ["*.onnx"]\n[targets.server]\nruntime = "onnxruntime>=1.18,<1.20"\n'


@dataclass
class Checkout:
    """A project with two models, and the installed command."""

    program: Path
    folder: Path

    def write(self, name: str, text: str) -> None:
        """Write ONNX text as a model."""
        (self.folder / name).write_bytes(onnx.parser.parse_model(text).SerializeToString(deterministic=True))

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run `onnxgate lock` and return its output."""
        command = [str(self.program), "lock", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def lock(self) -> Path:
        """Return the lock's path."""
        return self.folder / "onnxgate.lock"


@pytest.fixture
def checkout(installed: Path, tmp_path: Path, local_index: LocalIndex) -> Checkout:
    """Create a project without a lock, and an index with the releases that it requires."""
    for version in ("1.18.1", "1.19.2"):
        local_index.add("onnxruntime", version, ("3.11",))
    for version in ("1.26.4", "2.4.0"):
        local_index.add("numpy", version, ("3.11",))
    made = Checkout(installed, tmp_path / "checkout")
    (made.folder / ".git").mkdir(parents=True)
    (made.folder / "onnxgate.toml").write_text(CONFIG)
    made.write("a.onnx", RELU)
    made.write("b.onnx", RELU)
    return made


@pytest.fixture(scope="module")
def first_lock() -> dict[str, bytes]:
    """Return the cache of the first lock for the tests in this file."""
    return {}


@pytest.fixture
def locked(checkout: Checkout, first_lock: dict[str, bytes]) -> Checkout:
    """Return the project after its first lock; the lock is resolved only once."""
    if not first_lock:
        checkout.run()
        first_lock["bytes"] = checkout.lock.read_bytes()
    checkout.lock.write_bytes(first_lock["bytes"])
    return checkout


def test_lock(checkout: Checkout) -> None:
    """The first lock is written, the second one is identical, and `--check` accepts it."""
    first = checkout.run()
    data = checkout.lock.read_bytes()

    assert first.splitlines() == [
        "added target `server`: onnxruntime 1.18.1, 1.19.2",
        "added `a.onnx`",
        "added `b.onnx`",
        "wrote `onnxgate.lock`: 2 models, 2 runtimes",
    ]
    assert checkout.run() == "`onnxgate.lock` is up to date: 2 models, 2 runtimes\n"
    assert checkout.run("--check") == "`onnxgate.lock` is up to date: 2 models, 2 runtimes\n"
    assert checkout.lock.read_bytes() == data


def test_offline(locked: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Models can be relocked and checked without an index; a new target without an index ends with status 3."""
    use_index(monkeypatch, "http://127.0.0.1:9/simple", tmp_path_factory.mktemp("cache"))
    locked.write("a.onnx", RELU.replace("17", "16"))

    stale = locked.run("--check", status=1)
    updated = locked.run()
    (locked.folder / "onnxgate.toml").write_text(CONFIG.replace("<1.20", "<1.21"))
    unreachable = locked.run(status=3)

    assert stale.splitlines() == [
        "`a.onnx` has changed since it was locked: imports opset 16 of `ai.onnx` instead of 17",
        "`onnxgate.lock` is not up to date: 1 difference; run `onnxgate lock`",
    ]
    assert updated.startswith("updated `a.onnx`: imports opset 16 of `ai.onnx` instead of 17\n")
    assert "error: cannot query the package index: Failed to fetch" in unreachable


def test_linked_lock(locked: Checkout, tmp_path: Path) -> None:
    """A lock that is a link is written where the link leads, unless that is outside the repository."""
    locked.write("c.onnx", RELU)
    shared, outside = locked.folder / "shared.lock", tmp_path / "outside.lock"
    locked.lock.rename(shared)
    outside.write_bytes(shared.read_bytes())
    locked.lock.symlink_to(shared)
    locked.run()
    locked.lock.unlink()
    locked.lock.symlink_to(outside)
    printed = locked.run(status=2)

    leads = f"the link `onnxgate.lock` leads to `{outside}`, which is outside the repository"
    assert f"`onnxgate.lock` cannot be written: {leads}" in printed
    assert (True, False) == (b"c.onnx" in shared.read_bytes(), b"c.onnx" in outside.read_bytes())


def test_check_writes_nothing(locked: Checkout) -> None:
    """`--check` reports everything that is stale and does not change the lock."""
    data = locked.lock.read_bytes()
    (locked.folder / "onnxgate.toml").write_text(CONFIG + "[targets.edge]\nruntime = 'onnxruntime'\n")
    locked.write("c.onnx", RELU)
    (locked.folder / "b.onnx").unlink()
    (locked.folder / "a.onnx").write_bytes(b"")

    result = locked.run("--check", status=1).splitlines()

    assert result == [
        "target `edge` is not locked",
        "`b.onnx` is locked but no longer in the project",
        "`c.onnx` is not locked",
        "`a.onnx` could not be compared: it is an empty file",
        "`onnxgate.lock` is not up to date: 4 differences; run `onnxgate lock`",
    ]
    assert locked.lock.read_bytes() == data


def test_paths(locked: Checkout) -> None:
    """Only the entries of the given paths are rewritten; the entry of a deleted model is removed."""
    locked.write("a.onnx", RELU.replace("17", "16"))
    locked.write("b.onnx", RELU.replace("17", "16"))

    assert locked.run("b.onnx").startswith("updated `b.onnx`: imports opset 16")
    assert locked.run("--check", status=1).startswith("`a.onnx` has changed since it was locked")
    (locked.folder / "b.onnx").unlink()
    assert locked.run("b.onnx").startswith("removed `b.onnx`\n")
    assert "`b.onnx` does not exist" in locked.run("b.onnx", status=2)


def test_model_that_left_the_project(locked: Checkout) -> None:
    """The entry of a model that is now excluded is removed by its path, even if other models cannot be locked."""
    (locked.folder / "onnxgate.toml").write_text(f'exclude = ["b.onnx"]\n{CONFIG}')
    (locked.folder / "a.onnx").write_bytes(b"")

    assert "cannot be locked" in locked.run(status=2)
    assert locked.run("b.onnx").startswith("removed `b.onnx`\n")
    assert "`b.onnx`" not in locked.run("--check", status=1)


def test_upgrade(
    locked: Checkout,
    local_index: LocalIndex,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """`--upgrade` re-resolves only the pins that it names."""
    local_index.add("onnxruntime", "1.18.2", ("3.11",))
    local_index.add("onnxruntime", "1.19.3", ("3.11",))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))

    one = locked.run("--upgrade", "onnxruntime=1.18.2").splitlines()
    every = locked.run("--upgrade").splitlines()

    assert one == [
        "updated target `server`: added onnxruntime 1.18.2; removed onnxruntime 1.18.1",
        "wrote `onnxgate.lock`: 2 models, 2 runtimes (1 unchanged)",
    ]
    assert every[0] == "updated target `server`: added onnxruntime 1.19.3; removed onnxruntime 1.19.2"
    assert "cannot be combined" in locked.run("a.onnx", "--upgrade", "numpy", status=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--check",), "error: `onnxgate.lock` does not exist\nhint: run `onnxgate lock`\n"),
        (("a.onnx",), "hint: run `onnxgate lock` without paths\n"),
        (("nowhere.onnx",), "error: `nowhere.onnx` does not exist\n"),
    ],
)
def test_never_locked(checkout: Checkout, arguments: tuple[str, ...], expected: str) -> None:
    """Commands that need a lock report that it does not exist."""

    assert expected in checkout.run(*arguments, status=2)


def test_no_config(checkout: Checkout) -> None:
    """`onnxgate lock` without a config is an error."""
    (checkout.folder / "onnxgate.toml").unlink()

    assert "error: there is no `onnxgate.toml` in this folder or its parents" in checkout.run(status=2)


def test_names_that_command(checkout: Checkout) -> None:
    """Escape sequences and workflow commands in a file name are printed in escaped form."""
    checkout.write("::error::x\x1b[31m.onnx", RELU)

    result = checkout.run()

    assert "\x1b" not in result
    assert not any(line.lstrip().startswith("::") for line in result.splitlines())


def test_a_toolchain_that_is_not_installed(locked: Checkout) -> None:
    """The lock is not reported as up to date, because `lock --check` would ask to run the command again."""
    (locked.folder / "onnxgate.toml").write_text(CONFIG + '[toolchain]\nrequires = ["torch==1.0.1"]\n')
    printed = locked.run(status=3)

    assert "`onnxgate.lock` is unchanged: 2 models, 2 runtimes\n" in printed
    assert (
        "error: `onnxgate.lock` is not complete: the toolchain is not locked; the config requires `torch==1.0.1`\n"
        "hint: activate the environment"
    ) in printed
    assert "the toolchain is not locked; the config requires `torch==1.0.1`\n" in locked.run("--check", status=1)
