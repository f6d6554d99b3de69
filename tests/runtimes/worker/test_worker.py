"""The worker's handling of messages, tensors and memory limits, under all supported Python versions."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from onnxgate.runtimes.protocol import WORKER_FOLDER
from onnxgate.runtimes.worker import arrays, failures

SIGNATURES = {
    "Load model from a.onnx failed:/onnxruntime_src/onnxruntime/core/graph/model.cc:149 onnxruntime::Model::Model("
    "onnx::ModelProto&&, const PathString&, const IOnnxRuntimeOpSchemaRegistryList*, const logging::Logger&) "
    "Unsupported model IR version: 14": "Load model from a.onnx failed:Unsupported model IR version: 14",
    "Status Message: /onnxruntime_src/include/onnxruntime/core/framework/op_kernel_context.h:42 "
    "const T* onnxruntime::OpKernelContext::Input(int) const [with T = onnxruntime::Tensor] Missing Input: "
    "x": "Status Message: Missing Input: x",
    "failed:D:\\a\\_work\\1\\s\\onnxruntime\\core\\graph\\model.cc:149 onnxruntime::Model::Model(int) "
    "Unsupported": "failed:Unsupported",
    "matmul_helper.h:59 Compute MatMul dimension mismatch": "Compute MatMul dimension mismatch",
    "during initialization: /onnxruntime_src/onnxruntime/core/providers/cpu/nn/string_normalizer.cc:96 onnxruntime::"
    "Locale::Locale(const string&) Failed to construct": "during initialization: Failed to construct",
}


@pytest.mark.parametrize("printed", SIGNATURES)
def test_build_signature_is_removed(printed: str) -> None:
    """The cleaned message is the same on every system and for every release."""
    assert SIGNATURES[printed] == failures.clean_text(printed)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "link"),
        ("\x9b31mred\x07\x00", "31mred"),
        ("a\r\nb\rc\td\n", "a\nbc\td"),
        ("\x1b", ""),
    ],
)
def test_control_sequences_are_removed(printed: str, expected: str) -> None:
    """Control sequences are removed; line breaks and tabs are kept."""
    assert expected == failures.clean_text(printed)


@pytest.mark.parametrize("hostile", ["/" * 200_000, "/a.cc:1 " * 50_000, "\x1b]" * 100_000, "x" * 10**6])
def test_a_long_text_is_cut_and_takes_no_time(hostile: str) -> None:
    """A long message is truncated quickly, regardless of its content."""
    began = time.process_time()
    cleaned = failures.clean_text(hostile)

    assert len(cleaned) <= failures.TEXT_LIMIT
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("Failed to allocate memory for requested buffer of size 8"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("Unable to allocate 8.00 GiB for an array"), True),
        (RuntimeError("Could not find an implementation"), False),
    ],
)
def test_memory_errors_are_recognized(error: Exception, expected: bool) -> None:
    """Memory errors are recognized by the messages of allocators."""
    assert expected is failures.describe_failure(error)["memory"]


def test_the_model_s_folder_is_hidden() -> None:
    """The path of the model's folder is removed, even without a file name."""
    error = RuntimeError("Load model from /home/me/models/a.onnx failed: escapes /home/me/models")

    assert failures.describe_failure(error, "/home/me/models")["text"] == "Load model from a.onnx failed: escapes ."


@pytest.mark.parametrize(
    "tensor",
    [np.array(1.5, np.float16), np.zeros((0, 3), np.int64), np.array([True]), np.array([1 + 2j], np.complex64)],
)
def test_tensors_survive_the_way(tmp_path: Path, tensor: np.ndarray) -> None:
    """Type, shape and values are preserved."""
    path = str(tmp_path / "0" / "0.npy")
    written = arrays.write_array(path, tensor)

    assert written
    assert (tensor.dtype, tensor.shape) == (arrays.read_array(path).dtype, arrays.read_array(path).shape)
    assert tensor.tolist() == arrays.read_array(path).tolist()


def test_strings_are_objects_for_a_runtime_and_text_on_disk(tmp_path: Path) -> None:
    """Strings are objects for the runtime and text on disk, without pickle."""
    path = str(tmp_path / "0.npy")
    arrays.write_array(path, np.array(["a", "日本"], object))

    assert np.load(path, allow_pickle=False).dtype.kind == "U"
    assert arrays.read_array(path).dtype.kind == "O"
    assert arrays.read_array(path).tolist() == ["a", "日本"]


def test_pickles_are_not_read(tmp_path: Path) -> None:
    """A file that contains a pickle is rejected."""
    np.save(tmp_path / "evil.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(failures.UnusableError, match=r"^input `evil\.npy` cannot be read: "):
        arrays.read_array(str(tmp_path / "evil.npy"))


@pytest.mark.parametrize("value", [None, [1.0], {"a": 1.0}, "text"])
def test_non_tensors_are_not_written(tmp_path: Path, value: object) -> None:
    """Sequences and maps are not written as tensor files."""
    assert not arrays.write_array(str(tmp_path / "0.npy"), value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="measured only if the kernel reports it")
@pytest.mark.parametrize(("limit_mib", "status"), [(200, 1), (4096, 0)])
def test_polled_memory_limit(limit_mib: int, status: int) -> None:
    """Exceeding the polled limit reports the reason and ends the process; staying below it does not."""
    script = f"""
        import time
        from onnxgate.runtimes.worker.limits import limit_by_polling
        with limit_by_polling({limit_mib} * 2**20, lambda: print("too much", flush=True)):
            taken = bytearray(400 * 2**20)
            time.sleep(2)
    """
    result = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=False)

    assert (status, "too much\n" if status else "") == (result.returncode, result.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits by the kernel are Linux's")
def test_a_limit_ends_with_its_job() -> None:
    """A memory limit does not apply to the next job."""
    script = """
        import resource
        from onnxgate.runtimes.worker.limits import limit_memory
        before = resource.getrlimit(resource.RLIMIT_DATA)
        try:
            with limit_memory(256, print):
                bytes(2**30)
        except MemoryError:
            print("refused", before == resource.getrlimit(resource.RLIMIT_DATA), len(bytes(2**30)) == 2**30)
    """
    result = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=True)

    assert result.stdout == "refused True True\n"


@pytest.mark.parametrize(
    "file", sorted(WORKER_FOLDER.rglob("*.py")), ids=lambda file: file.relative_to(WORKER_FOLDER).as_posix()
)
def test_every_file_of_the_worker_is_python_3_8(file: Path) -> None:
    """Each file has Python 3.8 syntax and imports nothing of onnxgate outside the worker's folder."""
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level == 0
            else []
        )
    }

    assert not {name for name in imported if name.split(".")[0] == "onnxgate"}
    assert not any(isinstance(node, ast.ImportFrom) and node.level > 2 for node in ast.walk(tree))


def test_the_worker_writes_no_bytecode_and_needs_no_onnxgate(tmp_path: Path) -> None:
    """Started with `-I` from a copy, the worker reports that it is ready and ends with its input, without bytecode."""
    shutil.copytree(WORKER_FOLDER, tmp_path / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    argv = [sys.executable, "-I", "-B", "-X", "utf8", str(tmp_path / "worker" / "__main__.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=tmp_path, start_new_session=True, **pipes) as worker:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        rest = worker.communicate(timeout=30)

    assert line == b'{"id": 0, "phase": "ready"}\n'
    assert rest == (b"", b"")
    assert list(tmp_path.rglob("*.pyc")) == []
