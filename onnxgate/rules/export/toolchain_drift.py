"""The rule `toolchain-drift`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import ToolchainState
from onnxgate.rules.definition import rule


@rule(ToolchainState, "toolchain-drift", level=Level.WARNING, since="0.1.0")
def toolchain_drift(subject: ToolchainState) -> Iterator[Hit]:
    """
    The installed export packages do not match `onnxgate.lock`.

    ## Why it matters
    A different version may export a different graph, which is reported as `export-stale`. Local version suffixes are
    ignored: `2.13.0+cpu` equals `2.13.0`.

    ## What to do
    - Install the locked versions, or
    - run `onnxgate export --check` to see what the installed versions change, and then
      `onnxgate lock --upgrade PACKAGE` with one of the packages. `onnxgate lock` alone keeps the locked versions.
    """
    if subject.drift:
        drift = sorted(subject.drift.items())
        words = [
            f"{name} {f'{present} is' if present else 'is not'} installed ({locked} is locked)"
            for name, (locked, present) in drift
        ]
        requirements = " ".join(f"{name}=={locked}" for name, (locked, _) in drift)
        ways = [f"install `{requirements}` in the toolchain's environment"]
        installed = [name for name, (_, present) in drift if present]
        ways += [f"run `onnxgate lock --upgrade {name}` to lock the installed versions" for name in installed[:1]]
        yield Hit(
            subject.place,
            f"the toolchain does not match the lock: {', '.join(words)}",
            fix=", or ".join(ways),
            identity=" ".join(name for name, _ in drift),
        )
