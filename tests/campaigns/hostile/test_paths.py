"""Paths that leave their folder, in models, configs, archives and reports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, load, save

from onnxgate.core.errors import OnnxgateError
from onnxgate.core.jobs import InputCase
from onnxgate.formats.sarif import path_to_uri
from onnxgate.inputs import stored_inputs
from onnxgate.model.reading.external_data import check_external_data
from onnxgate.model.reading.view import ModelView
from onnxgate.project.config.loader import load_config
from tests.harness.reports.sample_reports import sample

ROOT = Path(__file__).parents[3]
LONG = "d/" * 2100 + "w.bin"


def model(location: str) -> ModelProto:
    """Return an `Add` with 16 bytes of external data."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], np.ones(4, np.float32).tobytes(), raw=True)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", location
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", value[:1], value[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _linked_folder(here: Path) -> None:
    (here / "m" / "sub").symlink_to(here / "outside")


def _linked_file(here: Path) -> None:
    (here / "m" / "l.bin").symlink_to(here / "outside" / "w.bin")


def _circle(here: Path) -> None:
    (here / "m" / "a").symlink_to("b")
    (here / "m" / "b").symlink_to("a")


def _hard(here: Path) -> None:
    (here / "m" / "h.bin").hardlink_to(here / "outside" / "w.bin")


def _pipe(here: Path) -> None:
    os.mkfifo(here / "m" / "p.bin")


def _folder(here: Path) -> None:
    (here / "m" / "f").mkdir()


def _none(here: Path) -> None:
    pass


TRICKS: list[tuple[str, Callable[[Path], None], str | None]] = [
    ("w.bin", _none, None),
    ("./w.bin", _none, None),
    ("x/../w.bin", _none, "missing"),
    ("h.bin", _hard, None),
    ("../outside/w.bin", _none, "escapes"),
    ("../m/w.bin", _none, None),
    ("../m2/w.bin", _none, "escapes"),
    ("/etc/passwd", _none, "escapes"),
    ("//host/share/w.bin", _none, "escapes"),
    ("C:\\w.bin", _none, "escapes"),
    ("C:w.bin", _none, "escapes"),
    ("\\\\host\\share\\w.bin", _none, "escapes"),
    ("~/w.bin", _none, "missing"),
    ("$HOME/w.bin", _none, "missing"),
    ("w.bin\0/../../x", _none, None),  # runtimes end the name at the NUL
    ("w.bin\n", _none, "missing"),
    ("w.bin ", _none, "missing"),
    ("w.bin.", _none, "missing"),
    ("W.BIN", _none, "missing"),
    (LONG, _none, "missing"),
    ("n" * 300, _none, "missing"),
    ("sub/w.bin", _linked_folder, "escapes"),
    ("l.bin", _linked_file, "escapes"),
    ("a", _circle, "missing"),
    ("p.bin", _pipe, "not-a-file"),
    ("f", _folder, "not-a-file"),
    (".", _none, "not-a-file"),
    ("/dev/zero", _none, "escapes"),
    ("", _none, "no-location"),
    ("onnxgate.lock", _none, "short"),
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a folder of a model with its data, which has sibling folders."""
    for name in ("m", "m2", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w.bin").write_bytes(np.ones(4, np.float32).tobytes())
    (tmp_path / "m" / "onnxgate.lock").write_text("version = 1")
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
@pytest.mark.parametrize(("location", "prepare", "problem"), TRICKS, ids=[ascii(trick[0])[:30] for trick in TRICKS])
def test_data_outside_the_folder_is_not_opened(
    here: Path, location: str, prepare: Callable[[Path], None], problem: str | None
) -> None:
    """A path outside of the model's folder is never opened; a path that is not a file is reported."""
    prepare(here)

    (use,) = check_external_data(ModelView(model(location)), here / "m" / "a.onnx")

    assert problem == use.problem


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
def test_model_that_is_its_own_data(here: Path) -> None:
    """A model that names itself as external data is accepted, and nothing is written."""
    save(model("a.onnx"), here / "m" / "a.onnx")

    (use,) = check_external_data(ModelView(model("a.onnx")), here / "m" / "a.onnx")

    assert use.problem is None


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
def test_one_finding_per_model_without_traceback(here: Path) -> None:
    """A check of all models has one finding each and no traceback."""
    names = {f"t{index:02}.onnx": trick for index, trick in enumerate(TRICKS)}
    for prepare in {trick[1] for trick in TRICKS}:
        prepare(here)
    for name, (location, _, _) in names.items():
        (here / "m" / name).write_bytes(model(location).SerializeToString())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(here / "cache")}
    command = [sys.executable, "-m", "onnxgate", "check", *sorted(names)]

    done = subprocess.run(command, cwd=here / "m", env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    for name, (_, _, problem) in names.items():
        assert (f"external-data-{'escapes' if problem == 'escapes' else ''}" in _about(name, done.stdout)) == bool(
            problem
        )
    assert "is outside the model's folder" in _about("t04.onnx", done.stdout)
    assert "is an absolute path" in _about("t07.onnx", done.stdout)
    assert r"w.bin\n" in _about("t15.onnx", done.stdout)


def _about(name: str, said: str) -> str:
    return "\n".join(line for line in said.splitlines() if line[6:].startswith(f"{name}: "))


@pytest.mark.parametrize("pattern", ["../other/*.onnx", "/etc/*", "models/../../*.onnx", "~/m.onnx", "C:\\m.onnx"])
def test_models_outside_of_the_repository(tmp_path: Path, pattern: str) -> None:
    """Paths in a config must be below its folder."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "m.onnx").touch()
    repository = tmp_path / "here"
    (repository / ".git").mkdir(parents=True)
    config = repository / "onnxgate.toml"
    config.write_text(f"models = ['{pattern}']\n[targets.a]\nruntime = 'onnxruntime>=1.18'\n")

    with pytest.raises(OnnxgateError) as refused:
        load_config(config).models()

    assert refused.value.exit_code == 2


@pytest.mark.parametrize("name", ["../../x", "/x", "x\0y", "a/b", "..", "x" * 300, "-rf", "c:d", "x\n"])
def test_names_are_not_used_as_cache_paths(tmp_path: Path, name: str) -> None:
    """Names of inputs are stored in an archive, and names of models as safe file names."""
    array = tmp_path / "x.npy"
    np.save(array, np.ones(1))
    folder = tmp_path / "cache" / "inputs"

    made = stored_inputs.store_case_inputs(
        InputCase(name="c", origin="generated", inputs={name: str(array)}), f"{name}.onnx", folder
    )

    assert [made] == [path.name for path in folder.iterdir()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "x.npy"]
    assert made.endswith(".npz")
    assert len(made) < 100


@pytest.mark.parametrize(
    "path", ["javascript:alert(1)", "//evil.example/x", "\\\\evil\\x", "../../x", "a b%20", "x?y#z"]
)
def test_special_characters_do_not_change_links(path: str) -> None:
    """Special characters in a file name do not change the link to the file."""
    made = path_to_uri(sample(), path)

    assert made.partition("/")[0].count(":") == 0 or made.startswith("file:///")
    assert not set(made) & set("?# \\")
    assert not made.startswith("//")


def test_a_model_that_is_replaced_while_it_is_read(here: Path) -> None:
    """If a link replaces the data after a check, the next check reports it."""
    path = here / "m" / "a.onnx"
    save(model("w.bin"), path)
    assert check_external_data(ModelView(load(path, load_external_data=False)), path)[0].problem is None
    (here / "m" / "w.bin").unlink()
    (here / "m" / "w.bin").symlink_to(here / "outside" / "w.bin")

    assert check_external_data(ModelView(load(path, load_external_data=False)), path)[0].problem == "escapes"
