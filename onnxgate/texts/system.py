"""What is said of files, and of packages that are not there, by whatever program."""

from __future__ import annotations

from onnxgate.texts.entry import Captured, Entry

_PACKAGES = {
    "cv2": "opencv-python-headless",
    "google.protobuf": "protobuf",
    "sklearn": "scikit-learn",
    "onnx_ir": "onnx-ir",
    "onnxruntime_extensions": "onnxruntime-extensions",
}
"""Modules whose package has another name on PyPI."""


def _install(captured: Captured) -> str:
    package = _PACKAGES.get(captured["name"], captured["name"])
    return f"install it there: `python -m pip install {package}`, with the `python` that runs the command"


ENTRIES = (
    Entry(
        name="lfs-pointer",
        says=(r"version https://git-lfs\.github\.com/spec/v1",),
        means="a Git LFS pointer stands where a file should be",
        why="the repository was cloned without Git LFS, or `lfs: true` is missing at `actions/checkout`",
        fix="`git lfs install && git lfs pull`; in a workflow, `with: lfs: true`",
        rules=("lfs-pointer",),
        source="the first line of every pointer, https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md",
    ),
    Entry(
        name="lfs-missing",
        says=(
            r"This repository is configured for Git LFS but 'git-lfs' was not found on your path",
            r"git-lfs filter-process: (?:\S{1,60} ){0,4}(?:command )?not found",
            r"Error downloading object: (?P<file>[^\n(]{1,300}) \((?P<oid>[0-9a-f]{1,64})\): Smudge error",
            r"This repository is over its data quota",
        ),
        means="Git LFS could not fetch what a pointer stands for",
        fix="install git-lfs and run `git lfs pull`; at a quota, cache `.git/lfs` between jobs",
        rules=("lfs-pointer",),
        source="git-lfs 2 and 3: hooks, filter, smudge and batch messages",
    ),
    Entry(
        name="disk-full",
        says=(r"No space left on device", r"OSError: \[Errno 28\]"),
        means="the disk is full",
        why="several frameworks with CUDA take 5 GB each, and pip keeps what it downloads",
        fix="`onnxgate runtimes prune`, `pip cache purge`, or install the builds for the CPU",
        source="ENOSPC of every program",
    ),
    Entry(
        name="module-missing",
        says=(
            r"No module named '(?P<name>onnx|onnxruntime|onnxscript|onnx_ir|openvino|tract|cv2|skl2onnx|"
            r"onnxmltools|tf2onnx|jax2onnx|"
            r"onnxruntime_extensions|torch|tensorflow|sklearn|google\.protobuf|numpy)'",
        ),
        means="the package of `{name}` is not installed in this environment",
        why="the command runs in another environment than the one that it was installed in,"
        " or it is an optional dependency",
        fix=_install,
        anywhere="install it there: `python -m pip install PACKAGE`, with the `python` that runs the command",
        rules=("export-failed",),
        source="ModuleNotFoundError of Python 3.6 and newer",
        general=True,
    ),
    Entry(
        name="file-missing",
        says=(
            r"Load model (?!from )(?P<file>.{1,400}?) failed\. File doesn't exist",
            r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<file>[^'\n]{0,400})'",
            r"Could not open requirements file: \[Errno 2\] No such file or directory: '(?P<file>[^'\n]{0,400})'",
        ),
        means="there is no file `{file}`",
        why="the path is relative to another working directory, or the file was not committed or not fetched",
        fix="give the whole path, and look whether git has the file: `git ls-files FILE`",
        family="no_file",
        general=True,
    ),
)
