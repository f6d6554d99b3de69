"""The event that started a run, as far as comments need it. Titles, branches and logins in it are foreign text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

LARGEST_BYTES = 32 * 2**20


class Repository(msgspec.Struct, frozen=True):
    """`owner/name`."""

    full_name: str = ""

    @property
    def owner(self) -> str:
        """Before the slash."""
        return self.full_name.partition("/")[0]


class Branch(msgspec.Struct, frozen=True):
    """One side of a pull request; a fork that was deleted is no repository."""

    sha: str = ""
    repo: Repository | None = None


class PullRequest(msgspec.Struct, frozen=True):
    """A pull request as events and the API tell it."""

    number: int
    head: Branch = Branch()
    base: Branch = Branch()

    @property
    def is_from_fork(self) -> bool:
        """Whether its branch lies in another repository."""
        return self.head.repo is None or self.base.repo is None or self.head.repo.full_name != self.base.repo.full_name


class WorkflowRun(msgspec.Struct, frozen=True):
    """The run that another one followed."""

    event: str = ""
    head_sha: str = ""
    head_branch: str | None = None
    head_repository: Repository | None = None
    conclusion: str | None = None
    html_url: str = ""


class Event(msgspec.Struct, frozen=True):
    """What started the run."""

    pull_request: PullRequest | None = None
    workflow_run: WorkflowRun | None = None


def read_event(environment: Mapping[str, str]) -> Event:
    """The event of this run; an empty one where there is none that can be read."""
    try:
        with Path(environment["GITHUB_EVENT_PATH"]).open("rb") as file:
            return msgspec.json.decode(file.read(LARGEST_BYTES), type=Event)
    except (KeyError, OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return Event()
