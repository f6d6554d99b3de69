"""Each release with what it implements, from the table that is shipped."""

from __future__ import annotations

import functools

from onnxgate.support import limits
from onnxgate.support.table import Implementation, Schema, implementations, shipped


@functools.cache
def _shipped() -> dict[str, Implementation]:
    return implementations(shipped(), {name: row.opsets for name, row in limits.table().releases.items()})


def implementation(release: str) -> Implementation | None:
    """What one exact release implements, None where its kernels are not known."""
    return _shipped().get(release)


def known() -> tuple[str, ...]:
    """The releases whose kernels are known, ascending."""
    return tuple(_shipped())


def any_schema(domain: str, name: str, version: int) -> Schema | None:
    """The operator's schema in the newest release that has one for the version; 0 stands for the newest version."""
    for each in reversed(_shipped().values()):
        operator = each.operator(domain, name)
        schema = operator.schema(version or 2**31) if operator else None
        if schema is not None:
            return schema
    return None
