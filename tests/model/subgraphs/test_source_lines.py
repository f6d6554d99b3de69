"""The source line that created a node."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from onnx import NodeProto

from onnxgate.core.findings import Place
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import find_node, find_source_line
from tests.harness.models import parse
from tests.model.equality.test_model_comparison import BRANCHES

NET = """class Net:
    def forward(self, x):
        return self.head(x)

    def head(self, x):
        return x + 1
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose config is in a subfolder."""
    for path, text in {
        "ml/export/net.py": NET,
        "ml/.venv/lib/site-packages/lib.py": NET,
        "net.py": "# another file of that name\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def frame(path: str, line: int, text: str) -> str:
    """Return one frame in PyTorch's format."""
    return f'File "{path}", line {line}, in forward\n    {text}\n'


def place(repository: Path, *frames: str) -> Place | None:
    """Return the place of a node with these frames."""
    node = NodeProto()
    node.metadata_props.add(key="namespace", value="x")
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="".join(frames))
    return find_source_line(node, repository, repository / "ml")


RETURN = "return self.head(x)"


def test_innermost_line_of_the_repository(repository: Path) -> None:
    """The innermost frame in a repository file is used; libraries are ignored even inside the repository."""
    net, library = repository / "ml/export/net.py", repository / "ml/.venv/lib/site-packages/lib.py"

    shown = place(
        repository,
        frame(str(net), 3, RETURN),
        frame(str(net), 6, "return x + 1") + "           ~~^~~\n",
        frame(str(library), 6, "return x + 1"),
        frame("/usr/lib/python3/functional.py", 9, "return relu(x)"),
    )

    assert shown == Place("export/net.py", 6)


@pytest.mark.parametrize(
    "path",
    [
        "/home/runner/work/project/ml/export/net.py",
        "C:\\agent\\project\\ml\\export\\net.py",
        "ml/export/net.py",
    ],
)
def test_other_checkouts(repository: Path, path: str) -> None:
    """A path from another machine is found by its last parts."""
    assert place(repository, frame(path, 3, RETURN)) == Place("export/net.py", 3)


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [
        ("/home/runner/ml/export/net.py", 4, RETURN),
        ("/home/runner/ml/export/net.py", 3, "return self.tail(x)"),
        ("/home/runner/ml/export/net.py", 99, RETURN),
        ("/home/runner/ml/export/net.py", 3, ""),
        ("/home/runner/elsewhere/model.py", 3, RETURN),
        ("/home/runner/../../ml/export/net.py", 3, RETURN),
        ("ml/export/\0net.py", 3, RETURN),
    ],
)
def test_no_place(repository: Path, path: str, line: int, text: str) -> None:
    """A line that differs from the one quoted in the trace is not used."""
    assert place(repository, frame(path, line, text)) is None


def test_files_outside_are_not_read(repository: Path) -> None:
    """A file outside the repository, or linked from outside, is not used."""
    outside = repository.parent / f"{repository.name}-outside.py"
    outside.write_text(NET)
    (repository / "linked.py").symlink_to(outside)

    shown = [place(repository, frame(str(path), 3, RETURN)) for path in (outside, repository / "linked.py")]
    outside.unlink()

    assert shown == [None, None]


def test_node_without_trace(repository: Path) -> None:
    """A node without a trace has no source line."""
    assert find_source_line(NodeProto(), repository, repository) is None


def test_named_node() -> None:
    """Nodes in branches are found; an empty name matches no node."""
    model = parse(BRANCHES.replace("h = Neg", "[inner] h = Neg"))

    node = find_node(ModelView(model), "inner")

    assert (node and node.op_type, find_node(ModelView(model), ""), find_node(ModelView(model), "none")) == (
        "Neg",
        None,
        None,
    )


def test_costs_do_not_grow_with_the_trace(tmp_path: Path) -> None:
    """Only the innermost frames of a trace are searched, and each file only once."""
    costs = []
    for frames in (1000, 8000):
        traced = NodeProto()
        trace = "".join(f'  File "/a/b/c/d{frames}_{i}.py", line {i}, in f\n    return x\n' for i in range(frames))
        traced.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
        start = time.process_time()
        find_source_line(traced, tmp_path, tmp_path)
        costs.append(time.process_time() - start)

    assert costs[1] < 4 * costs[0] + 0.1
