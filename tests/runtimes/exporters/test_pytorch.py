"""Exports of real PyTorch modules by the worker in the toolchain's interpreter."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxgate.runtimes
from onnxgate.core.jobs import ExportResult

pytestmark = pytest.mark.torch

WORKER = Path(onnxgate.runtimes.__file__).parent / "worker"
CNN = """
    import torch
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3, padding=1)
            self.bn = nn.BatchNorm2d(4)
            self.head = nn.Linear(4, 3)

        def forward(self, image):
            return self.head(torch.relu(self.bn(self.conv(image))).mean((2, 3)))

    def build():
        return {
            "model": Classifier().eval(),
            "args": (torch.randn(2, 1, 8, 8),),
            "dynamic_shapes": {"image": {0: "batch"}},
        }
"""


class Asker:
    """One persistent export worker, with a project folder per test."""

    def __init__(self, worker: subprocess.Popen[str], folder: Path, log: Path) -> None:
        self.worker, self.folder, self.log = worker, folder, log
        self.count = 0

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def ask(self, source: str, **job: Any) -> dict[str, Any]:
        """Export `file.py:callable` of the project."""
        return self.ask_with_phases(source, **job)[0]

    def ask_with_phases(self, source: str, **job: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the result and the reported phases."""
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        self.count += 1
        output = self.folder / f"output{self.count}"
        output.mkdir()
        asked = {
            "kind": "export",
            "source": str(self.folder / source),
            "output": str(output),
            "folder": str(self.folder),
            "opset": None,
            "ir_version_max": None,
            "cases": [],
            "external_data": False,
            "export": True,
            "float64": True,
        }
        request = {"id": self.count, "engine": "", "memory_mib": None, "job": {**asked, **job}}
        self.worker.stdin.write(json.dumps(request) + "\n")
        self.worker.stdin.flush()
        phases: list[str] = []
        for line in self.worker.stdout:
            message = json.loads(line)
            if "reply" in message:
                assert message["reply"]["outcome"] == "completed"
                defaults = json.loads(msgspec.json.encode(ExportResult(model=None)))  # as the pool decodes a response
                return {**defaults, **message["reply"]["result"]}, phases
            phases.append(message["phase"])
        raise AssertionError("the worker ended")

    def case(self, name: str, **inputs: Any) -> dict[str, Any]:
        """Return a case with these arrays."""
        paths = {}
        for key, value in inputs.items():
            path = self.folder / f"{name}-{key}.npy"
            np.save(path, value)
            paths[key] = str(path)
        return {"name": name, "origin": "generated", "inputs": paths, "sizes": {}}


@pytest.fixture(scope="module")
def worker(toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Yield one process for all tests of this file, so that leftovers of one export would affect the next."""
    log = tmp_path_factory.mktemp("worker") / "log"
    command = [str(toolchain), "-s", "-B", "-X", "utf8", str(WORKER / "__main__.py")]
    pipe = subprocess.PIPE
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=output, text=True) as process,
    ):
        yield process, log
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def project(worker: tuple[subprocess.Popen[str], Path], tmp_path: Path) -> Asker:
    """Return an empty project."""
    return Asker(worker[0], tmp_path, worker[1])


def failure(result: dict[str, Any]) -> tuple[str, str]:
    """Return the exception class and the text of the failure."""
    assert result["failure"] is not None
    assert result["model"] is None

    return result["failure"]["type"], result["failure"]["text"]


def outputs(result: dict[str, Any], key: str, index: int) -> list[np.ndarray[Any, Any]]:
    """Return the output arrays of one case."""
    assert result[key][index]["failure"] is None

    return [np.load(path) for path in result[key][index]["outputs"]]


def test_cnn_with_a_dynamic_batch(project: Asker) -> None:
    """A convolutional classifier is exported with a dynamic batch, and its outputs are computed in both precisions."""
    project.write("export/classifier.py", CNN)
    image = np.random.default_rng(0).standard_normal((3, 1, 8, 8), dtype=np.float32)
    result = project.ask("export/classifier.py:build", opset=18, cases=[project.case("batch=3", image=image)])

    assert result["failure"] is None
    model = onnx.load(result["model"])
    onnx.checker.check_model(model, full_check=True)
    assert result["input_names"] == ["image"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert model.opset_import[0].version == 18
    assert not result["was_training"]
    narrow, wide = outputs(result, "eager", 0)[0], outputs(result, "eager64", 0)[0]
    assert ((3, 3), np.float32, np.float64) == (narrow.shape, narrow.dtype, wide.dtype)
    assert 0 < np.abs(narrow - wide).max() < 1e-5


def test_exported_graph_agrees_with_the_source(project: Asker) -> None:
    """The outputs of the source agree with those of the exported graph, for the given case and for the sample."""
    from onnx.reference import ReferenceEvaluator

    project.write("classifier.py", CNN)
    image = np.random.default_rng(0).standard_normal((1, 1, 8, 8), dtype=np.float32)
    result = project.ask("classifier.py:build", cases=[project.case("one", image=image)])
    evaluator = ReferenceEvaluator(result["model"])

    (sample,) = result["sample"]
    for index, array in enumerate((image, np.load(sample))):
        (expected,) = evaluator.run(None, {"image": array})
        np.testing.assert_allclose(outputs(result, "eager", index)[0], expected, atol=1e-5)


def test_two_exports_are_the_same_bytes(project: Asker) -> None:
    """Weights are drawn with fixed seeds, even if the module has been imported before."""
    project.write("classifier.py", dedent(CNN) + "DRAWN_AT_IMPORT = torch.rand(3)\n")
    first, second = project.ask("classifier.py:build"), project.ask("classifier.py:build")

    assert Path(first["model"]).read_bytes() == Path(second["model"]).read_bytes()


def test_bytes_do_not_depend_on_the_folder(project: Asker) -> None:
    """Stack traces name the source relative to the project, so the file contains no absolute paths."""
    for folder in ("here", "there/again"):
        project.write(f"{folder}/classifier.py", CNN)
    here, there = (
        project.ask(f"{folder}/classifier.py:build", folder=str(project.folder / folder))
        for folder in ("here", "there/again")
    )

    assert Path(here["model"]).read_bytes() == Path(there["model"]).read_bytes()
    (node,) = (node for node in onnx.load(here["model"]).graph.node if node.op_type == "Relu")
    traces = [entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.stack_trace"]
    assert traces[0].startswith('File "classifier.py", line 13, in forward\n')
    assert str(project.folder).encode() not in Path(here["model"]).read_bytes()


def test_transformer_with_mask_and_integers(project: Asker) -> None:
    """Integer inputs, a boolean mask and keyword arguments are passed to the source in the order of the graph."""
    project.write(
        "encoder.py",
        """
        import torch
        from torch import nn

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(50, 16)
                layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
                self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

            def forward(self, ids, *, padding):
                return self.layers(self.embed(ids), src_key_padding_mask=padding)

        def build():
            batch, time = "batch", "time"
            return {
                "model": Encoder(),
                "args": (torch.randint(0, 50, (2, 5)),),
                "kwargs": {"padding": torch.zeros(2, 5, dtype=torch.bool)},
                "dynamic_shapes": {"ids": {0: batch, 1: time}, "padding": {0: batch, 1: time}},
                "output_names": ["states"],
            }
        """,
    )
    ids = np.array([[1, 2, 3], [4, 0, 0], [9, 9, 9]], np.int32)
    padding = np.array([[False] * 3, [False, True, True], [False] * 3])
    result, phases = project.ask_with_phases(
        "encoder.py:build", opset=18, cases=[project.case("time=3", padding=padding, ids=ids)]
    )

    assert result["failure"] is None
    assert result["input_names"] == ["ids", "padding"]
    assert result["was_training"]
    assert outputs(result, "eager", 0)[0].shape == (3, 3, 16)
    assert np.float64 == outputs(result, "eager64", 0)[0].dtype
    model = onnx.load(result["model"])
    assert [output.name for output in model.graph.output] == ["states"]
    assert "Dropout" not in {node.op_type for node in model.graph.node}
    assert "source on case time=3" in phases


@pytest.mark.parametrize(("requested", "written"), [(15, 18), (17, 18), (18, 18), (23, 23)])
def test_requested_and_written_opset(project: Asker, requested: int, written: int) -> None:
    """PyTorch silently keeps opset 18 if it cannot convert to an older one, so the version is read from the file."""
    project.write("classifier.py", CNN)
    result = project.ask("classifier.py:build", opset=requested)

    assert result["failure"] is None
    assert written == onnx.load(result["model"]).opset_import[0].version


@pytest.mark.parametrize(
    ("opset", "highest", "stamped"), [(18, None, 10), (18, 9, 9), (18, 3, 8), (21, 9, 10), (20, 12, 10)]
)
def test_ir_version_is_lowered_no_further_than_it_can_be(
    project: Asker, opset: int, highest: int | None, stamped: int
) -> None:
    """The IR version is lowered to the runtimes' limit, but not below what the opset requires, and never raised."""
    project.write("classifier.py", CNN)
    result = project.ask("classifier.py:build", opset=opset, ir_version_max=highest)

    model = onnx.load(result["model"])
    onnx.checker.check_model(model, full_check=True)
    assert stamped == model.ir_version


@pytest.mark.parametrize(("limit", "written"), [(18, 18), (19, 19), (25, 20), (None, 20)])
def test_opset_without_a_pin(project: Asker, limit: int | None, written: int) -> None:
    """PyTorch's default (20 in 2.13) is used if every target supports it; otherwise the newest supported opset."""
    project.write("classifier.py", CNN)
    result = project.ask("classifier.py:build", opset_max=limit)

    assert result["failure"] is None
    assert written == onnx.load(result["model"]).opset_import[0].version


TRANSLATED = """
    import torch
    import onnxscript
    from onnxscript import opset18 as op

    class Svd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.det(x * 2)

    def det(x):
        return op.Det(x)

    def build():
        table = {torch.ops.aten._linalg_det.default: lambda x: (op.Det(x), x, x)}
        return {"model": Svd(), "args": torch.eye(2), "opset_version": OPSET, "custom_translation_table": table}
"""


@pytest.mark.parametrize(("opset", "pinned", "written"), [(21, None, 21), (21, 19, 19), (None, None, 20)])
def test_options_of_the_source(project: Asker, opset: int | None, pinned: int | None, written: int) -> None:
    """A source can request an opset, which a pin replaces, and translate operators itself."""
    project.write("m.py", TRANSLATED.replace("OPSET", str(opset)))
    result = project.ask("m.py:build", opset=pinned, opset_max=20)

    assert result["failure"] is None
    assert onnx.load(result["model"]).opset_import[0].version == written
    assert result["details"]["opset"] == opset


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('"opset_version": "18"', "a value of type `str` as `opset_version`; expected an integer"),
        ('"dynamo": False, "custom_translation_table": {}', "`custom_translation_table` with `dynamo: False`"),
    ],
)
def test_wrong_options_of_the_source(project: Asker, options: str, says: str) -> None:
    """Options that the exporter does not take are refused with the expected ones."""
    text = f"import torch\ndef build(): return {{'model': torch.nn.ReLU(), 'args': torch.ones(2), {options}}}\n"
    project.write("m.py", text)

    assert says in failure(project.ask("m.py:build"))[1]


def test_data_dependent_branch(project: Asker) -> None:
    """The failure is PyTorch's cause in one line, at the user's line; the source itself still runs."""
    project.write(
        "branch.py",
        """
        import torch

        class Branch(torch.nn.Module):
            def forward(self, x):
                if x.sum() > 0:
                    return x + 1
                return x - 1

        def build():
            return Branch(), (torch.ones(2),)
        """,
    )
    result = project.ask("branch.py:build")

    kind, text = failure(result)
    assert kind == "GuardOnDataDependentSymNode"
    assert text.startswith("Could not guard on data-dependent expression Eq(u0, 1)")
    assert "\n" not in text
    assert "TORCH_LOGS" not in text
    assert result["failure"]["source"] == "branch.py:6"
    assert outputs(result, "eager", 0)[0].tolist() == [2.0, 2.0]


def test_operator_without_a_conversion(project: Asker) -> None:
    """The line is read from the node, because the user's code is no longer on the stack."""
    project.write(
        "svd.py",
        """
        import torch

        class Svd(torch.nn.Module):
            def forward(self, x):
                return torch.linalg.svd(x * 2)[1]

        def build():
            return Svd(), torch.ones(2, 2)
        """,
    )
    result = project.ask("svd.py:build")

    kind, text = failure(result)
    assert kind == "DispatchError"
    assert "aten._linalg_svd" in text
    assert result["failure"]["source"] == "svd.py:6"


def test_error_inside_forward(project: Asker) -> None:
    """The failure names the user's line, not PyTorch's."""
    project.write(
        "shapes.py",
        """
        import torch

        class Shapes(torch.nn.Module):
            def forward(self, x):
                return x @ torch.zeros(7, 7)

        def build():
            return Shapes(), (torch.ones(2, 4),)
        """,
    )
    result = project.ask("shapes.py:build")

    assert failure(result)[0] == "RuntimeError"
    assert result["failure"]["source"] == "shapes.py:6"
    assert result["eager"][0]["failure"]["source"] == "shapes.py:6"


def test_import_that_raises(project: Asker) -> None:
    """An error during import names the line of the project file that raised it."""
    project.write("settings.py", "import json\n\nVALUES = json.loads('{')\n")
    project.write("broken.py", "import settings\n")
    result = project.ask("broken.py:build")

    kind, text = failure(result)
    assert kind == "JSONDecodeError"
    assert text.startswith("Expecting property name")
    assert result["failure"]["source"] == "settings.py:3"


@pytest.mark.parametrize(
    ("text", "kind", "says", "line"),
    [
        ("def build(:\n", "SyntaxError", "invalid syntax", "broken.py:1"),
        ("import no_such_package\n", "ModuleNotFoundError", "No module named 'no_such_package'", "broken.py:1"),
        ("\nimport sys\nsys.exit(4)\n", "SystemExit", "the source exited with status 4", "broken.py:3"),
        ("other = 1\n", "SourceError", "`broken.py` has no callable `build`", ""),
        ("build = 1\n", "SourceError", "`broken.py` has no callable `build`", ""),
        ("def build():\n    raise OSError('no weights at here')\n", "OSError", "no weights at here", "broken.py:2"),
        (
            "def build():\n try:\n  {}['a']\n except KeyError as error:\n  raise ValueError('bad a') from error\n",
            "ValueError",
            "bad a (caused by KeyError: 'a')",
            "broken.py:3",
        ),
    ],
)
def test_source_that_cannot_be_called(project: Asker, text: str, kind: str, says: str, line: str) -> None:
    """Any error before the export is reported with the user's line and does not end the worker."""
    project.write("broken.py", text)
    result = project.ask("broken.py:build")

    assert (kind, says) == failure(result)
    assert line == result["failure"]["source"]
    assert result["eager"] == []


def test_source_file_that_is_not_there(project: Asker) -> None:
    """The failure names the missing file."""
    assert failure(project.ask("gone.py:build")) == ("SourceError", "file `gone.py` does not exist")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("None", "`build` returned None; expected `(module, args)` or a mapping with `model` and `args`"),
        (
            "model",
            "`build` returned a value of type `Linear`; expected `(module, args)` or a mapping with `model` and `args`",
        ),
        (
            "(model, x, 1)",
            "`build` returned a tuple of 3; expected `(module, args)` or a mapping with `model` and `args`",
        ),
        ("('model', (x,))", "`build` returned a value of type `str` as the model; expected a `torch.nn.Module`"),
        ("(model, 3)", "`build` returned a value of type `int` as `args`; expected a tuple"),
        (
            "{'model': model, 'arg': (x,)}",
            "`build` returned a mapping with unknown key `arg`; did you mean `args`?",
        ),
        (
            "{'args': (x,)}",
            "`build` returned a mapping without `model`; "
            "expected `(module, args)` or a mapping with `model` and `args`",
        ),
    ],
)
def test_callable_that_returns_something_else(project: Asker, returned: str, says: str) -> None:
    """The message names the returned value and the expected one."""
    project.write(
        "odd.py",
        f"import torch\nmodel, x = torch.nn.Linear(2, 2), torch.ones(1, 2)\ndef build():\n    return {returned}\n",
    )

    assert ("SourceError", says) == failure(project.ask("odd.py:build"))


def test_heavy_printing(project: Asker) -> None:
    """The source's output, from Python or native code, goes to the log and does not disturb the response."""
    project.write(
        "loud.py",
        """
        import os, sys, torch
        os.write(1, b"below python\\n" * 20000)

        class Loud(torch.nn.Linear):
            def forward(self, x):
                print("forward" * 50)
                print("to stderr", file=sys.stderr)
                return super().forward(x)

        def build():
            print(input_or_end())
            return Loud(2, 2), (torch.ones(1, 2),)

        def input_or_end():
            try:
                return input()
            except EOFError:
                return "nothing to read"
        """,
    )
    result = project.ask("loud.py:build")

    assert result["failure"] is None
    log = project.log.read_text()
    assert log.count("below python") >= 20000
    assert "forwardforward" in log
    assert "nothing to read" in log


def test_outputs_in_containers(project: Asker) -> None:
    """Outputs are flattened as the exporter flattens them, without None values."""
    project.write(
        "outputs.py",
        """
        import torch

        class Outputs(torch.nn.Module):
            def forward(self, x, pair):
                return {"z": x * 2, "a": (x + 1, None), "m": [pair[0] - pair["k" and 1]]}

        def build():
            return Outputs(), (torch.ones(2), (torch.ones(2), torch.ones(2)))
        """,
    )
    result = project.ask("outputs.py:build")

    assert result["failure"] is None
    assert len(onnx.load(result["model"]).graph.output) == 3
    assert [output.tolist() for output in outputs(result, "eager", 0)] == [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]
    assert len(result["sample"]) == 3


def test_output_none(project: Asker) -> None:
    """A module that returns None has no eager outputs."""
    project.write(
        "none.py",
        """
        import torch

        class Nothing(torch.nn.Module):
            def forward(self, x):
                return None

        def build():
            return Nothing(), (torch.ones(2),)
        """,
    )

    assert outputs(project.ask("none.py:build"), "eager", 0) == []


def test_bfloat16_is_stored_as_float32(project: Asker) -> None:
    """numpy has no bfloat16: outputs are converted to float32, and the sample, which must keep its type, is omitted."""
    project.write(
        "half.py",
        """
        import torch

        def build():
            return torch.nn.Linear(2, 2).bfloat16(), (torch.ones(1, 2, dtype=torch.bfloat16),)
        """,
    )
    result = project.ask("half.py:build")

    assert result["failure"] is None
    assert [(output.dtype, output.shape) for output in outputs(result, "eager", 0)] == [(np.float32, (1, 2))]
    assert result["sample"] == []


def test_state_does_not_travel_between_cases(project: Asker) -> None:
    """Buffers are reset before each case, as in the exported graph, which has no state."""
    project.write(
        "counter.py",
        """
        import torch

        class Counter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(1))
                self.register_buffer("again", torch.zeros(1))

            def forward(self, x):
                self.seen += 1
                self.again = self.again + 1
                return x + self.seen + self.again

        def build():
            return Counter(), (torch.zeros(1),)
        """,
    )
    zero = np.zeros(1, np.float32)
    result = project.ask("counter.py:build", cases=[project.case("a", x=zero), project.case("b", x=zero)])

    assert [outputs(result, "eager", index)[0].tolist() for index in range(3)] == [[2.0], [2.0], [2.0]]
    assert [outputs(result, "eager64", index)[0].tolist() for index in range(3)] == [[2.0], [2.0], [2.0]]


def test_padding_is_computed_as_it_is_exported(project: Asker) -> None:
    """The eager run does not use PyTorch's fast path for attention, which writes zeros for padding."""
    project.write(
        "masked.py",
        """
        import torch
        from torch import nn

        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
                self.encoder = nn.TransformerEncoder(layer, 2)

            def forward(self, x, mask):
                return self.encoder(x, src_key_padding_mask=mask == 0)

        def build():
            mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
            return Masked(), (torch.randn(2, 3, 8), mask)

        def switched():
            return nn.Linear(1, 1), (torch.full((1, 1), float(torch.backends.mha.get_fastpath_enabled())),)
        """,
    )
    result = project.ask("masked.py:build")
    (narrow,), (wide,) = outputs(result, "eager", 0), outputs(result, "eager64", 0)
    feeds = dict(zip(("x", "mask"), map(np.load, result["sample"]), strict=True))
    (exported,) = ReferenceEvaluator(result["model"]).run(None, feeds)

    np.testing.assert_allclose(narrow, exported, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(wide, exported, rtol=1e-4, atol=1e-5)
    assert np.load(project.ask("masked.py:switched")["sample"][0]).item() == 1.0


def test_failure_contains_no_local_path(project: Asker) -> None:
    """Paths in messages are relative to the project, so that findings are the same on every machine."""
    project.write(
        "export/weights.py",
        """
        from pathlib import Path

        def build():
            return (Path(__file__).resolve().parent / "data" / "gone.pt").read_bytes()
        """,
    )

    says = "[Errno 2] No such file or directory: 'export/data/gone.pt'"
    assert ("FileNotFoundError", says) == failure(project.ask("export/weights.py:build"))


def test_one_case_fails_alone(project: Asker) -> None:
    """A failing case does not affect the other cases."""
    project.write("classifier.py", CNN)
    good, bad = np.zeros((1, 1, 8, 8), np.float32), np.zeros((1, 2, 8, 8), np.float32)
    wrong_kind = np.zeros((1, 1, 8, 8), np.int64)
    cases = [project.case("bad", image=bad), project.case("good", image=good), project.case("kind", image=wrong_kind)]
    result = project.ask("classifier.py:build", cases=cases)

    assert result["eager"][0]["failure"]["source"] == "classifier.py:13"
    assert outputs(result, "eager", 1)[0].shape == (1, 3)
    assert (
        result["eager"][2]["failure"]["text"]
        == "an input has type torch.float32 in the source, but torch.int64 in the model"
    )
    assert result["failure"] is None


def test_other_number_of_inputs(project: Asker) -> None:
    """If the model and the source have different numbers of inputs, they are not compared; a reason is reported."""
    project.write("classifier.py", CNN)
    zero = np.zeros((1, 1, 8, 8), np.float32)
    result = project.ask("classifier.py:build", cases=[project.case("two", image=zero, mask=zero)])

    assert result["eager_reason"] == "the source has 1 input, but the model has 2"
    assert result["eager"] == []
    assert result["model"] is not None


def test_input_that_the_model_dropped(project: Asker) -> None:
    """If the exporter drops an unused input, the others are matched by the names from the source."""
    project.write(
        "unused.py",
        """
        import torch

        class Unused(torch.nn.Module):
            def forward(self, a, unused, b):
                return a - 2 * b

        def build():
            args = (torch.ones(2), torch.zeros(1), torch.ones(2))
            return {"model": Unused(), "args": args, "input_names": ["a", "unused", "b"]}
        """,
    )
    a, b = np.array([5.0, 7.0], np.float32), np.array([1.0, 2.0], np.float32)
    result = project.ask("unused.py:build", cases=[project.case("two", b=b, a=a)], export=False)

    assert [outputs(result, key, 0)[0].tolist() for key in ("eager", "eager64")] == [[3.0, 3.0]] * 2
    assert result["input_names"] == ["a", "b"]
    assert [np.load(path).tolist() for path in result["sample"]] == [[1.0, 1.0], [1.0, 1.0]]


def test_no_float64(project: Asker) -> None:
    """If a module cannot run in float64, only its float64 outputs are missing, with the reason."""
    project.write(
        "narrow.py",
        """
        import torch

        class Narrow(torch.nn.Module):
            def forward(self, x):
                return x @ torch.ones(2, 2, dtype=torch.float32)

        def build():
            return Narrow(), (torch.ones(1, 2),)
        """,
    )
    result = project.ask("narrow.py:build")

    assert outputs(result, "eager", 0)[0].tolist() == [[2.0, 2.0]]
    assert result["eager64"][0]["failure"]["source"] == "narrow.py:6"


@pytest.mark.parametrize("export", [True, False])
def test_float64_runs_do_not_use_values_of_other_runs(project: Asker, export: bool) -> None:
    """A module may keep tables of the length of its input, which would remain in float32."""
    project.write(
        "table.py",
        """
        import torch

        class Table(torch.nn.Module):
            table = None

            def forward(self, x):
                if self.table is None:
                    self.table = (torch.arange(2) * 0.1).sin()
                return x * self.table

        def build():
            return Table(), (torch.ones(2),)
        """,
    )
    result = project.ask("table.py:build", export=export)

    assert abs(outputs(result, "eager64", 0)[0][1] - np.sin(0.1)) < 1e-12


def test_a_module_that_cannot_be_copied_is_not_converted_after_its_export(project: Asker) -> None:
    """The conversion to float64 would change the module that other jobs use; a job without an export may convert it."""
    project.write(
        "single.py",
        """
        import torch

        class Single(torch.nn.Linear):
            def __deepcopy__(self, memo):
                raise TypeError("not copied")

        def build():
            return Single(2, 2), (torch.ones(1, 2),)
        """,
    )
    exported, alone = (project.ask("single.py:build", export=export) for export in (True, False))

    assert (1, []) == (len(exported["eager"]), exported["eager64"])
    assert outputs(alone, "eager64", 0)[0].dtype == np.float64


def test_float16_weights_of_a_model_are_rounded(project: Asker) -> None:
    """In the float64 run, the weights that a model stores in float16 are rounded, and all others are not.

    Exporters fold normalizations into convolutions, so that the stored weights are other weights.
    """
    project.write(
        "rounded.py",
        """
        import torch

        class Scale(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.stored = torch.nn.Parameter(torch.tensor([0.1, 0.3]))
                self.other = torch.nn.Parameter(torch.tensor([0.1, 0.7]))

            def forward(self, x):
                return x * self.stored, x * self.other

        def build():
            return Scale(), (torch.ones(2),)

        def folded(eps=1e-5):
            norm = torch.nn.BatchNorm1d(1, eps=eps)
            model = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 2, bias=False), norm).half().eval()
            torch.nn.init.constant_(model[0].weight, 0.1)
            return model, (torch.ones(1, 1, 4).half(),)

        def changed():
            return folded(eps=1e-3)

        def normalized(normalize=torch.nn.utils.parametrizations.weight_norm):
            model = torch.nn.Linear(2, 1, bias=False).half()
            torch.nn.init.constant_(model.weight, 0.1)
            return normalize(model).eval(), (torch.ones(1, 2).half(),)

        def older():
            return normalized(torch.nn.utils.weight_norm)
        """,
    )
    stored = hashlib.sha256(np.array([0.1, 0.3], np.float16).tobytes()).hexdigest()
    conv = hashlib.sha256(np.array([0.1, 0.1], np.float16).tobytes()).hexdigest()
    result = project.ask("rounded.py:build", export=False, half_weights=[stored])
    folded = project.ask("rounded.py:folded", export=False, half_weights=[conv])

    assert [np.float16([0.1, 0.3]).astype("f8").tolist(), np.float32([0.1, 0.7]).astype("f8").tolist()] == [
        output.tolist() for output in outputs(result, "eager64", 0)
    ]
    assert ([stored], False) == (result["half_weights"], result["is_half"])
    assert (False, True) == (conv in folded["half_weights"], folded["is_half"])
    assert (True, []) == (conv in folded["folded_weights"], result["folded_weights"])
    assert [] == project.ask("rounded.py:changed", export=False, half_weights=[conv])["folded_weights"]
    for name in ("normalized", "older"):
        result = project.ask(f"rounded.py:{name}", export=False, half_weights=[conv])
        assert (False, True) == (conv in result["half_weights"], conv in result["folded_weights"])


def test_intermediate_tensors_are_float64(project: Asker) -> None:
    """Tensors that `forward` creates without a dtype are float64 in the float64 run."""
    project.write(
        "mixed.py",
        """
        import torch

        class Mixed(torch.nn.Module):
            def forward(self, x):
                return x @ torch.full((2, 2), 0.1)

        def build():
            return Mixed(), (torch.ones(1, 2),)
        """,
    )
    result = project.ask("mixed.py:build")

    assert outputs(result, "eager", 0)[0].dtype == np.float32
    assert outputs(result, "eager64", 0)[0].tolist() == [[0.2, 0.2]]


def test_eager_only(project: Asker) -> None:
    """With `export=False`, the source's outputs are computed and no model is written."""
    project.write("classifier.py", CNN)
    result = project.ask("classifier.py:build", export=False, float64=False)

    assert result["model"] is None
    assert result["failure"] is None
    assert outputs(result, "eager", 0)[0].shape == (2, 3)
    assert result["eager64"] == []


def test_selections_are_recorded(project: Asker) -> None:
    """With `selections`, the items that the source selects are returned, in the order of execution.

    `largest` says whether they have the highest scores, or are sorted from the highest to the lowest.
    """
    project.write(
        "ranked.py",
        """
        import torch

        class Ranked(torch.nn.Module):
            def forward(self, x):
                best = torch.topk(x, 2).indices
                worst = torch.topk(x, 1, largest=False), torch.sort(x, descending=True), x.min(dim=0)
                x = x + x.max() + x.max(dim=0).values + torch.max(best.sum(), best.sum())
                return x[torch.argsort(x)][best] + torch.argmin(x)

        def build():
            return Ranked(), (torch.tensor([3.0, 1.0, 2.0]),)
        """,
    )
    result = project.ask("ranked.py:build", export=False, float64=False, selections=True)
    selections = result["eager"][0]["selections"]

    assert [output.tolist() for output in outputs(result, "eager", 0)] == [[10.0, 12.0]]
    assert [
        (it["operator"], it["largest"], np.load(it["scores"]).tolist(), np.load(it["indices"]).tolist())
        for it in selections
    ] == [
        ("TopK", True, [3.0, 2.0], [0, 2]),
        ("TopK", False, [1.0], [1]),
        ("TopK", True, [3.0, 2.0, 1.0], [0, 2, 1]),
        ("ArgMax", False, [1.0], [1]),
        ("ArgMax", True, [3.0], [0]),
        ("TopK", False, [9.0, 10.0, 11.0], [1, 2, 0]),
        ("ArgMax", False, [9.0], [1]),
    ]


def test_suppressions_are_recorded(project: Asker) -> None:
    """Separate suppressions of each class are recorded as one, which moves the boxes as an exported model does."""
    (project.folder / "torchvision" / "ops").mkdir(parents=True)
    (project.folder / "torchvision" / "ops" / "__init__.py").touch()
    (project.folder / "torchvision" / "__init__.py").touch()
    project.write(
        "torchvision/ops/boxes.py",
        """
        import torch

        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", lambda dets, scores, iou_threshold: torch.argsort(-scores)[:2], "CPU")

        def _batched_nms_vanilla(boxes, scores, idxs, iou_threshold):
            kept = [torch.ops.torchvision.nms(boxes, scores, iou_threshold) for _ in idxs.unique()]
            return torch.sort(kept[0]).values
        """,
    )
    project.write(
        "suppressed.py",
        """
        import torch
        from torchvision.ops import boxes as ops

        class Suppressed(torch.nn.Module):
            def forward(self, boxes, scores):
                kept = ops._batched_nms_vanilla(boxes, scores, torch.tensor([0, 1, 0]), 0.5)
                return boxes[torch.ops.torchvision.nms(boxes[kept], scores[kept], 0.5)]

        def build():
            return Suppressed(), (torch.arange(12.0).reshape(3, 4), torch.tensor([1.0, 3.0, 2.0]))
        """,
    )
    result = project.ask("suppressed.py:build", export=False, float64=False, selections=True)
    first, second = result["eager"][0]["selections"]
    names = ("boxes", "scores", "indices")

    assert [np.load(first[name]).tolist() for name in names] == [
        [[0, 1, 2, 3], [16, 17, 18, 19], [8, 9, 10, 11]],
        [1, 3, 2],
        [1, 2],
    ]
    assert [np.load(second[name]).tolist() for name in names] == [[[4, 5, 6, 7], [8, 9, 10, 11]], [3, 2], [0, 1]]


def test_export_that_leaves_traces_in_the_module(project: Asker) -> None:
    """The eager outputs come from a copy that the export has not modified."""
    project.write(
        "cache.py",
        """
        import torch

        class Cached(torch.nn.Module):
            scale = None

            def forward(self, x):
                if self.scale is None:
                    self.scale = x.mean() + 1
                return x * self.scale

        def build():
            return Cached(), (torch.ones(2),)
        """,
    )
    result = project.ask("cache.py:build")

    assert outputs(result, "eager", 0)[0].tolist() == [2.0, 2.0]


def test_neighbours_of_the_same_name(project: Asker) -> None:
    """Two sources that each import a local `net.py` get their own, and each file registers its operators only once."""
    for name, size in (("first", 2), ("second", 3)):
        project.write(f"{name}/net.py", f"import torch\nSIZE = {size}\n")
        project.write(
            f"{name}/build_{name}.py",
            f"""
            import torch, net
            torch.library.define("mine_{name}::op", "(Tensor x) -> Tensor")

            def build():
                return torch.nn.Linear(net.SIZE, 1), torch.ones(1, net.SIZE)
            """,
        )
    sources = ("first/build_first.py:build", "second/build_second.py:build", "first/build_first.py:build")
    results = [project.ask(source) for source in sources]

    assert [result["failure"] for result in results] == [None, None, None]
    assert [np.load(result["sample"][0]).shape for result in results] == [(1, 2), (1, 3), (1, 2)]


@pytest.mark.parametrize("name", ["onnx", "wire", "json", "exporters"])
def test_source_named_as_a_module(project: Asker, name: str) -> None:
    """A source may have the name of a package that the exporter imports."""
    project.write(f"{name}.py", "import torch\ndef build():\n    return torch.nn.Linear(2, 1), torch.ones(1, 2)\n")

    assert project.ask(f"{name}.py:build")["failure"] is None


def test_relative_files_and_packages_of_the_project(project: Asker) -> None:
    """A source reads files relative to the config's folder, and imports from that folder and from its own."""
    project.write("weights.txt", "3")
    project.write("library/__init__.py", "SIZE = int(open('weights.txt').read())\n")
    project.write("export/near.py", "from library import SIZE\n")
    project.write(
        "export/build.py",
        "import near, torch\ndef build():\n    return torch.nn.Linear(near.SIZE, 1), torch.ones(1, near.SIZE)\n",
    )
    result = project.ask("export/build.py:build")

    assert result["failure"] is None
    assert np.load(result["sample"][0]).shape == (1, 3)


def test_source_outside_of_the_configs_folder(project: Asker) -> None:
    """If the source is outside the config's folder, failures still name its lines relative to that folder."""
    project.write(
        "shared/build.py", "import torch\n\nclass Builder:\n    def build():\n        return torch.ones(2) + [1]\n"
    )
    config = project.write("service/onnxgate.toml", "").parent
    result = project.ask("service/../shared/build.py:Builder.build", folder=str(config))

    assert failure(result)[0] == "TypeError"
    assert result["failure"]["source"] == "../shared/build.py:5"


def test_external_data_on_request(project: Asker) -> None:
    """Weights are stored as external data only if the job requests it."""
    project.write("big.py", "import torch\ndef build():\n    return torch.nn.Linear(64, 64), torch.ones(1, 64)\n")
    inside, beside = project.ask("big.py:build"), project.ask("big.py:build", external_data=True)

    assert [path.name for path in Path(inside["model"]).parent.glob("model*")] == ["model.onnx"]
    assert {"model.onnx", "model.onnx.data"} == {path.name for path in Path(beside["model"]).parent.glob("model*")}
