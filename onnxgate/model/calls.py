"""How far calls of local functions reach: how many nodes they become, how deep they nest, and which never end.

A file of a kilobyte can hold functions that become more nodes than any memory has room for. So nobody follows calls,
neither ourselves nor onnx for us, before it is known here that they end soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxgate.model.cutting import FunctionKey, called, function_key
from onnxgate.model.structure import graphs, nodes_of

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_NODES = 100_000
"""Calls that become more nodes than this, all of a model together, are not followed."""
DEEPEST = 64
"""Nor are calls that nest deeper than this."""
RECURSIVE = "calls itself, directly or through others"


@dataclass(frozen=True, slots=True)
class Reach:
    """What one call of a function becomes."""

    nodes: int  # `MOST_NODES` + 1 where it is more
    depth: int


def reaches(model: ModelProto) -> dict[FunctionKey, Reach]:
    """The reach of each local function; of one that calls itself, directly or through others, none. Linear in size."""
    functions = {function_key(function): function for function in model.functions}
    if not functions:
        return {}
    sizes: dict[FunctionKey, int] = {}
    callees: dict[FunctionKey, Counter[FunctionKey]] = {}
    for key, function in functions.items():
        every = [called(node) for node in nodes_of(function)]
        sizes[key], callees[key] = len(every), Counter(each for each in every if each in functions)
    return _bottom_up(sizes, callees)


def _bottom_up(
    sizes: Mapping[FunctionKey, int], callees: Mapping[FunctionKey, Counter[FunctionKey]]
) -> dict[FunctionKey, Reach]:
    """Each function after those that it calls; those in a ring, and those that call into one, never come."""
    callers: dict[FunctionKey, list[FunctionKey]] = {key: [] for key in sizes}
    waiting = {key: len(each) for key, each in callees.items()}
    for key, each in callees.items():
        for callee in each:
            callers[callee].append(key)
    ready = [key for key, count in waiting.items() if not count]
    found: dict[FunctionKey, Reach] = {}
    while ready:
        key = ready.pop()
        inner = sum(count * found[callee].nodes for callee, count in callees[key].items())
        depth = 1 + max((found[callee].depth for callee in callees[key]), default=0)
        found[key] = Reach(min(sizes[key] + inner, MOST_NODES + 1), depth)
        for caller in callers[key]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    return found


def endless(model: ModelProto, found: Mapping[FunctionKey, Reach]) -> tuple[FunctionKey, ...]:
    """The local functions without a reach, sorted."""
    return tuple(sorted({function_key(function) for function in model.functions} - found.keys()))


def why_not_followed(model: ModelProto) -> str:
    """Why the calls of a model's local functions are not followed; "" where they are."""
    if not model.functions:
        return ""
    found = reaches(model)
    if unending := endless(model, found):
        return f"its local function `{label(unending[0])}` {RECURSIVE}"
    if any(each.depth > DEEPEST for each in found.values()):
        return f"its local functions call one another more than {DEEPEST} deep"
    every = (called(node) for graph in graphs(model) for node in graph.node)
    if _total(every, found) > MOST_NODES:
        return f"its local functions become more than {MOST_NODES:,} nodes"
    return ""


def _total(calls: Iterable[FunctionKey], found: Mapping[FunctionKey, Reach]) -> int:
    return sum(found[key].nodes for key in calls if key in found)


def label(key: FunctionKey) -> str:
    """A function as messages name it."""
    domain, name, overload = key
    return f"{domain}.{name}" + (f":{overload}" if overload else "")
