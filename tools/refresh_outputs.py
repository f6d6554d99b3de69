"""Run the commands shown in the documentation and write their output below them.

With `--check`, only list outdated pages.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx.parser

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = ROOT / "fixtures" / "projects"
WIDTH = 88
"""Terminal width in characters: the output fits on a page on a screen that is 1280 px wide."""
BLOCK = re.compile(
    r"^(?P<mark><!-- run: (?P<folder>[a-z]+)(?:, needs (?:an index|torch))? -->\n```console\n)(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(
    r"^<!-- file: (?P<folder>[a-z]+)/(?P<name>\S+) -->\n```[a-z]*\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)
"""A file that the commands below it use."""
VARIABLE = re.compile(
    r"(?<=\()\d+(?:\.\d+)? s(?=\))"  # duration
    r"|\b[0-9a-f]{64}\b|(?<=\()[0-9a-f]{7}(?=\))"  # digest of an exported model, commit
    r"|\b\d+(?:\.\d+)?e-\d+\b"  # difference of outputs, which depends on the processor
    r"|(?<=\bin )\d+\.\d+s\b"  # duration, as pytest prints it
    r"|(?<=\bonnx )[\d.]+|(?<=\bonnx-ir )[\d.]+|(?<=\bonnxscript )[\d.]+"  # installed with the toolchain
)
"""Text that differs from run to run or between machines."""
LOG = """\
2026-03-02T08:11:40Z INFO loading /models/encoder.onnx
2026-03-02T08:11:40Z ERROR [ONNXRuntimeError] : 1 : FAIL : Load model from /models/encoder.onnx failed:\
/onnxruntime_src/onnxruntime/core/graph/model.cc:180 Unsupported model IR version: 13, max supported IR version: 10
2026-03-02T08:11:40Z INFO worker stopped
"""


@dataclass
class Shell:
    """A folder in which the commands on a page run, one after the other."""

    folder: Path
    variables: dict[str, str]

    def run(self, command: str) -> tuple[int, str]:
        """Run a command in a terminal; return its exit status and standard output."""
        variables = {**self.variables, "NO_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm"}
        terminal, output = os.openpty()
        with subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder, env=variables, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            os.close(output)
            text = b"".join(_read(terminal)).decode().replace("\r\n", "\n")
            errors = process.communicate()[1].decode()
        os.close(terminal)
        return process.returncode, text if process.returncode in (0, 1, 3) else text + errors


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the other end is closed
            return
        if not part:
            return
        yield part


def model(folder: Path) -> None:
    """Write one model that needs IR version 10."""
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")


def revisions(folder: Path) -> None:
    """Write two versions of a model, before and after a change to its interface."""
    text = """<ir_version: 10, opset_import: ["" : 18]>
        classifier (float[batch, 2] features) => (float[batch, {0}] scores) <float[2, {0}] weight = {{{1}}}>
        {{ hidden = MatMul(features, weight)  scores = Softmax<axis = -1>(hidden) }}"""
    old = text.format(3, "0.1, 0.2, 0.3, 0.4, 0.5, 0.6")
    new = text.format(4, "0.1, 0.2, 0.3, 0.0, 0.4, 0.5, 0.6, 0.0").replace("features", "x")
    onnx.save(onnx.parser.parse_model(old), folder / "old.onnx")
    onnx.save(onnx.parser.parse_model(new), folder / "new.onnx")


def log(folder: Path) -> None:
    """Write the log of a server that failed to load its model."""
    (folder / "server.log").write_text(LOG, encoding="utf-8")


def broken(folder: Path) -> None:
    """Copy the project that contains each fault once."""
    shutil.copytree(PROJECTS / "broken", folder, dirs_exist_ok=True, symlinks=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def quickstart(folder: Path) -> None:
    """Copy the project without faults."""
    shutil.copytree(PROJECTS / "quickstart", folder, dirs_exist_ok=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)


def pointers(folder: Path) -> None:
    """Copy the project without faults, as a checkout in which Git LFS content was not fetched."""
    quickstart(folder)
    for path in folder.glob("models/*.onnx"):
        digest, size = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size
        path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n")


def legacy(folder: Path) -> None:
    """Create a repository without a config, with a model that does not load on all releases."""
    (folder / "models").mkdir()
    shutil.copy(PROJECTS / "broken" / "models" / "ir-13.onnx", folder / "models" / "legacy.onnx")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "model": model,
    "python": lambda _: None,  # the page contains the files
    "revisions": revisions,
    "log": log,
    "broken": broken,
    "quickstart": quickstart,
    "pointers": pointers,
    "legacy": legacy,
}
"""Functions that create the folders named in `<!-- run: NAME -->`.

`, needs an index` marks commands that install runtimes, and `, needs torch` those that export from PyTorch.
"""


def pages() -> list[Path]:
    """Return the pages that contain commands to run."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if BLOCK.search(page.read_text(encoding="utf-8"))]


def refresh(page: Path) -> str:
    """Return the page, with the current output of its commands."""
    with tempfile.TemporaryDirectory(prefix="onnxgate-docs-") as scratch:
        home = Path(scratch)
        variables = environment(home)
        shells: dict[str, Shell] = {}
        text = page.read_text(encoding="utf-8")

        def replace(block: re.Match[str]) -> str:
            name = block["folder"]
            if name not in shells:
                shells[name] = Shell(home / name, variables)
                shells[name].folder.mkdir()
                FOLDERS[name](shells[name].folder)
            for file in FILE.finditer(text, 0, block.start()):
                if file["folder"] == name:
                    (shells[name].folder / file["name"]).write_text(file["body"], encoding="utf-8")
            return f"{block['mark']}{refresh_block(block['body'], shells[name])}```"

        return BLOCK.sub(replace, text)


def refresh_block(body: str, shell: Shell) -> str:
    """Run the commands in a block; return the block with their output."""
    parts = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, old = part.partition("\n")
        printed = "\n".join(line.rstrip() for line in shell.run(command)[1].strip("\n").splitlines())
        new = f"{printed}\n" if printed else ""
        parts.append(f"$ {command}\n{old if normalize(old) == normalize(new) else new}")
    return "".join(parts)


def normalize(text: str) -> str:
    """Replace text that differs from run to run, and remove blank lines around the output."""
    return VARIABLE.sub("N", text.strip("\n"))


def environment(home: Path) -> dict[str, str]:
    """Return environment variables with which `onnxgate`, `uvx onnxgate`, `python` and `pytest` use this checkout.

    The cache is empty, and pytest loads no other plugins.
    """
    programs = home / "programs"
    programs.mkdir()
    python = f'exec "{sys.executable}"'
    scripts = {
        "onnxgate": f'{python} -m onnxgate "$@"\n',
        "uvx": f'shift\n{python} -m onnxgate "$@"\n',
        "python": f'{python} "$@"\n',
        "pytest": f'export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1\n{python} -m pytest -p onnxgate.api.pytest_plugin "$@"\n',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}")
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI"))}
    own = {"PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(home / "cache")}
    return {**kept, **own, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them with the current output; return the exit status."""
    outdated = 0
    for page in pages():
        old, new = page.read_text(encoding="utf-8"), refresh(page)
        if old == new:
            continue
        outdated += 1
        if "--check" in arguments:
            name = page.relative_to(ROOT).as_posix()
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, "printed now", lineterm="", n=1)
            print("\n".join(lines))
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT).as_posix()}")
    return int("--check" in arguments and outdated > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
