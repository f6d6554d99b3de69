"""How a hit relates to other hits on the same model: what it confirms, contradicts or only follows from."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RelationKind(enum.Enum):
    """The kinds of relations. The hit that states the relation is the source, the hit that it names the target."""

    CONTRADICTS = "contradicts"  # drops the target on the same runtime
    CONFIRMS = "confirms"  # confirms the target on the same runtime
    EXPLAINED_BY = "explained-by"  # confirms the target and drops the source
    FOLLOWS_FROM = "follows-from"  # drops the source, unless an ignore accepts the target
    OPEN_UNTIL_RUN = "open-until-run"  # names no target: drops the source once the model was run on that runtime


@dataclass(frozen=True, slots=True, order=True)
class HitReference:
    """The hits of one rule on one topic, or all hits of the rule if `topic` is empty."""

    rule: str
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation of a hit to the hits that `to` names, on the same model."""

    kind: RelationKind
    to: HitReference | None = None


OPEN_UNTIL_RUN = Relation(RelationKind.OPEN_UNTIL_RUN)


def contradicts(*targets: str | HitReference) -> tuple[Relation, ...]:
    """Return relations to predictions that an observation refutes."""
    return _relate(RelationKind.CONTRADICTS, targets)


def confirms(*targets: str | HitReference) -> tuple[Relation, ...]:
    """Return relations to predictions that an observation proves without being explained by them."""
    return _relate(RelationKind.CONFIRMS, targets)


def explained_by(*targets: str | HitReference) -> tuple[Relation, ...]:
    """Return relations to predictions that an observation proves, and that make the observation redundant."""
    return _relate(RelationKind.EXPLAINED_BY, targets)


def follows_from(*targets: str | HitReference) -> tuple[Relation, ...]:
    """Return relations to faults that have this hit as a consequence."""
    return _relate(RelationKind.FOLLOWS_FROM, targets)


def _relate(kind: RelationKind, targets: tuple[str | HitReference, ...]) -> tuple[Relation, ...]:
    return tuple(Relation(kind, HitReference(target) if isinstance(target, str) else target) for target in targets)
