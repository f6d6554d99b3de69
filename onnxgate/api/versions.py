"""The newest opset and IR version that all releases in a range accept: what to export at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxgate.api.errors import ArgumentError, raise_argument_errors, require_type

if TYPE_CHECKING:
    from onnxgate.support.answers.operator_answers import NewestVersions


def newest_opset(requirement: str, *, domain: str = "ai.onnx") -> int:
    """
    Return the newest opset of a domain that all releases accept, such as 21 for `onnxruntime>=1.18`.

    A release may lack a kernel for an operator at this opset, so check the exported model with `assert_supported`.

    Raises:
        ArgumentError: the requirement is invalid, no known release matches it, or the opset of the domain is not
            limited.
    """
    require_type("domain", domain, str)
    opset = _find_newest_versions(requirement).opsets.get(domain or "ai.onnx")
    if opset is None:
        raise ArgumentError(f"`{requirement}` does not limit the opset of the domain `{domain}`")
    return opset


def newest_ir_version(requirement: str) -> int:
    """
    Return the newest IR version that all releases accept, such as 10 for `onnxruntime>=1.18`.

    Raises:
        ArgumentError: the requirement is invalid, no known release matches it, or the IR version is not limited.
    """
    ir_version = _find_newest_versions(requirement).ir_version
    if ir_version is None:
        raise ArgumentError(f"`{requirement}` does not limit the IR version")
    return ir_version


def _find_newest_versions(requirement: str) -> NewestVersions:
    from onnxgate.commands.known_releases import find_known_releases
    from onnxgate.support.answers.queries import find_newest_versions

    require_type("requirement", requirement, str)
    with raise_argument_errors():
        engine, releases = find_known_releases(requirement)
    return find_newest_versions(releases, engine)
