"""Folders in somebody's home that a model's metadata and document strings name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxgate.model.structure import holders

if TYPE_CHECKING:
    from onnx import ModelProto

_HOME = r"(?:/home/|/Users/|[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))([^/\\\s\"':]+)[/\\][^\s\"'`,;)\]]*"
_NOBODY = frozenset(
    {
        *("runner", "runneradmin", "circleci", "vsts", "vsts_azpcontainer", "jenkins", "gitlab-runner", "buildkite"),
        *("ubuntu", "docker", "app", "user", "nonroot", "vscode", "codespace", "jovyan", "Shared", "Public"),
    }
)
"""Accounts that services and images have for everybody. Source: images of GitHub, CircleCI, Azure, GitLab, Jupyter."""


def leaked_paths(model: ModelProto) -> tuple[str, ...]:
    """Each such path once, sorted."""
    texts = (text if isinstance(text, str) else text.decode(errors="replace") for text in _texts(model))
    suspect = (text for text in texts if "/home/" in text or "Users" in text)
    found = {hit[0] for text in suspect for hit in re.finditer(_HOME, text) if hit[1] not in _NOBODY}
    return tuple(sorted(found))


def _texts(model: ModelProto) -> Iterator[str | bytes]:
    """What a reader may skip: nothing that is computed. Bytes are no UTF-8, which harms nobody here."""
    yield model.doc_string
    yield from (entry.value for entry in model.metadata_props)
    for holder in holders(model):
        yield holder.doc_string
        yield from (entry.value for entry in holder.metadata_props)
        for value in (*holder.value_info, *getattr(holder, "initializer", ())):
            yield from (entry.value for entry in value.metadata_props)
        for node in holder.node:
            yield node.doc_string
            yield from (entry.value for entry in node.metadata_props)
