"""Subjects of the support stage's rules."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.model.facts import ModelFacts
from onnxgate.support.matching.operations import Suggestion, SupportGapRule

OPSET_RULES = ("opset-too-new", "opset-experimental")
"""Rules that may explain an unsupported operator: at an older opset the model would not use it."""


class RuntimeSupport(msgspec.Struct, frozen=True):
    """The limits of one runtime."""

    name: str  # "onnxruntime 1.18.1"
    max_ir: int
    newest_opsets: dict[str, int]  # domain -> newest version; a domain that is not there is not limited


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes of a model with equal requirements."""

    name: str  # of the first of them; "" if it has none
    words: str  # "node `conv0`, and 3 more"
    function: str = ""  # the local function that the first is in


class ExperimentalOperation(msgspec.Struct, frozen=True):
    """An operator of a model that a release calls experimental."""

    place: Place  # the source line that made the first node, or the model's place
    operator: str  # "LayerNormalization(1)"
    nodes: NodeGroup


class ModelOnRuntime(msgspec.Struct, frozen=True):
    """One model and one required runtime, with the limits of its other runtimes and releases."""

    model: ModelFacts
    place: Place
    runtime: RuntimeSupport
    common_ir: int  # the newest IR version that all required runtimes support
    common_opsets: dict[str, int]  # the same per limited domain
    ir_works_since: str  # first release that supports the model's IR version, "" if none does
    opset_works_since: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # domain -> first release that supports its opset
    is_convertible: bool = True  # the installed onnx supports the model's opset of `ai.onnx`
    experimental: tuple[ExperimentalOperation, ...] = ()
    experimental_opsets: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # imported, and only under development there


class WaysOut(msgspec.Struct, frozen=True):
    """Changes of a model or its targets with which a refused operation is supported."""

    suggestions: tuple[Suggestion, ...] = ()  # the best one first
    works_since: str = ""
    works_until: str = ""
    everywhere: bool = True  # verified for all required runtimes, not only for those with support data


class RefusedOperation(msgspec.Struct, frozen=True):
    """An operation that one runtime does not support, with all nodes concerned."""

    rule: SupportGapRule
    model: str
    place: Place  # the source line that made the first node, or the model's place
    runtime: str
    problem: str  # the same for all releases: "there is no kernel for `Det(11)` with `T` = `tensor(double)`"
    detail: str  # support of this release, as a verb phrase: "implements `T` as `tensor(float)`"
    operator: str  # "Det", or with its domain if that is not the default one
    nodes: NodeGroup
    about: str = ""  # facts that distinguish problems of the operator: "T=tensor(double)"
    ways: WaysOut = WaysOut()
    opset_too_new: bool = False  # the runtime does not support the opset, which may be the cause


class ExternalDataOnRuntime(msgspec.Struct, frozen=True):
    """A file of external data that one runtime does not read because of its path."""

    model: str
    place: Place
    runtime: str
    location: str  # as the model writes it
    layout: Literal["linked-model", "link", "outside", "absolute"]
    tensors: int
    works_since: str = ""
    works_until: str = ""


class ProviderFallback(msgspec.Struct, frozen=True):
    """Nodes without a kernel of a required provider, which another provider runs."""

    model: str
    place: Place
    runtime: str
    provider: str
    runs_on: str
    operators: dict[str, int]  # "Det(11)" -> how many nodes
    nodes: NodeGroup


class PredictionGap(msgspec.Struct, frozen=True):
    """Something that cannot be predicted about a runtime or model, and the reason."""

    place: Place
    what: str  # "nothing is predicted"
    reason: str = ""  # a verb phrase about the runtime
    runtime: str = ""
    model: str = ""
    node: str = ""
    fix: str = ""
    about: str = ""  # facts that distinguish gaps of the model: "Det"
    follows_from: tuple[str, ...] = ()  # rules that report the same problem
