"""Context of a node in a finding: the source line that created it, its neighboring nodes, and a diagram."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.report import LEVELS, Drawing, DrawnEdge, DrawnNode, Finding
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.view import GraphView, ModelView, NodeView
from onnxgate.model.subgraphs.reduced_models import list_needed_values

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto


MAX_DIAGRAMS = 20
"""Maximum number of diagrams of nodes in a report."""
_UNNAMED_NODE = r"\bthat makes `([^`]+)`"
"""Pattern of the description of an unnamed node in messages."""


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node that is named in a finding of a report."""

    model: str
    node: str  # name of the node, or of its first output
    unnamed: bool = field(compare=False)


def find_named_nodes(findings: Iterable[Finding]) -> list[NamedNode]:
    """List the nodes that errors and warnings name, without duplicates.

    Nodes in the most severe findings come first.
    """
    severe = [finding for finding in findings if finding.level in LEVELS[:2] and not finding.ignored and finding.model]
    severe.sort(key=lambda finding: LEVELS.index(finding.level))
    unique: dict[NamedNode, None] = {}
    for finding in severe:
        match = None if finding.node else re.search(_UNNAMED_NODE, finding.message)
        if finding.node or match:
            node = match[1] if match else finding.node
            unique.setdefault(NamedNode(finding.model, node, unnamed=not finding.node))
    return list(unique)


def draw_named_nodes(findings: Sequence[Finding], files: Mapping[str, Path]) -> tuple[Drawing, ...]:
    """Create diagrams of at most `MAX_DIAGRAMS` nodes, sorted by model and node."""
    return _select_drawings(_iter_drawings(find_named_nodes(findings), files))


def select_most_severe(findings: Sequence[Finding], drawings: Iterable[Drawing]) -> tuple[Drawing, ...]:
    """Select the diagrams for a merged report with these findings from the diagrams in several reports."""
    by_name = {(drawing.model, drawing.node): drawing for drawing in drawings}
    drawn = (by_name.get((named.model, named.node)) for named in find_named_nodes(findings))
    return _select_drawings(filter(None, drawn))


def _select_drawings(drawings: Iterable[Drawing]) -> tuple[Drawing, ...]:
    return tuple(sorted(itertools.islice(drawings, MAX_DIAGRAMS), key=lambda item: (item.model, item.node)))


def _iter_drawings(names: Iterable[NamedNode], files: Mapping[str, Path]) -> Iterator[Drawing]:
    for model, of_model in itertools.groupby(names, lambda item: item.model):
        try:
            drawer = NeighbourhoodDrawer(read_view(files[model]))
            yield from filter(None, map(drawer.draw, of_model))
        except Exception:  # noqa: BLE001 - a report is complete without a diagram
            continue


def describe_nodes(name: str, output: str, others: int = 0, function: str = "", inside: str = "") -> str:
    """Describe one node and the number of other nodes, as in "node `conv0`, and 3 more".

    A node without a name is described by its first output. `inside` is the node whose subgraph contains the node.
    """
    text = f"node `{name}`" if name else f"the node that makes `{output}`"
    if inside:
        text += f" inside `{inside}`"
    if function:
        text += f" in the local function `{function}`"
    return f"{text}, and {others} more" if others else text


_STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Metadata key of a node's stack trace. Source: torch.onnx (dynamo=True) since torch 2.5 adds it to each node."""
_FRAME = r'(?m)^ *File "(?P<path>[^"\n]+)", line (?P<line>[0-9]{1,9}), in [^\n]*(?:\n(?! *File ")(?P<text>[^\n]*))?'
_THIRD_PARTY_FOLDERS = {"site-packages", "dist-packages"}
_MAX_PATH_PARTS = 64
"""Maximum number of folders in the path of a source file. Longer paths are ignored, because each suffix is searched."""
_MAX_FRAMES = 256
"""Maximum number of frames of a stack trace that are searched in the repository, innermost first."""
_MAX_SOURCE_BYTES = 4 * 1024 * 1024
_source_lookup_happened = ContextVar("consulted", default=False)


def find_source_line(node: NodeProto, root: Path, folder: Path) -> Place | None:
    """Return the place of the source line that created the node, relative to `folder`; None if it is not found.

    It is the innermost line of the node's stack trace that is in the repository at `root`. A path from another checkout
    is matched by its longest suffix that exists below `folder` or, if there is none, below `root`. The text of the line
    must still equal the text in the trace.
    """
    traces = [entry.value for entry in node.metadata_props if entry.key == _STACK_TRACE]
    frames = deque((frame for trace in traces for frame in re.finditer(_FRAME, trace)), maxlen=_MAX_FRAMES)
    for frame in reversed(frames):
        _source_lookup_happened.set(True)
        line, text = int(frame["line"]), (frame["text"] or "").strip()
        for path in _find_candidates(frame["path"], root, folder):
            if _has_line(path, line, text):
                relative = Path(os.path.relpath(path, os.path.realpath(folder))).as_posix()
                return Place(relative, line)
    return None


@contextlib.contextmanager
def track_source_lookups() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether `find_source_line` has searched the repository in the `with` block."""
    before = _source_lookup_happened.get()
    _source_lookup_happened.set(False)
    try:
        yield _source_lookup_happened.get
    finally:
        _source_lookup_happened.set(before or _source_lookup_happened.get())


def find_node(model: ModelView, name: str) -> NodeProto | None:
    """Find a node by name, including nodes in subgraphs and local functions; None if there is no such node."""
    return next((node.proto for node in model.nodes() if node.name == name), None) if name else None


@functools.lru_cache(maxsize=4096)  # most nodes of a model have the same frames
def _find_candidates(path: str, root: Path, folder: Path) -> tuple[Path, ...]:
    return tuple(_iter_candidates(path, root, folder))


def _iter_candidates(path: str, root: Path, folder: Path) -> Iterator[Path]:
    """Yield the files in the repository that match `path`: first the path itself, then its suffixes, longest first."""
    parts = PurePath(path.replace("\\", "/")).parts
    if len(parts) > _MAX_PATH_PARTS or _THIRD_PARTY_FOLDERS.intersection(parts) or ".." in parts or "\0" in path:
        return
    top = Path(os.path.realpath(root))
    bases = dict.fromkeys((Path(os.path.realpath(folder)), top))
    for start in range(len(parts)):
        for base in bases:
            real = Path(os.path.realpath(base.joinpath(*parts[start:])))  # an absolute path is unchanged
            if real.is_relative_to(top) and not _THIRD_PARTY_FOLDERS.intersection(real.parts) and os.path.isfile(real):  # noqa: PTH113 - accepts names of any length
                yield real


def _has_line(path: Path, line: int, text: str) -> bool:
    """Return whether the file still contains the line of a stack trace; False if the trace has no text for the line."""
    if not text:
        return False
    try:
        status = path.stat()
        if status.st_size > _MAX_SOURCE_BYTES:
            return False
        lines = _read_lines(path, status.st_size, status.st_mtime_ns)
    except OSError:  # the file was removed since the search
        return False
    return line <= len(lines) and lines[line - 1].strip() == text


@functools.lru_cache(maxsize=8)
def _read_lines(path: Path, _size_bytes: int, _modified_ns: int) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


MAX_BOXES = 16
"""Maximum number of boxes in a diagram of a node.

At least one neighbor of each box next to the central node is drawn, even above this limit.
"""
MAX_INPUT_BOXES, MAX_OUTPUT_BOXES, MAX_SECOND_STEP_BOXES = 5, 3, 3
"""Maximum numbers of boxes in a diagram: for the inputs of the central node, its outputs, and each box's neighbors."""


ScopeChain = tuple[GraphView, ...]
"""A graph or local function, followed by its enclosing graphs."""


class NeighbourhoodDrawer:
    """Draws nodes of one model with their neighbors. What all diagrams need is computed once."""

    def __init__(self, model: ModelView) -> None:
        self._nodes: dict[tuple[str, bool], list[tuple[ScopeChain, NodeView]]] = {}  # by name, and if it is an output
        self._scopes: dict[int, _Scope] = {}  # by `id()` of the graph
        for outermost in (model.graphs[0], *model.functions):
            for chain in _iter_scope_chains((outermost,)):
                for node in chain[0].nodes:
                    for name in (node.name,) if node.name else dict.fromkeys(node.outputs):
                        self._nodes.setdefault((name, not node.name), []).append((chain, node))

    def draw(self, named: NamedNode) -> Drawing | None:
        """Create a diagram of a node with its neighbors; None if the name is unknown or ambiguous.

        Nodes in subgraphs and local functions are also found. Edges are sorted by source and target.
        """
        matches = self._nodes.get((named.node, named.unnamed), ())
        if not named.node or len(matches) != 1:
            return None
        ((chain, node),) = matches
        if id(chain[0]) not in self._scopes:
            self._scopes[id(chain[0])] = _Scope(chain)
        nodes, edges = _NeighbourhoodBuilder(self._scopes[id(chain[0])]).drawn(node.proto)
        return Drawing(model=named.model, node=named.node, nodes=nodes, edges=edges)


def _iter_scope_chains(chain: ScopeChain) -> Iterator[ScopeChain]:
    """Yield each graph or local function of the model, together with its enclosing graphs, innermost first."""
    yield chain
    for node in chain[0].nodes:
        for graph in node.graphs:
            yield from _iter_scope_chains((graph, *chain))


BoxKey = tuple[str, int] | tuple[str, str]
"""Key of a box in a diagram: ("node", `id()` of the node), or the kind and the name of a value."""


class _Scope(msgspec.Struct):
    """Producers and consumers of the values that are visible in one graph, including values of enclosing graphs."""

    chain: Sequence[GraphView]
    nodes: dict[BoxKey, NodeProto] = msgspec.field(default_factory=dict)
    makers: dict[str, BoxKey] = msgspec.field(default_factory=dict)
    takers: dict[str, list[BoxKey]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for graph in reversed(self.chain):  # an inner value hides an outer value of the same name
            holder: GraphProto | FunctionProto = graph.proto
            self.makers.update((value, ("input", value)) for value in _value_names(holder.input))
            weights = [tensor.name for tensor in getattr(holder, "initializer", ())]
            weights += [sparse.values.name for sparse in getattr(holder, "sparse_initializer", ())]
            self.makers.update((value, ("weight", value)) for value in weights)
            for node in graph.nodes:
                key = self._key(node.proto)
                self.makers.update((value, key) for value in node.outputs if value)
        for node in self.chain[0].nodes:
            for value in list_needed_values(node.proto):
                self.takers.setdefault(value, []).append(self._key(node.proto))
        for value in _value_names(self.chain[0].proto.output):
            self.takers.setdefault(value, []).append(("output", value))

    def _key(self, node: NodeProto) -> BoxKey:
        key: BoxKey = ("node", id(node))
        self.nodes[key] = node
        return key

    def before(self, key: BoxKey) -> list[BoxKey]:
        """Return the keys of the boxes that produce the inputs of a box, in input order."""
        return [self.makers[value] for value in self._values_read(key) if value in self.makers]

    def after(self, key: BoxKey) -> list[BoxKey]:
        """Return the keys of the boxes that use the outputs of a box."""
        outputs = (
            (value for value in self.nodes[key].output if value and self.makers[value] == key)
            if key in self.nodes
            else ()
        )
        return [taker for value in outputs for taker in self.takers.get(value, ())]

    def values(self, source: BoxKey, target: BoxKey) -> Iterator[str]:
        """Yield the names of the values that one box of a diagram passes to another."""
        return (value for value in self._values_read(target) if self.makers.get(value) == source)

    def _values_read(self, key: BoxKey) -> Iterable[str]:
        if key in self.nodes:
            return list_needed_values(self.nodes[key])
        return (str(key[1]),) if key[0] == "output" else ()

    def box(self, key: BoxKey) -> DrawnNode:
        """Return the box that represents a node or a value in the diagram. A `Constant` node is drawn as a weight."""
        if key not in self.nodes:
            kind: Literal["input", "output", "weight"]
            kind = "input" if key[0] == "input" else "output" if key[0] == "output" else "weight"
            return DrawnNode(name=str(key[1]), kind=kind)
        node = self.nodes[key]
        name = node.name or next(filter(None, node.output), "")
        is_constant = node.op_type == "Constant" and not node.domain
        return DrawnNode(name=name, operator=format_operator_name(node), kind="weight" if is_constant else "node")


def _value_names(values: Iterable[ValueInfoProto | str]) -> Iterator[str]:
    """Return the names of the inputs or outputs of a graph or a function."""
    return (value if isinstance(value, str) else value.name for value in values)


class _NeighbourhoodBuilder(msgspec.Struct):
    """Collects the boxes of a node's diagram, starting with the boxes nearest to the node."""

    scope: _Scope
    boxes: dict[BoxKey, DrawnNode] = msgspec.field(default_factory=dict)
    # (box, whether the omitted boxes are before it, number of omitted boxes)
    more: list[tuple[BoxKey, bool, int]] = msgspec.field(default_factory=list)

    def drawn(self, node: NodeProto) -> tuple[tuple[DrawnNode, ...], tuple[DrawnEdge, ...]]:
        """Return the boxes and edges up to two steps before and after the node."""
        centre: BoxKey = ("node", id(node))
        self.boxes[centre] = msgspec.structs.replace(self.scope.box(centre), kind="failing")
        up = self._extend(centre, self.scope.before(centre), True, MAX_INPUT_BOXES)
        down = self._extend(centre, self.scope.after(centre), False, MAX_OUTPUT_BOXES)
        further = [(key, self.scope.before(key), True) for key in up]
        further += [(key, self.scope.after(key), False) for key in down]
        for waiting, (key, others, before) in zip(range(len(further) - 1, -1, -1), further, strict=True):
            free_boxes = MAX_BOXES - len(self.boxes) - len(self.more) - waiting
            self._extend(key, others, before, max(1, min(MAX_SECOND_STEP_BOXES, free_boxes)))
        return self._numbered()

    def _extend(self, key: BoxKey, others: Iterable[BoxKey], before: bool, limit: int) -> list[BoxKey]:
        """Add the neighbors of a box on one side.

        If there are more than `limit`, the last place is used for the number of omitted neighbors.
        """
        fresh = [it for it in dict.fromkeys(others) if it not in self.boxes]
        shown = fresh if len(fresh) <= limit else fresh[: limit - 1]
        self.boxes.update((item, self.scope.box(item)) for item in shown)
        if len(fresh) > len(shown):
            self.more.append((key, before, len(fresh) - len(shown)))
        return shown

    def _numbered(self) -> tuple[tuple[DrawnNode, ...], tuple[DrawnEdge, ...]]:
        numbers = {key: index for index, key in enumerate(self.boxes)}
        arrows = [
            DrawnEdge(source=numbers[source], target=numbers[target], value=value)
            for target in self.boxes
            for source in dict.fromkeys(self.scope.before(target))
            if source in numbers
            for value in self.scope.values(source, target)
        ]
        boxes = list(self.boxes.values())
        for key, before, count in self.more:
            source, target = (len(boxes), numbers[key]) if before else (numbers[key], len(boxes))
            arrows.append(DrawnEdge(source=source, target=target))
            boxes.append(DrawnNode(name=f"{count} more", kind="more"))
        return tuple(boxes), tuple(sorted(arrows, key=lambda item: (item.source, item.target)))
