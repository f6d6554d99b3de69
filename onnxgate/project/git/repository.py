"""Run git without prompts and dangerous settings, regardless of who owns the checkout."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from onnxgate.core.subprocesses import finish_program, start_program
from onnxgate.core.text import pluralize
from onnxgate.model.reading.file_format import MAX_POINTER_BYTES, LfsPointer, parse_pointer

SAFE_OPTIONS = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
"""A checkout may belong to another user (in containers), and its settings may name programs to run."""
NO_BARE_REPOSITORY = ("-c", "safe.bareRepository=explicit")
"""Outside a work tree, git does not use a folder that looks like a bare repository. Source: git 2.38, `safe.adoc`."""
LOCAL_TIMEOUT_S = 120
FETCH_TIMEOUT_S = 1800
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""Environment variables that git sets for hooks. They refer to the hook's repository, which may be a different one."""


def run_git(
    folder: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    stdout: int | IO[bytes] = subprocess.PIPE,
    offline: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run git and return the result, with status 127 if git is not installed. `offline`: git does not fetch objects."""
    command = ["git", *SAFE_OPTIONS, *NO_BARE_REPOSITORY, *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    resolved = folder.resolve()
    if root := next((it for it in (resolved, *resolved.parents) if _is_repository(it / ".git")), None):
        # Git itself would prefer committed files in a folder below that look like a bare repository, with its settings.
        environment |= {"GIT_DIR": str(root / ".git"), "GIT_WORK_TREE": str(root)}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    environment |= {"GIT_NO_LAZY_FETCH": "1"} if offline else {}
    limit_s = LOCAL_TIMEOUT_S if offline else FETCH_TIMEOUT_S
    # A git process that fetches may wait for the network, and must end with this process.
    bound: Literal["guard", "nothing"] = "nothing" if offline else "guard"
    try:
        process = start_program(command, environment=environment, folder=folder, stdout=stdout, bound=bound)
        return finish_program(process, stdin, limit_s)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", f"git: {error.strerror}".encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", f"git did not respond within {limit_s} s".encode())


def _is_repository(path: Path) -> bool:
    """Return whether git uses a file or folder `.git`; it ignores folders without a `HEAD`, such as empty ones."""
    return path.is_file() or os.path.lexists(path / "HEAD")


def find_git_root(folder: Path) -> Path | None:
    """Return the root of the repository: the nearest folder, here or above, with `.git`, which can be a file."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def lfs_pull_command(file: Path, shown: str = "") -> str:
    """Return the command that fetches a Git LFS file. git-lfs interprets paths relative to the repository root.

    Outside a repository, the command contains the path as other messages show it.
    """
    path = file.parent.resolve() / file.name
    root = find_git_root(path.parent)
    name = path.relative_to(root).as_posix() if root is not None else shown or path.name
    return f'git lfs pull --include "{name}"'


def read_git_output(folder: Path, *arguments: str) -> str | None:
    """Run git without network access and return its output; None if git fails or is not installed."""
    result = run_git(folder, arguments, offline=True)
    return os.fsdecode(result.stdout) if result.returncode == 0 else None


def read_git_line(folder: Path, arguments: Sequence[str]) -> str:
    """Return git's output without surrounding whitespace; "" if git fails."""
    return (read_git_output(folder, *arguments) or "").strip()


def is_tracked(root: Path, path: str) -> bool:
    """Return whether a file with this name is committed or staged."""
    return run_git(root, ["ls-files", "--error-unmatch", "-z", "--", f":(literal){path}"]).returncode == 0


def is_ignored(folder: Path, path: str) -> bool:
    """Return whether git ignores an untracked file, so that `git add` refuses it."""
    return run_git(folder, ["check-ignore", "--quiet", "--", path], offline=True).returncode == 0


def last_line(stderr: bytes) -> str:
    """Return the last line of git's error output, which has the reason."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def describe_failure(stderr: bytes) -> str:
    """Return the reason from the error output of a git command with network access, which can end with advice."""
    lines = (line.strip() for line in stderr.decode("utf-8", "replace").splitlines())
    return next((line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")), last_line(stderr))


_ANCESTOR_STEP = r"\^(\d*)|~(\d*)"
_ANCESTOR_NAME = r"(?P<base>.*?)(?P<steps>(?:\^\d*|~\d*)+)"
MAX_FETCHED_COMMITS = 50
"""Maximum number of commits that are fetched one by one."""


def is_commit_id(text: str) -> bool:
    """Return whether the text is a full commit id, the only form that is accepted from an untrusted event."""
    return re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", text) is not None


def find_commit(root: Path, name: str) -> str:
    """Return the commit that a name refers to; "" if it does not exist locally."""
    commit = read_git_line(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
    return commit if has_commit(root, commit) else ""


def has_commit(root: Path, commit: str) -> bool:
    """Return whether a commit can be read."""
    return bool(commit) and run_git(root, ["cat-file", "-e", f"{commit}^{{commit}}"], offline=True).returncode == 0


def read_parents(root: Path, commit: str) -> tuple[str, ...]:
    """Return the parents of a commit, including parents that a shallow clone lacks (`HEAD^1` fails for these)."""
    header = read_git_line(root, ["cat-file", "commit", commit]).partition("\n\n")[0]
    parents = (line.partition(" ")[2] for line in header.splitlines() if line.startswith("parent "))
    return tuple(parent for parent in parents if is_commit_id(parent))


REMOVED_COMMIT = "not our ref"
"""Part of git's message for a commit that the remote does not have. Source: `upload-pack.c` of git 2.39."""


def fetch_commit(root: Path, commit: str, *, offline: bool) -> str:
    """Fetch a commit unless it exists locally; return why it could not be fetched, or "".

    A depth is used only in shallow clones: it would truncate the history of a full clone.
    """
    if has_commit(root, commit):
        return ""
    if offline:
        return "it was not fetched, and `--offline` prevents fetching it"
    remote = _find_remote(root)
    if not remote:
        return "it was not fetched, and the repository has no remote"
    result = _fetch(root, *(["--depth=1"] if is_shallow(root) else []), remote, commit)
    if has_commit(root, commit):
        return ""
    return f"it could not be fetched from `{remote}`: {describe_failure(result.stderr)}"


def _fetch(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Fetch without changing refs or tags, or starting maintenance."""
    quiet = ["-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "--quiet", "--no-tags"]
    return run_git(root, [*quiet, "--no-recurse-submodules", "--no-write-fetch-head", *arguments])


def _find_remote(root: Path) -> str:
    remotes = read_git_line(root, ["remote"]).splitlines()
    return "origin" if "origin" in remotes else remotes[0] if len(remotes) == 1 else ""


LFS_CONFIG = ".lfsconfig"


def select_lfs_server(root: Path) -> list[str]:
    """Return git options with which git-lfs contacts the server of the user's settings, as if without `.lfsconfig`.

    Anyone who can change the repository can change `.lfsconfig`, and git-lfs would send credentials to that server. It
    also reads a committed `.lfsconfig` that was deleted. Source: measured with git-lfs 3.3.0; its derivation of a
    server from a remote is described in its `docs/api/server-discovery.md`.
    """
    committed = (f"{revision}:{LFS_CONFIG}" for revision in ("", "HEAD"))
    is_present = (root / LFS_CONFIG).exists() or any(read_git_line(root, ["cat-file", "-t", it]) for it in committed)
    if not is_present:
        return []
    remote = _find_remote(root)
    keys = ("lfs.url", f"remote.{remote}.lfsurl")
    url = next(filter(None, (read_git_line(root, ["config", "--get", key]) for key in keys)), "")
    if not url and remote:
        url = read_git_line(root, ["remote", "get-url", remote]).rstrip("/")
        if url.startswith(("http://", "https://")):
            url = f"{url.removesuffix('.git')}.git/info/lfs"
    return ["-c", f"lfs.url={url}"]  # without a remote, git-lfs contacts no server


def is_shallow(root: Path) -> bool:
    """Return whether the history of the clone is truncated."""
    return read_git_line(root, ["rev-parse", "--is-shallow-repository"]) == "true"


def find_remote_branch(root: Path, branch: str) -> tuple[str, str]:
    """Return the newest commit of a branch of the remote, or why it is unknown."""
    remote = _find_remote(root)
    if not remote:
        return "", "the repository has no remote"
    result = run_git(root, ["ls-remote", "--quiet", remote, f"refs/heads/{branch}"])
    if result.returncode:
        return "", f"`{remote}` cannot be reached: {describe_failure(result.stderr)}"
    commit = os.fsdecode(result.stdout).partition("\t")[0]
    return (commit, "") if is_commit_id(commit) else ("", f"it does not exist in `{remote}`")


def find_merge_base(root: Path, *commits: str) -> str:
    """Return the newest commit that is in the history of each of these commits; "" if there is none locally."""
    return read_git_line(root, ["merge-base", *commits]).partition("\n")[0]


DEEPENING_STEPS = (50, 450)
"""Numbers of commits by which the history of a shallow clone is extended to find a merge base."""


NOT_IN_HISTORY = "it is not in the fetched history"


def fetch_merge_base(root: Path, *commits: str, offline: bool) -> tuple[str, str]:
    """Extend the history of a shallow clone until it contains the merge base; return it, or why it is unknown."""
    for commit in commits:
        if why := fetch_commit(root, commit, offline=offline):
            return "", f"the commit `{commit[:12]}` is needed; {why}"
    base, failure = find_merge_base(root, *commits), ""
    for count in () if offline else DEEPENING_STEPS:
        if base or failure or not is_shallow(root):
            break
        result = _fetch(root, f"--deepen={count}", _find_remote(root), *commits)
        failure = describe_failure(result.stderr) if result.returncode else ""
        base = find_merge_base(root, *commits)
    return base, failure or NOT_IN_HISTORY


class NoParentError(Exception):
    """A commit does not have the parent that a name such as `HEAD^2` refers to, so that fetching cannot help."""


def resolve_ancestor(root: Path, name: str, *, offline: bool) -> tuple[str, str]:
    """Resolve a name such as `HEAD^1` beyond the end of a shallow clone; return the commit, or why it is not available.

    Raises:
        NoParentError: the history ends before this ancestor.
    """
    match = re.fullmatch(_ANCESTOR_NAME, name)
    commit = find_commit(root, (match["base"] or "HEAD").replace("@", "HEAD") if match else "")
    if match is None or not commit:
        return "", ""
    numbers = _parent_numbers(match["steps"])
    if len(numbers) > MAX_FETCHED_COMMITS:
        return "", f"it is more than {MAX_FETCHED_COMMITS} commits back, and was not fetched"
    for number in numbers:
        parents = read_parents(root, commit)
        if number > len(parents):
            raise NoParentError(f"`{commit[:12]}` has {pluralize(len(parents), 'parent') if parents else 'no parent'}")
        commit = parents[number - 1]
        if why := fetch_commit(root, commit, offline=offline):
            return "", f"the commit is `{commit[:12]}`; {why}"
    return commit, ""


def _parent_numbers(steps: str) -> list[int]:
    """Return the parent number of each step, such as 2, 1, 1 for `^2~2`."""
    numbers: list[int] = []
    for step in re.finditer(_ANCESTOR_STEP, steps):
        if step[1] is None:
            numbers += [1] * min(int(step[2] or 1), MAX_FETCHED_COMMITS + 1)
        elif step[1] != "0":  # `^0` is the commit itself
            numbers.append(int(step[1] or 1))
    return numbers


_INDEX_ENTRY = re.compile(
    rb"H [0-7]+ (?P<blob>[0-9a-f]+) 0\t(?P<name>[^\0]*)\0"
    rb"  ctime: (?P<changed>[0-9]+:[0-9]+)\n  mtime: (?P<modified>[0-9]+:[0-9]+)\n"
    rb"  dev: [0-9]+\tino: (?P<number>[0-9]+)\n[^\n]*\n  size: (?P<size>[0-9]+)\t[^\n]*\n"
)
"""One file in git's index, with its times, inode and size when git read it. "H" is a file that git
compares with the index; "h" (assumed unchanged) and "S" (skipped) do not match. Git itself ignores fractions of a
second.

Source: `git ls-files --stage -v --debug -z` of git 2.39.5; with any other output, no file counts as unchanged.
"""
_LFS_EXTENSION_LINE = b"\next-"
"""Marks a pointer written by LFS extensions. Its digest is the digest of their output, not of the file."""
_INDEX_MODULUS = 2**32
"""Inode numbers and sizes have 32 bits in the index."""


def find_lfs_contents(root: Path, files: Iterable[Path]) -> dict[Path, LfsPointer]:
    """Return the committed or staged Git LFS pointers of unchanged files.

    A file counts as unchanged if its size, times and inode match git's index, the index is newer than the file, and
    the file has the attribute for the LFS filter.
    """
    names = {name: file for file in files if (name := _git_path(root, file))}
    if not names:
        return {}
    blobs = _find_unchanged(root, names)
    filtered = _select_lfs_files(root, sorted(blobs))
    contents = dict(read_small_blobs(root, [blobs[name] for name in filtered], offline=True))
    pointers = {name: parse_pointer(contents.get(blobs[name], b"")) for name in filtered}
    return {
        names[name]: pointer
        for name, pointer in pointers.items()
        if pointer is not None and _LFS_EXTENSION_LINE not in contents[blobs[name]]
    }


def _git_path(root: Path, file: Path) -> str:
    """Return a file's path relative to the root; "" for links, and for files outside the root."""
    real = Path(os.path.realpath(file))
    if file.is_symlink() or not real.is_relative_to(os.path.realpath(root)):
        return ""
    return real.relative_to(os.path.realpath(root)).as_posix()


def _find_unchanged(root: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Return, by name, the blobs of files that have not changed since git read them. Times are compared exactly."""
    paths = [f":(literal){name}" for name in files]
    listed = run_git(root, ["ls-files", "--stage", "-v", "--debug", "-z", "--", *paths], offline=True)
    try:  # a file written at or after this time may have changed since
        index_ns = (root / read_git_line(root, ["rev-parse", "--git-path", "index"])).stat().st_mtime_ns
    except OSError:
        index_ns = 0
    unchanged = {}
    for entry in _INDEX_ENTRY.finditer(listed.stdout) if listed.returncode == 0 else ():
        name = os.fsdecode(entry["name"])
        if name not in files:
            continue
        status = files[name].stat()
        indexed = _parse_ns(entry["changed"]), _parse_ns(entry["modified"]), int(entry["number"]), int(entry["size"])
        numbers = status.st_ino % _INDEX_MODULUS, status.st_size % _INDEX_MODULUS
        if indexed == (status.st_ctime_ns, status.st_mtime_ns, *numbers) and status.st_mtime_ns < index_ns:
            unchanged[name] = entry["blob"].decode()
    return unchanged


def _parse_ns(time: bytes) -> int:
    seconds, _, fraction = time.partition(b":")
    return int(seconds) * 10**9 + int(fraction)


def _select_lfs_files(root: Path, names: list[str]) -> list[str]:
    """Return the names of the files that Git LFS manages."""
    if not names:
        return []
    stdin = b"\0".join(map(os.fsencode, names)) + b"\0"
    result = run_git(root, ["check-attr", "-z", "--stdin", "filter"], stdin=stdin, offline=True)
    words = os.fsdecode(result.stdout).split("\0")
    return [words[at] for at in range(0, len(words) - 2, 3) if words[at + 2] == "lfs"]


def read_small_blobs(root: Path, blobs: Iterable[str], *, offline: bool) -> Iterator[tuple[str, bytes]]:
    """Yield each blob that is small enough for a Git LFS pointer, with its content. All are read in one batch."""
    names = "".join(f"{blob}\n" for blob in sorted(set(blobs))).encode()
    if not names:
        return
    listed = run_git(root, ["cat-file", "--batch-check=%(objectname) %(objectsize)"], stdin=names, offline=offline)
    rows = (line.split(" ") for line in listed.stdout.decode("ascii", "replace").splitlines())
    small = [blob for blob, size in rows if size.isdigit() and 0 < int(size) < MAX_POINTER_BYTES]
    names = "".join(f"{blob}\n" for blob in small).encode()
    batch = ["cat-file", "--batch=%(objectname) %(objectsize)"]
    rest = run_git(root, batch, stdin=names, offline=offline).stdout if small else b""
    while rest:
        header, _, rest = rest.partition(b"\n")
        blob, size = header.decode("ascii").split(" ")
        if size.isdigit():  # git prints "missing" for other blobs
            yield blob, rest[: int(size)]
            rest = rest[int(size) + 1 :]
