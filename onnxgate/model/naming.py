"""Names of values that stay the same when something else in the graph changes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable

from onnxgate.model.edits import operator_words
from onnxgate.model.wiring import Node, Source, Weight, Wiring

_WIDEST = 6
"""So many steps back a node's surroundings are looked at to tell it from others."""
_DIGITS = 6
_SUFFIX = re.compile(r"(_output_\d+|:\d+)$")
_COUNT = re.compile(r"_\d+$")
_NUMBERED = re.compile(r"(^|[_:.#-])\d+$|^[a-zA-Z]\d+$|^onnx::")
"""What exporters number as they go.
Source: torch 1.13 to 2.13 (`/Add_5_output_0`, `onnx::Conv_123`, `val_72`, `relu_1`), tf2onnx 1.17 (`Relu__5:0`)."""


def given_name(name: str) -> str:
    """The name, where somebody gave it; "" where an exporter numbered it."""
    return "" if not name or _NUMBERED.search(_SUFFIX.sub("", name)) else name


class Names:
    """Those of one graph's values; `around` has those of the graph around it. `weight` says what a weight is called."""

    def __init__(self, wiring: Wiring, around: Names | None, weight: Callable[[Weight], str]) -> None:
        self._wiring, self._around, self._weight = wiring, around, weight
        self._ends = frozenset(wiring.output_names)
        made = [name for node in wiring.nodes for name in node.proto.output]
        self._counted = {_COUNT.sub("", name) for name in made if _COUNT.search(name)}
        self._named = self._chosen()

    def of(self, source: Source) -> str:
        """What a value is called where it is read."""
        held = self._wiring.weight(source) if source.kind in ("weight", "outer") else None
        if held is not None:
            return self._weight(held)
        if source.kind == "node":
            return self.output(self._wiring.nodes[source.node], source.index)
        if source.kind == "outer" and self._around is not None and self._wiring.parent is not None:
            return self._around.of(self._wiring.parent.resolve(source.name))
        return source.name

    def output(self, node: Node, index: int) -> str:
        """What an output of a node is called."""
        name = str(node.proto.output[index]) if index < len(node.proto.output) else ""
        if self._given(name) or name in self._ends:
            return name
        return f"{self._named[node.index]}:{index}" if index else self._named[node.index]

    def _given(self, name: str) -> str:
        """The name, where somebody gave it; `relu` is the first of those that are called `relu_1` and on."""
        return "" if name in self._counted else given_name(name)

    def _chosen(self) -> list[str]:
        """For each node the operator and the digest of the least surroundings that no other node has; equal ones are
        counted."""
        digests = self._digests()
        counts = [Counter(level) for level in digests]
        seen: Counter[str] = Counter()
        chosen = [""] * len(self._wiring.nodes)
        for index in self._wiring.order:
            depth = next((it for it, level in enumerate(digests) if counts[it][level[index]] == 1), len(digests) - 1)
            name = f"{operator_words(self._wiring.nodes[index].operator)}.{digests[depth][index]}"
            seen[name] += 1
            chosen[index] = f"{name}~{seen[name]}" if seen[name] > 1 else name
        return chosen

    def _digests(self) -> list[list[str]]:
        own = [self._own(node) for node in self._wiring.nodes]
        levels = [[_short(text) for text in own]]
        for _ in range(_WIDEST):
            before = levels[-1]
            if len(set(before)) == len(before):
                break
            levels.append([_short(f"{own[node.index]}{self._makers(node, before)}") for node in self._wiring.nodes])
        return levels

    def _own(self, node: Node) -> str:
        """A node by itself: its operator, attributes, and what its weights and its given outputs are called."""
        weights = [
            (it, self._weight(held)) for it, source in enumerate(node.sources) if (held := self._wiring.weight(source))
        ]
        outputs = [self._given(name) for name in node.proto.output]
        inputs = [source.name for source in node.sources if source.kind == "input"]
        return repr((node.operator, sorted(node.attributes.items()), weights, outputs, inputs))

    def _makers(self, node: Node, before: list[str]) -> str:
        return repr([(before[it.node], it.index) if it.kind == "node" else it.kind for it in node.every])


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:_DIGITS]
