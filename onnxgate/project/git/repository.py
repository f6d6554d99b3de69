"""The one way in which git is asked: whoever owns the checkout, whatever its settings name, and with no questions."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from onnxgate.model.reading.file_format import MAX_POINTER_BYTES, LfsPointer, parse_pointer

SAFE_OPTIONS = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
"""A checkout may belong to another user (containers), and its own settings may name programs to run."""
LOCAL_TIMEOUT_S = 120
FETCH_TIMEOUT_S = 1800
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""What a hook of git is given: of the repository that runs it, which need not be the one that is asked."""


def run_git(
    folder: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    stdout: object = subprocess.PIPE,
    offline: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """What git answers; where there is no git, status 127. `offline`: nothing is fetched on the way."""
    command = ["git", *SAFE_OPTIONS, *arguments]
    environment = _git_environment(offline)
    limit_s = LOCAL_TIMEOUT_S if offline else FETCH_TIMEOUT_S
    try:
        if not offline:  # it may wait for another machine, and must not do so when we are gone
            return _run_supervised(command, folder, stdin, stdout, environment)
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            command,
            cwd=folder,
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            env=environment,
            timeout=limit_s,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", f"git: {error.strerror}".encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", f"git: no answer within {limit_s} s".encode())


def _run_supervised(
    command: Sequence[str], folder: Path, stdin: bytes, stdout: object, environment: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    from onnxgate.core import subprocesses

    return subprocesses.run_supervised(
        command,
        input=stdin,
        environment=environment,
        folder=folder,
        timeout_s=FETCH_TIMEOUT_S,
        stdout=stdout,  # type: ignore[arg-type]
    )


def read_git_output(folder: Path, *arguments: str) -> str | None:
    """What git answers without asking anybody else; None where it fails, or there is none."""
    done = run_git(folder, arguments, offline=True)
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def read_git_line(folder: Path, arguments: Sequence[str]) -> str:
    """The one line that git answers; "" where it has no answer."""
    return (read_git_output(folder, *arguments) or "").strip()


def find_git_problem(folder: Path) -> str:
    """Why git says nothing of this repository at all; "" where it does."""
    done = run_git(folder, ["rev-parse", "--git-dir"], offline=True)
    return last_line(done.stderr) or f"exit status {done.returncode}" if done.returncode else ""


def is_tracked(root: Path, path: str) -> bool:
    """Whether git has a file of that name, committed or about to be."""
    return run_git(root, ["ls-files", "--error-unmatch", "-z", "--", f":(literal){path}"]).returncode == 0


def last_line(stderr: bytes) -> str:
    """What git said last, which is why it failed."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _git_environment(offline: bool) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    own |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return own | {"GIT_NO_LAZY_FETCH": "1"} if offline else own


COMMIT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""A commit by its full name: what may be taken from an event that somebody else wrote."""
_ANCESTOR_STEP = re.compile(r"\^(\d*)|~(\d*)")
_ANCESTOR_NAME = re.compile(r"(?P<base>.*?)(?P<steps>(?:\^\d*|~\d*)+)")
MAX_FETCHED_COMMITS = 50
"""No more commits than these are fetched one by one."""


def find_commit(root: Path, name: str) -> str:
    """The commit that git knows by a name; "" where there is none here."""
    found = read_git_line(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
    return found if has_commit(root, found) else ""


def has_commit(root: Path, commit: str) -> bool:
    """Whether a commit can be read."""
    return bool(commit) and run_git(root, ["cat-file", "-e", f"{commit}^{{commit}}"], offline=True).returncode == 0


def is_shallow(root: Path) -> bool:
    """Whether the history is cut off somewhere."""
    return read_git_line(root, ["rev-parse", "--is-shallow-repository"]) == "true"


def read_parents(root: Path, commit: str) -> tuple[str, ...]:
    """Those that a commit names, be they here or not: a shallow clone's own `HEAD^1` means nothing."""
    header = read_git_line(root, ["cat-file", "commit", commit]).partition("\n\n")[0]
    found = (line.partition(" ")[2] for line in header.splitlines() if line.startswith("parent "))
    return tuple(parent for parent in found if COMMIT_ID.fullmatch(parent))


def fetch_commit(root: Path, commit: str, *, offline: bool) -> str:
    """Why a commit cannot be had; "" where it is here, or was fetched.

    Only a clone that is shallow already is fetched into with a depth: it would cut off the history of another.
    """
    if has_commit(root, commit):
        return ""
    if offline:
        return "it is not here, and nothing may be fetched"
    remote = _choose_remote(root)
    if not remote:
        return "it is not here, and there is no remote to fetch it from"
    depth = ["--depth=1"] if is_shallow(root) else []
    quiet = ["-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "--quiet", "--no-tags"]
    done = run_git(root, [*quiet, "--no-recurse-submodules", "--no-write-fetch-head", *depth, remote, commit])
    if has_commit(root, commit):
        return ""
    return f"it is not here, and cannot be fetched from `{remote}`: {last_line(done.stderr)}"


def find_merge_base(root: Path, one: str, other: str) -> str:
    """The newest commit that both histories have; "" where none is here."""
    return read_git_line(root, ["merge-base", one, other]).partition("\n")[0]


def resolve_ancestor(root: Path, name: str, *, offline: bool) -> tuple[str, str]:
    """The commit that a name such as `HEAD^1` or `HEAD~2` means where a shallow clone ends before it; or why none."""
    match = _ANCESTOR_NAME.fullmatch(name)
    commit = find_commit(root, (match["base"] or "HEAD").replace("@", "HEAD") if match else "")
    if match is None or not commit:
        return "", ""
    numbers = _parent_numbers(match["steps"])
    if len(numbers) > MAX_FETCHED_COMMITS:
        return "", f"it lies more than {MAX_FETCHED_COMMITS} commits back, and is not here"
    for number in numbers:
        found = read_parents(root, commit)
        if number > len(found):
            return "", f"`{commit[:12]}` has {len(found)} parent{'s' if len(found) != 1 else ''}"
        commit = found[number - 1]
        if why := fetch_commit(root, commit, offline=offline):
            return "", f"it is `{commit[:12]}`: {why}"
    return commit, ""


def _parent_numbers(steps: str) -> list[int]:
    """Which parent each step goes to: `^2~2` is the second, its first, and that one's first."""
    numbers: list[int] = []
    for step in _ANCESTOR_STEP.finditer(steps):
        if step[1] is None:
            numbers += [1] * min(int(step[2] or 1), MAX_FETCHED_COMMITS + 1)
        elif step[1] != "0":  # itself
            numbers.append(int(step[1] or 1))
    return numbers


def _choose_remote(root: Path) -> str:
    names = read_git_line(root, ["remote"]).splitlines()
    return "origin" if "origin" in names else names[0] if len(names) == 1 else ""


_INDEX_ENTRY = re.compile(
    rb"H [0-7]+ (?P<blob>[0-9a-f]+) 0\t(?P<name>[^\0]*)\0"
    rb"  ctime: (?P<changed>[0-9]+:[0-9]+)\n  mtime: (?P<modified>[0-9]+:[0-9]+)\n"
    rb"  dev: [0-9]+\tino: (?P<number>[0-9]+)\n[^\n]*\n  size: (?P<size>[0-9]+)\t[^\n]*\n"
)
"""One file in git's index, and what it was when git looked. "H": it is compared with the file at all; "h" is assumed
unchanged, "S" is not looked at. Git itself leaves out the fractions of a second.

Source: `git ls-files --stage -v --debug -z` of git 2.39.5; what is written otherwise proves nothing.
"""
_LFS_EXTENSION_LINE = b"\next-"
"""A pointer of what extensions of LFS made of the file: its digest is that of their work, not of the file."""
_INDEX_MODULUS = 2**32
"""Numbers and sizes have 32 bits in the index."""


def find_lfs_contents(root: Path, files: Iterable[Path]) -> dict[Path, LfsPointer]:
    """
    What each file holds, by the pointer that is committed or staged for it; without those that git cannot prove.

    Proven is a file whose size, times and numbers are those that git wrote down when it made or hashed it, before it
    wrote its index; of which that has a Git LFS pointer; whose attributes name LFS as what turned one into the other.
    """
    names = {name: file for file in files if (name := _git_path(root, file))}
    if not names:
        return {}
    blobs = _find_unchanged(root, names)
    filtered = _select_lfs_files(root, sorted(blobs))
    pointers = _read_pointers(root, {name: blobs[name] for name in filtered})
    return {names[name]: pointer for name, pointer in pointers.items()}


def _git_path(root: Path, file: Path) -> str:
    """What git calls a file; "" for a link, and for what lies elsewhere."""
    real = Path(os.path.realpath(file))
    if file.is_symlink() or not real.is_relative_to(os.path.realpath(root)):
        return ""
    return real.relative_to(os.path.realpath(root)).as_posix()


def _literal_pathspecs(names: Iterable[str]) -> list[str]:
    return [f":(literal){name}" for name in names]


def _find_unchanged(root: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Name -> blob, of the files that are, to the fraction of a second, what they were when git looked."""
    done = run_git(root, ["ls-files", "--stage", "-v", "--debug", "-z", "--", *_literal_pathspecs(files)], offline=True)
    found = {}
    written_ns = _index_written_ns(root)
    for entry in _INDEX_ENTRY.finditer(done.stdout) if done.returncode == 0 else ():
        name = os.fsdecode(entry["name"])
        status = files[name].stat() if name in files else None
        if status is not None and _matches_index(entry, status) and status.st_mtime_ns < written_ns:
            found[name] = entry["blob"].decode()
    return found


def _index_written_ns(root: Path) -> int:
    """When git wrote its index: a file that was made at that tick of the clock, or later, may be another by now."""
    try:
        return (root / read_git_line(root, ["rev-parse", "--git-path", "index"])).stat().st_mtime_ns
    except OSError:
        return 0


def _matches_index(entry: re.Match[bytes], status: os.stat_result) -> bool:
    times = _parse_ns(entry["changed"]), _parse_ns(entry["modified"])
    numbers = int(entry["number"]), int(entry["size"])
    there = status.st_ino % _INDEX_MODULUS, status.st_size % _INDEX_MODULUS
    return times == (status.st_ctime_ns, status.st_mtime_ns) and numbers == there


def _parse_ns(time: bytes) -> int:
    seconds, _, fraction = time.partition(b":")
    return int(seconds) * 10**9 + int(fraction)


def _select_lfs_files(root: Path, names: list[str]) -> list[str]:
    """Those of which LFS makes the file."""
    if not names:
        return []
    stdin = b"\0".join(map(os.fsencode, names)) + b"\0"
    done = run_git(root, ["check-attr", "-z", "--stdin", "filter"], stdin=stdin, offline=True)
    words = os.fsdecode(done.stdout).split("\0")
    return [words[at] for at in range(0, len(words) - 2, 3) if words[at + 2] == "lfs"]


def _read_pointers(root: Path, blobs: dict[str, str]) -> dict[str, LfsPointer]:
    """Name -> pointer, of the blobs that are one."""
    if not blobs:
        return {}
    stdin = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    sizes = run_git(root, ["cat-file", "--batch-check=%(objecttype) %(objectsize)"], stdin=stdin, offline=True)
    told = sizes.stdout.decode("ascii", "replace").splitlines()
    found = {}
    for (name, blob), line in zip(blobs.items(), told, strict=False):
        kind, _, size = line.partition(" ")
        if kind == "blob" and size.isdigit() and int(size) < MAX_POINTER_BYTES:
            content = run_git(root, ["cat-file", "blob", blob], offline=True).stdout
            pointer = parse_pointer(content)
            if pointer is not None and _LFS_EXTENSION_LINE not in content:
                found[name] = pointer
    return found
