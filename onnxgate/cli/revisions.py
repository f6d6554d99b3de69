"""A model that is named on the command line: a file, or a file at a git revision."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from onnxgate.cli.options import CommonOptions
from onnxgate.errors import UsageError
from onnxgate.model.differing import Given


def given(name: str, scratch: Path, options: CommonOptions) -> Given:
    """The model that is called so; one of a revision is written to `scratch`, with its data.

    Raises:
        UsageError: there is none, or it is no model.
    """
    path = options.start / name
    if path.exists() or ":" not in name:
        return _of_file(name, path)
    return _of_revision(name, scratch, options)


def _of_file(name: str, path: Path) -> Given:
    from onnxgate.model.identify import really

    try:
        wrong = really(path)
    except OSError as error:
        raise UsageError(f"`{name}` cannot be read: {(error.strerror or str(error)).lower()}") from error
    if wrong:
        hint = None
        if wrong == "a Git LFS pointer":
            hint = f'git lfs pull --include "{name}"'
        elif wrong == "not there":
            hint = "name a file, or REV:PATH for a file at a git revision"
        raise UsageError(
            f"`{name}` is no model: it is {wrong}" if wrong != "not there" else f"there is no `{name}`", hint=hint
        )
    return Given(name, path)


def _of_revision(name: str, scratch: Path, options: CommonOptions) -> Given:
    from onnxgate.baseline.commits import commit_of
    from onnxgate.baseline.past import write_past
    from onnxgate.baseline.revisions import AbsentError, Revision
    from onnxgate.config.discovery import find_root

    revision, _, path = name.partition(":")
    start = options.start.resolve()
    root = find_root(start)
    if root is None:
        raise UsageError(f"there is no `{name}`, and this is no git repository")
    commit = commit_of(root, revision) if revision else ""
    if not commit:
        raise UsageError(f"there is no `{name}`, and git knows no revision `{revision}` here")
    try:
        at = Revision(root, revision, commit, options.offline)
        return Given(name, write_past(at, _from_root(path, start, root), scratch))
    except AbsentError as reason:
        raise UsageError(reason.reason, hint=reason.hint or None) from reason


def _from_root(path: str, start: Path, root: Path) -> str:
    """As git has it: from the root on, or from here on where it begins with a dot."""
    parts = PurePosixPath(path).parts
    if not path.startswith(("./", "../")):
        return "/".join(parts)
    here = list(start.relative_to(root).parts)
    for part in parts:
        if part != "..":
            here.append(part)
        elif here:
            here.pop()
    return "/".join(here)
