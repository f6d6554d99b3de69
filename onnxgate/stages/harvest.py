"""One build of ONNX Runtime asked what it implements: what it says of itself, and which tiny models it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import Completed, Crashed, Harvest, Job, Load, Observation, Refused, TimedOut
from onnxgate.runtimes.seats import Seat
from onnxgate.scratch import scratch_folder
from onnxgate.support import harvest, probes
from onnxgate.support.dump import Dump, decode_dump
from onnxgate.support.table import Source

QUESTION = "the question for its kernels"


class UntoldError(Exception):
    """The build cannot be harvested; the message says why, and is empty where it is not there to be asked."""


def ask(host: Host, seat: Seat, source: Source) -> harvest.Harvest:
    """What the build in a seat implements. `source` names it; its commit is what the build says.

    Raises:
        UntoldError: it did not say, or what it loads makes no sense.
    """
    with scratch_folder() as scratch:
        output = Path(scratch).absolute() / "said.json"
        host.show(output.parent)  # some probes have their data outside of their own folders
        if _refuses(host.submit(seat, Harvest(output=str(output))).result(), QUESTION):
            raise UntoldError(f"it refuses {QUESTION}")
        said = _read(output)
        folder = output.with_name("probes")
        folder.mkdir()
        loads = _loads(host, seat, probes.write(folder))
    try:
        measured = probes.limits_from(loads)
    except probes.ProbeError as error:
        raise UntoldError(str(error)) from error
    return harvest.harvest_of(said, measured, msgspec.structs.replace(source, commit=said.commit))


def _read(output: Path) -> Dump:
    try:
        return decode_dump(output.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise UntoldError(f"what it says cannot be read: {type(error).__name__}") from error


def _loads(host: Host, seat: Seat, paths: Mapping[str, Path]) -> dict[str, bool]:
    """Which probes load, each in a process with what must be set for it."""
    waiting = {}
    for name, path in paths.items():
        environment = tuple(probes.environment_of(name).items())
        job: Job = Load(model=str(path))
        waiting[name] = host.submit(replace(seat, environment=environment), job)
    return {name: not _refuses(future.result(), f"the probe `{name}`") for name, future in waiting.items()}


def _refuses(observation: Observation, what: str) -> bool:
    """Whether it is refused; all that is neither done nor refused is no answer."""
    match observation:
        case Completed():
            return False
        case Refused():
            return True
        case Crashed(signal=signal):
            raise UntoldError(f"it fails on {what}: {signal}")
        case TimedOut(limit_s=limit_s):
            raise UntoldError(f"it does not answer {what} within {limit_s:g} s")
        case _:
            raise UntoldError
