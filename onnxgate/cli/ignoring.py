"""What `check` is asked about ignores: to print them with each finding, or to write them for all that is there now."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.errors import UsageError

if TYPE_CHECKING:
    from onnxgate.request import Outcome, Request


@dataclass(slots=True)
class Ignoring:
    """`--show-ignores`, `--write-ignores` and `--until`; `snippets` is filled when the models were judged."""

    show: bool = False
    write: bool = False
    until: datetime.date | None = None
    snippets: Mapping[str, Sequence[str]] = field(default_factory=dict)  # a finding's fingerprint -> lines of TOML

    def refuse(self, config: Path | None, shard: str | None, no_ignores: bool) -> None:
        """
        Say before any work is done what does not go together.

        Raises:
            UsageError: options contradict each other, or there is no config to write into.
        """
        if self.until is not None and not self.write:
            raise UsageError("`--until` means nothing without `--write-ignores`")
        if not self.show and not self.write:
            return
        asked = "--write-ignores" if self.write else "--show-ignores"
        if config is None:
            raise UsageError(f"`{asked}` means nothing without a config", hint="run `onnxgate init`")
        if self.write and no_ignores:
            raise UsageError("`--write-ignores` writes what `--no-ignores` does not read", hint="give one of them")
        if self.write and shard is not None:
            raise UsageError("`--write-ignores` needs the verdict over all models", hint="leave `--shard` out")

    def before(self, config: Path, today: datetime.date) -> bytes:
        """
        The config as it is, where it is to be written.

        Raises:
            UsageError: it is read-only, or what is to be written would be over already.
        """
        if not self.write:
            return b""
        if self.until is not None and self.until < today:
            raise UsageError(f"`--until {self.until}` is over", hint="name a date to come")
        from onnxgate.config.editing import refuse_read_only

        refuse_read_only(config)
        return config.read_bytes()

    def settle(self, request: Request, outcome: Outcome, before: bytes) -> Outcome:
        """
        The outcome as it is after the entries are written; `before` is the config that the request was read from.

        Raises:
            UsageError: the config cannot be edited or written.
        """
        if self.write:
            outcome = _adopted(request, outcome, before, self.until)
        if self.show:
            from onnxgate.adoption import snippets

            self.snippets = snippets(request, outcome)
        return outcome


def _adopted(request: Request, outcome: Outcome, before: bytes, until: datetime.date | None) -> Outcome:
    from onnxgate.adoption import adopt
    from onnxgate.config.editing import write

    adopted = adopt(request, outcome, before, until)
    if adopted.data != before:
        write(request.project.path, adopted.data, before)
    adopted.outcome.gathered.remarks += adopted.remarks
    return adopted.outcome
