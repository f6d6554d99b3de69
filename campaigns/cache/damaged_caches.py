"""Damage a warm cache in many ways: the next check must report the same as a check without a cache."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxgate.cli import main
from onnxgate.core.cache_entries import add_checksum, verify_checksum
from onnxgate.gate import outcome_cache, static_cache
from onnxgate.support import limits, operators
from tests.conftest import ROOT
from tests.harness.models import make_external, parse, write
from tests.harness.repositories.checkout import NOBODY, commit

CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime>=1.18,<1.20"

[[model]]
path = "models/**"
sizes = { N = [1, 3] }
"""
MODES: dict[str, tuple[str, ...]] = {
    "static": ("check", "--static", "--output", "json", "-v"),
    "against": ("check", "--static", "--against", "HEAD", "--output", "json", "-v"),
    "full": ("check", "--output", "json", "-v"),
}
PATIENCE_S = 120
HUGE_BYTES = 3 * 2**30
REPEATED_EVERY = 5
"""After every fifth damage, a second check follows, which must not find anything that the first one left."""
_ABOUT_CACHE = re.compile(
    r"^(static results: |damaged cache entry replaced: |environments: |\S+ \S+: environment |command: uv "
    r"| +\"reused\": ).*\n",
    re.MULTILINE,
)
"""Lines about the cache, about the runs that it saved, and about an environment that the first check creates."""


class Answer(NamedTuple):
    """Exit status, report and messages of a check, without messages about the cache."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Ground:
    """A project with models that pass, fail and are undecided, and the cache of a check."""

    folder: Path
    environments: Path

    @property
    def project(self) -> Path:
        """The project to check."""
        return self.folder / "project"

    @property
    def cache(self) -> Path:
        """The cache that is damaged."""
        return self.folder / "cache"

    @property
    def snapshot(self) -> Path:
        """The cache before the damage."""
        return self.folder / "snapshot"

    def lay(self) -> Ground:
        """Create the project, in which one model differs from the last commit and another is a Git LFS pointer."""
        _load_once()
        models = self.project / "models"
        write(models / "passing.onnx")
        write(models / "changed.onnx")
        write(models / "failing.onnx", parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }", _NEWER))
        write(models / "refused.onnx", "g (float[N, 4] x) => (float[7] y) <int64[1] s = {7}> { y = Reshape(x, s) }")
        write(models / "undecided.onnx")
        _write_large(models / "large.onnx")
        (self.project / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
        shutil.copy(ROOT / "fixtures" / "projects" / "broken" / "onnxgate.lock", self.project)
        commit(self.project)
        locked = self.check(("lock", "--offline"), self.folder / "other")
        assert locked.status == 0, locked
        commit(self.project)
        write(models / "changed.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }")
        content = (models / "undecided.onnx").read_bytes()
        (models / "undecided.onnx").write_text(_POINTER.format("7" * 64, len(content)), encoding="utf-8")
        hour_ago = time.time() - 3600
        os.utime(models / "large.bin", (hour_ago, hour_ago))
        time.sleep(2.5)  # digests of newer files are not cached
        return self

    def check(self, arguments: Sequence[str], cache: Path) -> Answer:
        """Run the command in a child process with this cache."""
        cache.mkdir(exist_ok=True)
        if not os.path.lexists(cache / "environments"):
            (cache / "environments").symlink_to(self.environments)
        out, err = self.folder / "out", self.folder / "err"
        child = os.fork()
        if child == 0:
            _run_command(arguments, self.project, cache, out, err)
        status = _wait(child)
        printed = (_ABOUT_CACHE.sub("", file.read_text(encoding="utf-8", errors="replace")) for file in (out, err))
        return Answer(status, *printed)

    def warm(self, arguments: Sequence[str]) -> Answer:
        """Fill the cache, and save it; return the answer of the check that filled it."""
        for folder in (self.cache, self.snapshot):
            shutil.rmtree(folder, ignore_errors=True)
        answer = self.check(arguments, self.cache)
        shutil.copytree(self.cache, self.snapshot, symlinks=True)
        return answer

    def restore(self) -> None:
        """Restore the cache before the damage."""
        shutil.rmtree(self.cache)
        shutil.copytree(self.snapshot, self.cache, symlinks=True)

    def files(self) -> list[Path]:
        """Return the files of the cache, except locks and environments."""
        return sorted(path for path in self.cache.rglob("*") if path.is_file() and not path.is_symlink())


def _load_once() -> None:
    """Import what each check imports, and compute what is equal in all checks, before the checks are forked."""
    for name in _LOADED_MODULES:
        import_module(name)
    operators.load_shipped_table()
    limits.load_limit_table()
    outcome_cache.digest_program()
    static_cache.digest_static_key("")


_LOADED_MODULES = tuple(
    f"onnxgate.{name}"
    for name in (
        "cli.check",
        "cli.shared.project_check",
        "gate.sharding.plan",
        "runtimes.pool",
        "gate.execution.executor",
    )
)
_NEWER = '<ir_version: 8, opset_import: ["" : 23]>\n'
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def _write_large(path: Path) -> None:
    """Write a model with so much external data that its digest is cached."""
    weights = numpy_helper.from_array(np.ones((4, 100_000), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size]) for name, size in _LARGE_VALUES)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    path.with_suffix(".bin").write_bytes(make_external(model, "large.bin"))
    path.write_bytes(model.SerializeToString(deterministic=True))


_LARGE_VALUES = (("x", 4), ("y", 100_000))


def _run_command(arguments: Sequence[str], project: Path, cache: Path, out: Path, err: Path) -> None:
    """Run the command in this process, which ends with its status."""
    status = 99
    try:
        atexit._clear()  # not the folders of the campaign
        os.setsid()
        os.chdir(project)
        for path, descriptor in ((out, 1), (err, 2)):
            opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(opened, descriptor)
        variables = {name for name in os.environ if name.startswith(("GITHUB_", "ONNXGATE_"))} | {"CI"}
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({**NOBODY, "ONNXGATE_CACHE_DIR": str(cache), "NO_COLOR": "1"})
        main(list(arguments))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 98
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            atexit._run_exitfuncs()
        os._exit(status)


def _wait(child: int) -> int:
    """Return the exit status of a child, which is killed if it hangs."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


# Damages


class Record(NamedTuple):
    """One cache entry: its file, its key, and its codec; `name` is its name in a file of many entries."""

    file: Path
    key: str
    codec: ModuleType
    name: str = ""

    def read(self) -> bytes:
        """Return the entry with its checksum."""
        content = self.file.read_bytes()
        entry: bytes = msgspec.msgpack.decode(content)[self.name] if self.name else content
        return entry

    def write(self, entry: bytes) -> None:
        """Replace the entry."""
        if self.name:
            entry = msgspec.msgpack.encode({**msgspec.msgpack.decode(self.file.read_bytes()), self.name: entry})
        self.file.write_bytes(entry)

    def value(self) -> Any:
        """Return the decoded content of the entry."""
        return self.codec.decode(verify_checksum(self.key, self.read()) or b"")


def list_records(files: Sequence[Path]) -> list[Record]:
    """Return the entries in these files."""
    records = []
    for file in files:
        if file.suffix == ".msgpack" and file.parent.name == "static":
            names = msgspec.msgpack.decode(file.read_bytes())
            records += [Record(file, name, msgspec.msgpack, name) for name in names]
        elif file.name == "outcome.msgpack":
            records.append(Record(file, file.parent.name, msgspec.msgpack))
        elif file.name == "entry.json":
            records.append(Record(file, file.parent.name, msgspec.json))
        elif file.name == "digests.json" or file.parent.name == "costs":
            records.append(Record(file, file.name, msgspec.json))
    return records


def _flip_bit(file: Path, random: Random, _: Sequence[Path]) -> None:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def _change_bytes(file: Path, random: Random, _: Sequence[Path]) -> None:
    content = bytearray(file.read_bytes())
    at = random.randrange(len(content))
    content[at : at + random.randint(1, 8)] = random.randbytes(random.randint(0, 8))
    file.write_bytes(content)


def _truncate(file: Path, random: Random, _: Sequence[Path]) -> None:
    os.truncate(file, random.randrange(file.stat().st_size))


def _empty(file: Path, _: Random, __: Sequence[Path]) -> None:
    os.truncate(file, 0)


def _append(file: Path, random: Random, _: Sequence[Path]) -> None:
    file.write_bytes(file.read_bytes() + random.choice([b"\0", b"\n", b" ", random.randbytes(9), file.read_bytes()]))


def _remove(file: Path, _: Random, __: Sequence[Path]) -> None:
    file.unlink()


def _swap_files(file: Path, random: Random, files: Sequence[Path]) -> None:
    other = random.choice([it for it in files if it.name == file.name or it.suffix == file.suffix])
    content = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _swap_folders(file: Path, random: Random, files: Sequence[Path]) -> None:
    folders = sorted({it.parent for it in files if it.parent.parent.name == "results"})
    if len(folders) < 2:
        return _swap_files(file, random, files)
    first, second = random.sample(folders, 2)
    spare = first.with_name("spare")
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    return None


def _become_folder(file: Path, random: Random, _: Sequence[Path]) -> None:
    file.unlink()
    file.mkdir()
    if random.random() < 0.5:
        (file / "file").touch()


def _become_link(file: Path, random: Random, files: Sequence[Path]) -> None:
    file.unlink()
    file.symlink_to(random.choice([*(it for it in files if it != file), Path("/nowhere"), file, Path("/dev/zero")]))


def _become_pipe(file: Path, _: Random, __: Sequence[Path]) -> None:
    file.unlink()
    os.mkfifo(file)


def _become_huge(file: Path, _: Random, __: Sequence[Path]) -> None:
    os.truncate(file, HUGE_BYTES)


def _deny(file: Path, random: Random, _: Sequence[Path]) -> None:
    random.choice([file, file.parent]).chmod(0)


FILE_DAMAGES: tuple[Callable[[Path, Random, Sequence[Path]], None], ...] = (
    *(_flip_bit, _flip_bit, _flip_bit, _change_bytes, _change_bytes, _truncate, _empty, _append, _remove),
    *(_swap_files, _swap_folders, _become_folder, _become_link, _become_pipe, _become_huge, _deny),
)


def _swap_entries(record: Record, random: Random, records: Sequence[Record]) -> None:
    """Store the content of another entry under this name."""
    record.write(random.choice([it for it in records if it.codec is record.codec]).read())


def _keep_checksum(record: Record, random: Random, _: Sequence[Record]) -> None:
    """Change a value within the content, which stays decodable, but not the checksum."""
    value = record.value()
    changed = _change_leaf(value, random)
    old = record.read()
    record.write(old[: old.index(b"\n") + 1] + record.codec.encode(changed))


def _drop_checksum(record: Record, random: Random, _: Sequence[Record]) -> None:
    """Write an entry as an older version did, without a checksum, and with a changed value."""
    record.write(record.codec.encode(_change_leaf(record.value(), random)))


def _drop_field(record: Record, random: Random, _: Sequence[Record]) -> None:
    value = record.value()
    struct = random.choice(_structs(value, record))
    struct.pop(random.choice(sorted(struct)))
    record.write(add_checksum(record.key, record.codec.encode(value)))


def _add_field(record: Record, random: Random, _: Sequence[Record]) -> None:
    value = record.value()
    random.choice(_structs(value, record))["unknown"] = random.choice([0, "text", None, []])
    record.write(add_checksum(record.key, record.codec.encode(value)))


def _change_type(record: Record, random: Random, _: Sequence[Record]) -> None:
    value = record.value()
    struct = random.choice(_structs(value, record))
    struct[random.choice(sorted(struct))] = {"unexpected": [1, {"x": "y"}]}
    record.write(add_checksum(record.key, record.codec.encode(value)))


ENTRY_DAMAGES: tuple[Callable[[Record, Random, Sequence[Record]], None], ...] = (
    *(_swap_entries, _swap_entries, _keep_checksum, _keep_checksum, _keep_checksum, _drop_checksum),
    *(_drop_field, _add_field, _change_type),
)
_STRUCT_FIELDS = ("outcome", "facts", "result")


def _structs(value: Any, record: Record) -> list[dict[str, Any]]:
    """Return the records with fixed fields in a value; a value of another kind gets one."""
    if not isinstance(value, dict) or record.file.name == "digests.json" or record.file.parent.name == "costs":
        return [{"field": 1}]
    inner = [value[name] for name in _STRUCT_FIELDS if isinstance(value.get(name), dict)]
    return [value, *(it for it in inner if it)]


def _change_leaf(value: Any, random: Random) -> Any:
    """Return a value with one leaf changed to another value of the same type, or with one item removed."""
    match value:
        case dict() if value:
            key = random.choice(sorted(value))
            changed = {key: _change_leaf(value[key], random)}
            return {**value, **changed} if random.random() < 0.9 else {k: v for k, v in value.items() if k != key}
        case list() if value:
            at = random.randrange(len(value))
            changed_item = [_change_leaf(value[at], random)] if random.random() < 0.8 else []
            return [*value[:at], *changed_item, *value[at + 1 :]]
        case bool():
            return not value
        case int() | float():
            return value + random.choice([-1, 1])
        case str():
            return random.choice(["", f"{value}x", "error", "off"])
        case None:
            return random.choice([None, 0, "x"])
        case _:
            return value


def damage(files: Sequence[Path], random: Random) -> str:
    """Damage files or an entry; return a description."""
    records = list_records(files)
    if records and random.random() < 0.5:
        method, record = random.choice(ENTRY_DAMAGES), random.choice(records)
        method(record, random, records)
        return f"{method.__name__.strip('_')} in {record.file.parent.name}/{record.file.name} {record.name}"
    change = random.choice(FILE_DAMAGES)
    file = random.choice([it for it in files if it.stat().st_size])
    change(file, random, files)
    return f"{change.__name__.strip('_')} {file.parent.name}/{file.name}"


def find_changed_answers(ground: Ground, counts: dict[str, int], random: Random, tally: Counter[str]) -> Iterator[str]:
    """Damage the cache so often before a check in each mode; yield differences from the check without a cache."""
    for mode, count in counts.items():
        if not count:
            continue
        arguments = MODES[mode]
        cold = ground.warm(arguments)
        tally[f"{mode}: exit {cold.status} without a cache"] += 1
        ground.restore()
        if (warm := ground.check(arguments, ground.cache)) != cold:
            yield f"{mode}: an intact cache changes the answer\n{_compare(cold, warm)}"
            return
        for number in range(count):
            ground.restore()
            done = damage(ground.files(), random)
            tally[f"{mode}: {done.split()[0]}"] += 1
            for check in range(2 if number % REPEATED_EVERY == 0 else 1):
                answer = ground.check(arguments, ground.cache)
                if answer != cold:
                    lost = cold.status == 1 != answer.status
                    tally["lost errors" if lost else "changed answers"] += 1
                    yield f"{mode} {number}.{check}: {done}\n{_compare(cold, answer)}"
            _allow(ground.cache)


def _compare(cold: Answer, other: Answer) -> str:
    lines = [f"  exit {cold.status} -> {other.status}"]
    for before, after in ((cold.out, other.out), (cold.err, other.err)):
        removed = sorted(set(before.splitlines()) - set(after.splitlines()))[:4]
        added = sorted(set(after.splitlines()) - set(before.splitlines()))[:4]
        lines += [*(f"  - {it[:200]}" for it in removed), *(f"  + {it[:200]}" for it in added)]
    return "\n".join(lines)


def _allow(cache: Path) -> None:
    """Restore permissions, so that the cache can be removed."""
    for path in cache.rglob("*"):
        if not path.is_symlink() and not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
            path.chmod(0o700)
