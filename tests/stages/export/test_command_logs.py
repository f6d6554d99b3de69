"""Error message and source line from the log of a failed export command."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.stages.export_jobs import extract_error, find_project_line

TORCH = """
W1120 torchvision is not installed. Skipping torchvision::nms
Traceback (most recent call last):
  File "FOLDER/export/net.py", line 6, in forward
    if x.sum() > 0:
  File "FOLDER/.venv/lib/python3.11/site-packages/torch/fx.py", line 8203, in guard
torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on Eq(u0, 1)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "FOLDER/export/main.py", line 19, in <module>
    torch.onnx.export(net, args, out)
  File "/usr/lib/python3/site-packages/torch/onnx/__init__.py", line 291, in export
torch.onnx._internal.exporter._errors.TorchExportError: Failed to export the model with torch.export. This is step 1/3
Next steps:
- Modify the model code for `torch.export.export` to succeed.

## Exception summary

<class 'torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode'>: Could not guard on Eq(u0, 1)

(Refer to the full stack trace above for more information.)
"""
DURING = """
Traceback (most recent call last):
  File "export/net.py", line 3, in cached
KeyError: 'weights'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "export/main.py", line 8, in <module>
OSError: cannot download: no route
"""
BOTH = """
Traceback (most recent call last):
  File "export/net.py", line 3, in first
KeyError: 'weights'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "export/net.py", line 5, in second
ValueError: no weights

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "export/main.py", line 8, in clean_up
OSError: the disk is full
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with two files of its own and an environment."""
    for name in ("export/net.py", "export/main.py", ".venv/lib/python3.11/site-packages/torch/fx.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (TORCH, "GuardOnDataDependentSymNode: Could not guard on Eq(u0, 1)"),
        (DURING, "OSError: cannot download: no route"),
        ("ValueError: first\ncleaning up\n", "ValueError: first"),
        ("requests.exceptions.HTTPError: 404 Client Error", "HTTPError: 404 Client Error"),
        ("Error: no such option: --opset", "Error: no such option: --opset"),
        ("Step 1: done\nmake: *** [Makefile:3: all] Error 2\n\n", "make: *** [Makefile:3: all] Error 2"),
        ("", ""),
        ("x" * 1000, "x" * 599 + "…"),
    ],
)
def test_last_words(log: str, words: str, project: Path) -> None:
    """The message is the exception that ended the command, without an exporter's wrapper, or else the last line."""
    assert extract_error(log, project) == words


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("/home/me/a b/bin/py: can't open file 'FOLDER/nope.py'", "python: can't open file 'nope.py'"),
        ("/home/me/venv/bin/python3.11: can't open file 'x.py'", "python: can't open file 'x.py'"),
        (r"C:\hosted\python.exe: can't open file 'x.py'", "python: can't open file 'x.py'"),
        ("OSError: cannot write '/tmp/7f3a/m.onnx'", "OSError: cannot write '{output}'"),
        ("OSError: no 'LINK/weights/w.pt'", "OSError: no 'weights/w.pt'"),
        ("OSError: no '/data/python/w.pt'", "OSError: no '/data/python/w.pt'"),
        ("OSError: no 'export/python'", "OSError: no 'export/python'"),
    ],
)
def test_message_contains_no_local_path(
    log: str, words: str, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The message contains neither the project's path, nor the interpreter's, nor a temporary folder."""
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(project)
    names = {Path("/home/me/a b/bin/py"): "python", Path("/tmp/7f3a/m.onnx"): "{output}"}
    log = log.replace("FOLDER", str(project)).replace("LINK", str(link))

    assert extract_error(log, link, names) == words


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TORCH, "export/net.py:6"),
        (DURING, "export/main.py:8"),
        (BOTH, "export/main.py:8"),
        ('  File "/elsewhere/x.py", line 3, in f\n', ""),
        ('  File "FOLDER/export/gone.py", line 3, in f\n', ""),
        ("no traceback", ""),
    ],
)
def test_own_line(log: str, line: str, project: Path) -> None:
    """The innermost line in an existing project file is found; files in an environment do not count."""
    assert find_project_line(log.replace("FOLDER", str(project)), project) == line
