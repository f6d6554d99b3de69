"""Check the proposal of an upgrade, and describe it.

The proposal is untrusted, because the job that wrote it ran packages and code of the repository. It can only replace
releases in an existing lock by newer ones, and its text is rendered here.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec
from packaging.version import Version

from onnxgate import __version__
from onnxgate.core.errors import LockError, UnavailableError
from onnxgate.core.escape import markdown_code
from onnxgate.core.findings import runtime_sort_key
from onnxgate.core.report import UpgradeProposal
from onnxgate.core.text import join_phrases, join_quoted, truncate
from onnxgate.formats.upgrade_preview import format_markdown
from onnxgate.github.runner import read_artifact
from onnxgate.project.config.project import LOCK_NAME
from onnxgate.project.config.schema import Config
from onnxgate.project.engines import engine_dependencies
from onnxgate.project.lock.comparison import describe_lock_changes, runtime_differences
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget

MAX_PROPOSAL_BYTES = 32 * 2**20
MAX_DESCRIPTION_LENGTH = 65_536
"""Maximum length of the description of a pull request in characters. Source: as for comments."""
MAX_TITLE_LENGTH = 200
MAX_PATH_LENGTH = 400
_UPGRADE_COMMAND = re.compile(r"onnxgate lock(?: --upgrade(?: [\w.=-]{1,60}| '[\w.=<>!~,* -]{1,60}')?){1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A checked proposal: the content of the pull request."""

    path: str
    lock: str
    title: str
    description: str  # without marker and link
    releases: str  # identifies the proposed releases; after a pull request was declined, they are not proposed again

    @property
    def digest(self) -> str:
        """Identifies everything that the pull request shows."""
        return _digest(f"{self.title}\0{self.description}\0{self.lock}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_proposal(path: str) -> UpgradeProposal:
    """Read the proposal of another job, and check the path of its lock.

    Raises:
        UnavailableError: the file is not a proposal of this version, or does not name a lock.
    """
    try:
        proposal = msgspec.json.decode(read_artifact(path, MAX_PROPOSAL_BYTES), type=UpgradeProposal)
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise UnavailableError(f"the input `proposal` is not a proposal of onnxgate: {error}") from error
    if (proposal.version, proposal.onnxgate) != (1, __version__):
        raise UnavailableError(
            "the proposal was written by a different version of onnxgate",
            hint="use the same version of `onnxgate/onnxgate` and `onnxgate/onnxgate/pull-request`",
        )
    parts = PurePosixPath(proposal.lock_path).parts
    is_normal = "/".join(parts) == proposal.lock_path and proposal.lock_path.isprintable()
    if not is_normal or parts[-1:] != (LOCK_NAME,) or {"..", "/", ".git"} & set(parts) or "\\" in proposal.lock_path:
        raise UnavailableError(f"the proposal does not name a lock: `{truncate(proposal.lock_path)}`")
    if len(proposal.lock_path) > MAX_PATH_LENGTH:
        raise UnavailableError(f"the path of the lock has more than {MAX_PATH_LENGTH} characters")
    return proposal


def check_proposal(proposal: UpgradeProposal, current: str, config: Config | None) -> Proposal:
    """Return the content of the pull request for a proposal that changes the `current` lock.

    With a config, the new lock must match it as well as the current one does.

    Raises:
        UnavailableError: the proposal is not a valid lock, or does more than replace releases by newer ones.
    """
    try:
        old, new = parse_lock(current, proposal.lock_path), parse_lock(proposal.new_lock, proposal.lock_path)
    except LockError as error:
        raise UnavailableError(f"the proposal is not a valid lock: {error.message}") from error
    if render_lock(new) != proposal.new_lock or proposal.preview is None:
        raise UnavailableError("the proposal was not written by `onnxgate lock`")
    hint = "if this is expected, run `onnxgate lock --upgrade`, and commit the lock"
    if others := list(_list_other_changes(old, new)):
        raise UnavailableError(
            f"the proposal does more than upgrade releases: {truncate(join_phrases(others), 500)}", hint=hint
        )
    known = list(_list_differences(config, old))
    if differences := [it for it in _list_differences(config, new) if it not in known]:
        raise UnavailableError(f"the proposal does not match the config: {differences[0]}", hint=hint)
    preview = msgspec.structs.replace(proposal.preview, pins=describe_lock_changes(old, new))
    folder = str(PurePosixPath(proposal.lock_path).parent)
    command = proposal.command if _UPGRADE_COMMAND.fullmatch(proposal.command) else "onnxgate lock --upgrade"
    command += f" --directory {shlex.quote(folder)}" if folder != "." else ""
    page = format_markdown(preview, command)
    if len(page) > MAX_DESCRIPTION_LENGTH - 3_000:
        page = f"The preview is too long for this page. To see it, run {markdown_code(f'{command} --preview')}.\n"
    changed = markdown_code(proposal.lock_path)
    added = _list_added(old, new)
    introduction = f"The config allows newer releases than the locked ones. This pull request changes only {changed}."
    return Proposal(
        path=proposal.lock_path,
        lock=proposal.new_lock,
        title=_describe_upgrade(added) + (f" in {folder}" if folder != "." else ""),
        description=f"{introduction}\n\n{page}",
        releases=_identify_releases(added, new),
    )


def _list_other_changes(old: Lock, new: Lock) -> Iterator[str]:
    """Yield each change that an upgrade never makes."""
    if old.models != new.models:
        yield "it changes the models"
    if old.targets.keys() != new.targets.keys():
        yield "it changes the targets"
        return
    for name, target in new.targets.items():
        yield from (f"{change} target `{name}`" for change in _list_target_changes(old.targets[name], target))
    if old.toolchain is None or new.toolchain is None:
        if old.toolchain is not new.toolchain:
            yield "it adds or removes the toolchain"
    elif old.toolchain.policy != new.toolchain.policy:
        yield "it changes the requirements of the toolchain"
    elif lowered := _find_lowered(old.toolchain.packages, new.toolchain.packages):
        yield f"it lowers {join_quoted(lowered)} in the toolchain"
    hashes = dict(_list_hashes(old))
    changed = sorted(file for file, digest in _list_hashes(new) if hashes.get(file, digest) != digest)
    if changed:
        yield f"it changes the hash of `{changed[0]}`"


def _list_differences(config: Config | None, lock: Lock) -> Iterator[str]:
    """Yield a sentence for each locked runtime that the config does not allow."""
    for name, target in (config.targets if config is not None else {}).items():
        if name in lock.targets:
            yield from runtime_differences(name, target, lock.targets[name])


def _list_target_changes(old: LockedTarget, new: LockedTarget) -> Iterator[str]:
    """Yield each change of one target that an upgrade never makes, as a phrase that the target's name completes."""
    if old.policy != new.policy:
        yield "it changes the settings of"
    locked: dict[str, list[LockedRuntime]] = {}
    for runtime in old.runtimes:
        locked.setdefault(runtime.variant, []).append(runtime)
    if not {runtime.variant for runtime in new.runtimes} <= locked.keys():
        yield "it changes the engine of"
        return
    before, after = (_list_releases(target) for target in (old, new))
    if len(after) < len(before):
        yield "it removes releases from"
    elif any(newer < older for older, newer in zip(before, after, strict=False)) or after[-1:] < before[-1:]:
        yield "it lowers releases of"
    for runtime in new.runtimes:
        pins, same = _read_pins(runtime), [_read_pins(each) for each in locked[runtime.variant]]
        dependencies = engine_dependencies(runtime.engine)
        if added := sorted(pins.keys() - set().union(*same) - set(dependencies)):
            yield f"it adds {join_quoted(added)} to"
        if removed := sorted(set(same[0]).intersection(*same) - pins.keys() - set(dependencies)):
            yield f"it removes {join_quoted(removed)} from"
        for each in locked[runtime.variant]:
            if each.release == runtime.release and (lowered := _find_lowered(_read_pins(each), pins)):
                yield f"it lowers {join_quoted(lowered)} of"


def _list_releases(target: LockedTarget) -> list[Version]:
    """Return the releases of a target, newest first."""
    return sorted((Version(runtime.release) for runtime in target.runtimes), reverse=True)


def _read_pins(runtime: LockedRuntime) -> dict[str, str]:
    """Return the version of each pinned package."""
    return dict(pin.split("==", 1) for pin in runtime.packages)


def _find_lowered(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the packages with a lower version."""
    return sorted(name for name in old.keys() & new.keys() if Version(new[name]) < Version(old[name]))


def _list_hashes(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield the name and the hash of each file in a lock."""
    for package in lock.packages:
        yield from ((wheel.file, wheel.sha256) for wheel in package.wheels)
    yield from ((f"{package.name}-{package.version}.tgz", package.integrity) for package in lock.npm)


def _list_added(old: Lock, new: Lock) -> list[LockedRuntime]:
    """Return the runtimes that an upgrade adds to a target, oldest first."""
    added = {}
    for name, target in new.targets.items():
        known = {runtime.name for runtime in old.targets[name].runtimes}
        added.update({runtime.name: runtime for runtime in target.runtimes if runtime.name not in known})
    return [added[name] for name in sorted(added, key=runtime_sort_key)]


def _identify_releases(added: Iterable[LockedRuntime], new: Lock) -> str:
    """Return a digest of the added releases of engines, or of all pins if only other packages are upgraded.

    With a newer release of numpy, a declined release of an engine would have the same title and the same effects.
    """
    names = [runtime.name for runtime in added]
    return _digest("\n".join(names) if names else render_lock(msgspec.structs.replace(new, models={})))


def _describe_upgrade(added: Iterable[LockedRuntime]) -> str:
    """Return a title such as `Upgrade onnxruntime to 1.32.0`, with the newest added release of each engine."""
    newest = {runtime.engine: runtime.release for runtime in added}
    releases = join_phrases([f"{engine} to {release}" for engine, release in sorted(newest.items())])
    return truncate(f"Upgrade {releases or 'the packages of the locked runtimes'}", MAX_TITLE_LENGTH)
