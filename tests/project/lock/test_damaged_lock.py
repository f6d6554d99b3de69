"""A lock is whole or refused: a missing line, row, table or digest is never read around."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from onnxgate.core.errors import LockError
from onnxgate.project.lock.comparison import policy_differences
from onnxgate.project.lock.lock_file import load_lock, load_lock_to_update, parse_lock, render_lock
from onnxgate.project.lock.types import Lock, LockedTarget, LockedToolchain
from tests.harness.locks import MODEL, package, project_of, runtime

FIXTURES = Path(__file__).parents[3] / "fixtures"
REAL_LOCKS = tuple(sorted([*FIXTURES.glob("locks/*.lock"), *FIXTURES.glob("projects/*/onnxgate.lock")]))
CONFIG = '[targets.server]\nruntime = "onnxruntime>=1.18,<1.20"\n'
LOCK = Lock(
    targets={"server": LockedTarget(policy="11" * 32, runtimes=(runtime("1.18.1", "1.26.4"), runtime("1.19.2")))},
    models={"a.onnx": MODEL, "b.onnx": MODEL},
    packages=tuple(
        package(*pin.split("=="))
        for pin in ("numpy==1.26.4", "numpy==2.4.6", "onnxruntime==1.18.1", "onnxruntime==1.19.2")
    ),
)


def damages(text: str) -> tuple[str, ...]:
    """Return the damages of a lock; empty if it is whole."""
    try:
        parse_lock(text, "onnxgate.lock")
    except LockError as error:
        return error.problems or (error.message,)
    return ()


@pytest.mark.parametrize("path", REAL_LOCKS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_each_deleted_line_is_refused(path: Path) -> None:
    """Only comments and blank lines can be deleted; without any other line the lock is damaged."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    accepted = [line for at, line in enumerate(lines) if not damages("".join(lines[:at] + lines[at + 1 :]))]

    assert damages("".join(lines)) == ()
    assert {line for line in accepted if line.strip() and not line.startswith("#")} == set()


@pytest.mark.parametrize("path", REAL_LOCKS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_each_truncated_lock_is_refused(path: Path) -> None:
    """A lock that ends at an earlier line is damaged."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    accepted = [at for at in range(len(lines)) if not damages("".join(lines[:at]))]

    assert [at for at in accepted if any(line.strip() for line in lines[at:])] == []


def test_lock_without_targets_is_stale(tmp_path: Path) -> None:
    """A lock that was written without targets is whole; each target of the config is missing."""
    project = project_of(tmp_path, CONFIG)

    assert policy_differences(project.config, parse_lock(render_lock(Lock()), "")) == ("target `server` is not locked",)


@pytest.mark.parametrize("kind", ["targets", "toolchain", "models"])
def test_missing_tables(kind: str) -> None:
    """If all tables of one kind are deleted, the lock is damaged; those of packages are missed by their runtimes."""
    toolchain = LockedToolchain(policy="33" * 32, python="3.11", packages={"torch": "2.13.0"})
    text = render_lock(msgspec.structs.replace(LOCK, toolchain=toolchain))
    tables = text.split("\n\n")
    left = [table for table in tables if not table.startswith(f"[{kind}")]

    assert f"the table `{kind}` is missing" in damages("\n\n".join(left))[0]


def _without(*parts: str) -> Callable[[str], Iterator[str]]:
    def edit(text: str) -> Iterator[str]:
        yield from (line for line in text.splitlines(keepends=True) if not any(part in line for part in parts))

    return edit


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (_without('1.18.1", python'), "target `server` does not match `resolved`"),
        (_without('1.18.1", python', "resolved"), "target `server`: `resolved` is missing"),
        (_without("policy"), "object missing required field `policy`"),
        (_without("revision"), "`revision` is missing"),
        (_without("producer"), "model `a.onnx` does not match `digest`"),
        (_without(".operators]", "Conv", "Gelu"), "model `a.onnx` does not match `digest`"),
        (_without(".tolerance]", "noise"), "model `a.onnx` does not match `digest`"),
        (_without("numpy-1.26.4"), "package `numpy==1.26.4` does not match `digest`"),
        (_without("[targets.server]"), "the table `targets` is missing"),
    ],
)
def test_deleted_lines(edit: Callable[[str], Iterator[str]], expected: str) -> None:
    """The message names the damaged table. Deleting a row together with `resolved` does not help."""
    assert expected in damages("".join(edit(render_lock(LOCK))))[0]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ("", "`tables` is missing"),
        ("tables = 1\n", "`tables` is missing"),
        ('tables = [["targets"]]\n', "the table `['targets']` is missing"),
        ("tables = []\nnews = 1\n", "unknown key `news`"),
    ],
)
def test_list_of_tables(tables: str, expected: str) -> None:
    """The list of tables is compulsory, and no other key is allowed."""
    assert expected in damages(f"version = 1\nrevision = 0\n{tables}")[0]


def test_missing_package() -> None:
    """A package that a runtime pins must be locked."""
    text = render_lock(msgspec.structs.replace(LOCK, packages=LOCK.packages[1:]))

    (damage,) = damages(text)
    assert damage.endswith(
        "target `server` needs `numpy==1.26.4` for Python 3.11, but the lock lists no wheels for this package"
    )


def test_changed_digest() -> None:
    """A digest that was changed itself is damage, and so is a policy that does not belong to the rows."""
    text = render_lock(LOCK)
    line = next(line for line in text.splitlines() if line.startswith("resolved"))

    assert damages(text.replace(line, line[:-2] + ('0"' if line[-2] != "0" else '1"')))
    assert damages(text.replace("11" * 32, "22" * 32))


def test_layout_does_not_matter() -> None:
    """Comments, blank lines and another layout are not damage, because digests are about values."""
    text = render_lock(LOCK).replace("runtimes = [\n  ", "runtimes = [ # all\n\n    ")

    assert damages(text) == ()


def test_merge_of_two_new_models() -> None:
    """Branches that each add a model can be merged: each table has its own digest."""
    both = render_lock(LOCK)
    first, second = (render_lock(msgspec.structs.replace(LOCK, models={path: MODEL})) for path in ("a.onnx", "b.onnx"))
    start = first.index("[[packages]]")
    added = second[second.index('[models."b.onnx"]') : second.index("[[packages]]")]

    assert first[:start] + added + first[start:] == both
    assert parse_lock(both, "").models == LOCK.models


def test_changed_config_is_stale(tmp_path: Path) -> None:
    """A lock of another config is whole: it is stale, not damaged."""
    project = project_of(tmp_path, CONFIG)

    assert policy_differences(project.config, parse_lock(render_lock(LOCK), "")) == (
        "`runtime` of target `server` changed since the lock was written",
    )


def test_repair(tmp_path: Path) -> None:
    """For `onnxgate lock`, damaged tables are removed, and a damaged target keeps its runtimes without their policy."""
    path = tmp_path / "onnxgate.lock"
    text = "".join(_without('1.18.1", python', "numpy-1.26.4")(render_lock(LOCK)))
    path.write_text(text.replace('producer = "pytorch', 'producer = "other', 1))

    lock, found = load_lock_to_update(path, repair=True)

    assert [damage.partition(":")[0] for damage in found] == [
        "target `server` does not match `resolved`",
        "model `a.onnx` does not match `digest`",
        "package `numpy==1.26.4` does not match `digest`",
    ]
    assert lock.targets == {"server": LockedTarget(policy="", runtimes=LOCK.targets["server"].runtimes[1:])}
    assert list(lock.models) == ["b.onnx"]
    assert lock.packages == LOCK.packages[1:]


def test_hint_without_git(tmp_path: Path) -> None:
    """Without a committed lock to restore, `onnxgate lock` repairs the damage."""
    path = tmp_path / "onnxgate.lock"
    path.write_text("".join(_without("resolved")(render_lock(LOCK))))

    for load in (load_lock, lambda path: load_lock_to_update(path, repair=False)):
        with pytest.raises(LockError) as caught:
            load(path)
        assert caught.value.hint == "run `onnxgate lock`"
