"""Evidence about what runtimes support, from which the rules of the support stage create findings."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import DataLayout, DataSpelling
from onnxgate.support.matching.operations import Suggestion, SupportGapRule

OPSET_RULES = ("opset-too-new", "opset-experimental")
"""Rules whose findings may explain an unsupported operator.

If the model is exported at an older opset, it might not use this operator.
"""


ALL_REQUIRED = "all required runtimes support"


class RuntimeSupport(msgspec.Struct, frozen=True):
    """The newest IR version and the newest opsets that one runtime supports."""

    name: str  # "onnxruntime 1.18.1"
    max_ir: int | None  # None: no limit
    newest_opsets: dict[str, int]  # domain -> newest version; other domains are not limited


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes of a model that are reported in the same finding."""

    name: str  # name of the first node; "" if it has none
    words: str  # "node `conv0`, and 3 more"
    function: str = ""  # the local function that contains the first node


class ExperimentalOperation(msgspec.Struct, frozen=True):
    """An operator of a model that one runtime supports only experimentally, and the nodes that use it."""

    place: Place  # the source line that created the first node, or the place of the model
    operator: str  # "LayerNormalization(1)"
    nodes: NodeGroup


class ModelOnRuntime(msgspec.Struct, frozen=True):
    """A model and one of the runtimes that its targets require.

    Also contains the newest IR version and opsets that all required runtimes support.
    """

    model: ModelFacts
    place: Place
    runtime: RuntimeSupport
    common_ir: int | None  # the newest IR version that all required runtimes support; None: no limit
    common_opsets: dict[str, int]  # limited domain -> the newest opset that all required runtimes support
    ir_works_since: str  # first release that supports the model's IR version; "" if there is none
    opset_works_since: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # domain -> first release that supports its opset
    required: str = ALL_REQUIRED  # subject and verb of a sentence about the required runtimes
    # The installed onnx supports the model's opset of `ai.onnx`, and the newest opset that all required runtimes
    # support has all operators of the model.
    is_convertible: bool = True
    experimental: tuple[ExperimentalOperation, ...] = ()
    experimental_opsets: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # imported opsets that the release supports only experimentally


class WaysOut(msgspec.Struct, frozen=True):
    """Changes to a model or its targets that make an unsupported operation work."""

    suggestions: tuple[Suggestion, ...] = ()  # best first
    works_since: str = ""
    works_until: str = ""
    everywhere: bool = True  # verified for all required runtimes, not only for those with support data
    required: str = ALL_REQUIRED  # subject and verb of a sentence about the required runtimes


class RefusedOperation(msgspec.Struct, frozen=True):
    """An operation that runtimes of one engine do not support for the same reason, with all affected nodes."""

    rule: SupportGapRule
    model: str
    place: Place  # the source line that created the first node, or the place of the model
    runtimes: tuple[str, ...]
    problem: str  # equal for all releases: "there is no kernel for `Det(11)` with `T` = `tensor(double)`"
    detail: str  # what these releases support, as a verb phrase: "implements `T` as `tensor(float)`"
    operator: str  # "Det", with the domain unless it is the default domain; "" for an input or output of the model
    nodes: NodeGroup
    about: str = ""  # distinguishes several problems with the same operator: "T=tensor(double)"
    ways: WaysOut = WaysOut()
    opset_too_new: bool = False  # the runtimes do not support the opset, which may be the cause
    extensions: tuple[str, ...] = ()  # of the target; none of them registers the operator
    is_castable: bool = False  # the runtimes can cast between float and the type of the model's input or output


DataProblem = (
    DataLayout
    | DataSpelling
    | Literal[
        "parsed",  # shape inference needs the data
        "parsed-depth",  # shape inference of OneHot needs the data, which older releases do not read
        "unfound",  # a tensor in a subgraph has two locations, and the first does not exist
    ]
)
"""Why a runtime does not read external data."""


class ExternalDataOnRuntime(msgspec.Struct, frozen=True):
    """An external data file that one runtime does not read because of its location, its use or its entries."""

    model: str
    place: Place
    runtime: str
    location: str  # path as stored in the model
    problem: DataProblem
    tensors: tuple[str, ...]  # tensors of the file that the runtime reads, in the order of the model
    works_since: str = ""
    works_until: str = ""


class ProviderFallback(msgspec.Struct, frozen=True):
    """Nodes that run on a different provider than required, because the required provider has no kernel for them."""

    model: str
    place: Place
    runtime: str
    provider: str
    runs_on: str
    operators: dict[str, int]  # "Det(11)" -> number of nodes
    nodes: NodeGroup


class PredictionGap(msgspec.Struct, frozen=True):
    """Something about a runtime or model that could not be predicted, and the reason."""

    place: Place
    what: str  # "nothing is predicted"
    reason: str = ""  # a verb phrase whose subject is the runtime
    runtime: str = ""
    model: str = ""
    node: str = ""
    fix: str = ""
    about: str = ""  # distinguishes several gaps of the same model: "Det"
    follows_from: tuple[str, ...] = ()  # rules that report the same problem
