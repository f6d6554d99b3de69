"""Make random changes to a repository, and check it after each change."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from tests.harness.repositories.checkout import commit, copy_tree
from tests.harness.repositories.user_repository import Repository, wait

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"
ROUNDS = (
    ("check", "--static", "--output", "json"),
    ("check", "--static", "--no-ignores", "--verbose"),
    ("check", "--static", "--against", "HEAD", "--output", "json"),
    ("lock", "--check", "--offline"),
    ("fix", "--dry-run", "--offline", "--rule", "path-leaked", "--rule", "external-data-escapes"),
)
SHARDS = 3
PROJECT = "fixtures/projects/broken"


@dataclass(slots=True)
class RandomWalk:
    """A repository, and random changes to it; `random` makes every choice."""

    repository: Repository
    random: random.Random
    kept: Path  # earlier contents

    @property
    def folder(self) -> Path:
        """Folder of the models."""
        return self.repository.folder / "models"

    def files(self) -> list[Path]:
        """Return the files in the folder of the models, without links."""
        return sorted(path for path in self.folder.iterdir() if path.is_file() and not path.is_symlink())

    def step(self) -> str:
        """Make a random change, and return its description."""
        change = self.random.choice(CHANGES)
        change(self)
        return change.__name__.strip("_")

    def any_file(self) -> Path:
        """Return a random file."""
        return self.random.choice(self.files())


def _become_another(walk: RandomWalk) -> None:
    file, other = walk.any_file(), walk.any_file()
    if file != other:
        shutil.copyfile(other, file)


def _swap(walk: RandomWalk) -> None:
    one, other = walk.any_file(), walk.any_file()
    held = one.with_name("held")
    one.rename(held)
    if other.exists():
        other.rename(one)
    held.rename(other)


def _change_one_byte(walk: RandomWalk) -> None:
    """Change a file but preserve its size and modification time, as some tools do."""
    file = walk.any_file()
    told, content = file.stat(), bytearray(file.read_bytes())
    if content:
        place = walk.random.randrange(len(content))
        content[place] ^= 1 << walk.random.randrange(8)
    file.write_bytes(content)
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))


def _cut(walk: RandomWalk) -> None:
    file = walk.any_file()
    content = file.read_bytes()
    file.write_bytes(content[: walk.random.randint(0, len(content))])


def _remove(walk: RandomWalk) -> None:
    file = walk.any_file()
    shutil.copyfile(file, walk.kept / file.name)
    if len(walk.files()) > 1:
        file.unlink()


def _come_back(walk: RandomWalk) -> None:
    if kept := sorted(walk.kept.iterdir()):
        file = walk.random.choice(kept)
        shutil.copyfile(file, walk.folder / file.name)


def _become_a_pointer(walk: RandomWalk) -> None:
    file = walk.any_file()
    shutil.copyfile(file, walk.kept / file.name)
    digest = walk.random.choice(["0" * 64, "7" * 64])
    file.write_text(POINTER.format(digest, walk.random.choice([0, 5, 2**40])), encoding="utf-8")


def _be_touched(walk: RandomWalk) -> None:
    os.utime(walk.any_file(), ns=(walk.random.randrange(2**60), walk.random.randrange(2**60)))


def _rewrite(walk: RandomWalk) -> None:
    file = walk.any_file()
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)


def _be_linked(walk: RandomWalk) -> None:
    file = walk.any_file()
    target = walk.kept / f"target-{walk.random.randrange(3)}.onnx"
    shutil.copyfile(file, target)
    if len(walk.files()) > 1:
        file.unlink()
        file.symlink_to(target)


def _edit_a_model(walk: RandomWalk) -> None:
    file = walk.any_file()
    try:
        model = onnx.load(file, load_external_data=False)
    except Exception:  # noqa: BLE001 - the file is not a model and stays unchanged
        return
    match walk.random.randrange(4):
        case 0:
            model.ir_version = walk.random.choice([3, 8, 10, 13, 14])
        case 1 if model.opset_import:
            model.opset_import[0].version = walk.random.choice([6, 13, 17, 18, 23])
        case 2:
            model.doc_string = walk.random.choice(["", "/home/ada/net.py", "plain"])
        case 3 if model.graph.node:
            walk.random.choice(model.graph.node).name = "named"
        case _:
            pass
    file.write_bytes(model.SerializeToString(deterministic=True))


def _edit_the_config(walk: RandomWalk) -> None:
    name = "onnxgate.toml"
    lines = [line for line in walk.repository.read(name).splitlines() if not line.startswith("# walk")]
    text = "\n".join(lines).split("\n[rules]")[0].rstrip()
    rules = [
        ("path-leaked", "invalid-model", "missing-kernel", "ir-version-too-new", "model-changed")[index]
        for index in range(5)
        if walk.random.random() < 0.4
    ]
    settings = "\n".join(f'{rule} = "{walk.random.choice(["error", "warning", "note", "off"])}"' for rule in rules)
    ignore = '\n[[ignore]]\nrule = "lock-stale"\nreason = "walk"\n' if walk.random.random() < 0.5 else ""
    walk.repository.write(name, f"{text}\n\n[rules]\n{settings}\n{ignore}")


def _be_locked(walk: RandomWalk) -> None:
    comparable_output(
        walk.repository.with_environment(ONNXGATE_CACHE_DIR=walk.kept.parent / "another cache"), ("lock", "--offline")
    )


def _be_committed(walk: RandomWalk) -> None:
    commit(walk.repository.folder.parents[2])


CHANGES: tuple[Callable[[RandomWalk], None], ...] = (
    _become_another,
    _swap,
    _change_one_byte,
    _change_one_byte,
    _cut,
    _remove,
    _come_back,
    _come_back,
    _become_a_pointer,
    _be_touched,
    _rewrite,
    _be_linked,
    _edit_a_model,
    _edit_a_model,
    _edit_a_model,
    _edit_the_config,
    _be_locked,
    _be_committed,
)


def started(command: Repository, root: Path, scratch: Path, seed: int) -> RandomWalk:
    """Create a repository from `fixtures/projects/broken`, to which the changes are made."""
    folder = copy_tree(root / PROJECT, scratch / "repository" / PROJECT)
    repository = command.at(folder)
    repository.write(
        "onnxgate.toml", repository.read("onnxgate.toml").partition("\n[[model]]")[0]
    )  # any file may be removed
    commit(scratch / "repository")
    (scratch / "kept").mkdir()
    return RandomWalk(repository, random.Random(seed), scratch / "kept")


def comparable_output(repository: Repository, arguments: tuple[str, ...]) -> tuple[int, str, str]:
    """Return the exit status and the output, without the elapsed time and messages about the cache."""
    with repository.start(*arguments) as process:
        result = wait(process)
    out = re.sub(r" \([\d.]+ s\)$", "", result.out, flags=re.MULTILINE)
    about_cache = r"^(static results|damaged cache entry replaced): .*\n"
    return result.status, out, re.sub(about_cache, "", result.err, flags=re.MULTILINE)


def divided(repository: Repository, folder: Path) -> tuple[int, str, str]:
    """Run a check as shards, and return the merged report."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for index in range(1, SHARDS + 1):
        output = f"json={folder / f'{index}.json'}"
        comparable_output(repository, ("check", "--static", "--shard", f"{index}/{SHARDS}", "--output", output))
    return comparable_output(repository, ("merge", str(folder), "--output", "json"))
