"""What `--upgrade` asks for: whose pins are given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from onnxgate.errors import UsageError


@dataclass(slots=True)
class Upgrade:
    """Whose pins are given up: everything's, or those of some packages, each perhaps for certain releases."""

    everything: bool = False
    requirements: tuple[Requirement, ...] = ()
    used: set[str] = field(default_factory=set)

    def of(self, package: str) -> Requirement | None:
        """What is asked of a package: its name alone for anything newer; None where its pins stay."""
        named = next((each for each in self.requirements if canonicalize_name(each.name) == package), None)
        return named or (Requirement(package) if self.everything else None)

    def takes(self, versions: Mapping[str, str]) -> bool:
        """Whether some packages were asked for in these versions."""
        asked = {name: self.of(name) for name in versions}
        taken = {name for name, each in asked.items() if each and each.specifier.contains(versions[name], True)}
        self.used.update(taken)
        return bool(taken)

    def refuse_unused(self) -> None:
        """Raise where something was named that neither a target nor the toolchain has, or that no range takes."""
        for each in self.requirements:
            if canonicalize_name(each.name) not in self.used:
                raise UsageError(
                    f"neither a target nor the toolchain here takes `{each}`",
                    hint="change the `runtime` of a target, then run `onnxgate lock`",
                )


def parse_upgrade(texts: Sequence[str]) -> Upgrade | None:
    """What `--upgrade` asks for: `""` is everything; `onnxruntime`, `onnxruntime=1.31.1` or any requirement."""
    if not texts:
        return None
    return Upgrade(everything="" in texts, requirements=tuple(_requirement(text) for text in texts if text))


def _requirement(text: str) -> Requirement:
    name, equals, version = text.partition("=")
    single = equals and not version.startswith("=") and name[-1:] not in "<>!~="
    try:
        return Requirement(f"{name}=={version}" if single else text)
    except InvalidRequirement as error:
        raise UsageError(
            f"`--upgrade {text}`: expected a package or a requirement, such as `onnxruntime=1.31.1`"
        ) from error
