"""Known error texts of pip and uv about failed installations, and of NumPy, protobuf, Git LFS and Python."""

from __future__ import annotations

from onnxgate.diagnostics.catalogue import CapturedGroups, Entry
from onnxgate.support.limits import load_limit_table


def _suggest_release(captured: CapturedGroups) -> str:
    """Return a fix: a release that has a wheel, or a Python version for which the requested release has one."""
    requirement = captured.get("requirement", "")
    if "conflicting" in captured:
        return "relax one of the two requirements, or use separate environments"
    offered = captured.get("offered", "").split(", ")
    if offered == ["none"]:
        return "check the package name and its wheels; the index has no release for this Python version and platform"
    if offered != [""] and not requirement.startswith("onnxruntime==1."):
        releases = offered[0] if len(offered) == 1 else f"{offered[0]}–{offered[-1]}"
        return (
            f"install an available release ({releases}), "
            "or use a Python version for which the requested release has a wheel"
        )
    if not requirement.startswith("onnxruntime==1."):
        return "check which wheels the index has, and use a Python version or a release with a matching wheel"
    minor = requirement.removeprefix("onnxruntime==1.").partition(".")[0]
    if not minor.isdigit() or len(minor) > 3:
        return "request an existing release"
    known = list(load_limit_table().releases)
    if int(minor) > int(known[-1].split(".")[1]):
        return f"request an existing release; the newest known release is onnxruntime {known[-1]}"
    patches = [release for release in known if release.startswith(f"1.{minor}.")]
    if patches and requirement.count(".") == 2 and requirement.removeprefix("onnxruntime==") not in patches:
        return f"request an existing release; known releases of onnxruntime 1.{minor}: {', '.join(patches)}"
    pythons = [python for python, (first, last) in _WHEEL_MINORS.items() if first <= int(minor) <= last]
    return (
        f"use Python {pythons[0]}–{pythons[-1]}, for which onnxruntime 1.{minor} has wheels,"
        " or a release with a wheel for this Python version"
    )


# Source: wheels of every onnxruntime release for x86_64 Linux.
_WHEEL_MINORS = {
    "3.7": (0, 14),
    "3.8": (2, 19),
    "3.9": (7, 19),
    "3.10": (12, 23),
    "3.11": (15, 99),
    "3.12": (17, 99),
    "3.13": (20, 99),
    "3.14": (24, 99),
}
"""Python version -> first and last minor release of ONNX Runtime that have a wheel for this Python version."""


PIP = (
    Entry(
        name="pip-unreachable",
        patterns=(
            r"connection broken by '(?P<detail>\w{1,60})",
            r"Could not fetch URL (?P<url>\S{1,300}): There was a problem confirming the ssl certificate",
            r"ReadTimeoutError: HTTPS?ConnectionPool\(host='(?P<url>[^'\n]{1,200})'",
        ),
        means="the package index does not respond",
        fix="set `HTTPS_PROXY`, `PIP_INDEX_URL` or `PIP_CERT`; "
        "to install offline, pass `--no-index --find-links FOLDER`",
    ),
    Entry(
        name="pip-no-distribution",
        patterns=(
            r"Could not find a version that satisfies the requirement (?P<requirement>[^\s(]{1,200})"
            r"[^\n(]{0,100}\(from versions: (?P<offered>[^)\n]{1,4000})\)",
            r"Could not find a version that satisfies the requirement (?P<requirement>[^\s(]{1,200})",
            r"No matching distribution found for (?P<requirement>[^\s(]{1,200})",
        ),
        means="no installable release matches `{requirement}`",
        why="the package has no wheel for this Python version or platform, or its name or version is wrong",
        fix=_suggest_release,
        rules=("lock-stale",),
    ),
    Entry(
        name="pip-conflict",
        patterns=(
            r"ResolutionImpossible",
            r"because these package versions have conflicting dependencies",
            r"pip's dependency resolver does not currently take into account all the packages",
            r" requires (?P<requirement>[^\n,]{1,120}), but you (?:have|'ll have) (?P<detail>[^\n]{1,120}) which is"
            r" incompatible",
        ),
        means="two packages require conflicting releases of a third package",
        fix="relax the requirement shown in the error message, or use separate environments",
        rules=("toolchain-drift",),
    ),
    Entry(
        name="pip-hash-mismatch",
        patterns=(
            r"THESE PACKAGES DO NOT MATCH THE HASHES",
            r"Expected sha256 (?P<expected>[0-9a-f]{64}) Got +(?P<requirement>[0-9a-f]{64})",
        ),
        means="a downloaded file does not match its recorded hash",
        why="the hash belongs to a file for a different platform, or the file was modified",
        fix="if you trust the index, update the hashes with `onnxgate lock`",
        rules=("lock-stale",),
        self_explanatory=True,
    ),
    Entry(
        name="pip-hash-missing",
        patterns=r"Hashes are required in --require-hashes mode",
        means="some requirements have a hash, so every requirement needs a hash",
        fix="record all hashes with `pip-compile --generate-hashes` or `uv pip compile --generate-hashes`",
    ),
    Entry(
        name="pip-wheel-unsupported",
        patterns=r"(?<!\S)(?P<name>\S{1,200}\.whl) is not a supported wheel on this platform",
        means="the wheel `{name}` is for a different Python version or platform",
        fix="download the wheel for this Python version and platform, or install the package by name and version",
        self_explanatory=True,
    ),
    Entry(
        name="pip-build-failed",
        patterns=(
            r"metadata-generation-failed",
            r"subprocess-exited-with-error",
            r"Command errored out with exit status (?P<code>-?\d{1,9}): ",
            r"ModuleNotFoundError: No module named '(?P<detail>distutils)'",
            r"Failed building wheel for (?P<name>\S{1,100})",
            r"Could not build wheels for (?P<name>\S{1,100})",
        ),
        means="pip found no wheel, and the build from source failed",
        why="the usual cause is a requested release that is older than the installed Python version",
        fix="install a release that has a wheel: `pip install --only-binary :all: PACKAGE`",
    ),
    Entry(
        name="pip-requirement-invalid",
        patterns=r"Invalid requirement: '?(?P<requirement>[^\n']{1,200})",
        means="`{requirement}` is not a valid requirement",
        fix="write `name==release`, or separate several conditions with commas: `name>=1.2,<2`",
        self_explanatory=True,
    ),
    Entry(
        name="pip-externally-managed",
        patterns=r"externally-managed-environment",
        means="this Python installation is managed by the operating system, so pip refuses to change it",
        fix="create an environment: `python -m venv .venv` or `uv venv`",
        example="error: externally-managed-environment",
        source="PEP 668; Debian 12, Ubuntu 23.04, pip 23.0 and newer",
    ),
)

UV = (
    Entry(
        name="uv-no-solution",
        patterns=(
            r"Because (?P<requirement>[^\s,]{1,200}) has no wheels with a matching (?P<detail>[^\n]{1,120})",
            r"Because (?P<requirement>[^\s,]{1,200}) depends on (?P<needs>[^\s,]{1,200}) and you require"
            r"[\s\S]{1,400}?And because you require (?P<conflicting>[^\s,]{1,100}),",
            r"Because (?:there is no version of )?(?P<requirement>[^\s,]{1,200})[^\n]{0,200}",
            r"No solution found when resolving dependencies",
        ),
        means=(
            "`{requirement}` depends on `{needs}`, which conflicts with the required `{conflicting}`",
            "uv found no compatible set of packages: {requirement}",
            "uv found no compatible set of packages",
        ),
        fix=_suggest_release,
        rules=("lock-stale",),
    ),
    Entry(
        name="uv-hash-mismatch",
        patterns=r"Hash mismatch for `?(?P<requirement>[^`\s]{1,200})`?",
        means="the downloaded file for `{requirement}` does not match its recorded hash",
        fix="if you trust the index, update the hashes with `onnxgate lock`",
        rules=("lock-stale",),
        self_explanatory=True,
    ),
    Entry(
        name="uv-hash-missing",
        patterns=r"In `--require-hashes` mode, all requirements must have a hash",
        means="some requirements have a hash, so every requirement needs a hash",
        fix="record all hashes with `uv pip compile --generate-hashes`",
        self_explanatory=True,
    ),
    Entry(
        name="uv-unreachable",
        patterns=(
            r"Failed to fetch: `?(?P<url>https?://[^`\s]{1,300})",
            r"error sending request for url \((?P<url>[^)\s]{1,300})\)",
        ),
        means="the package index does not respond",
        fix="set `HTTPS_PROXY`, `UV_DEFAULT_INDEX` or `SSL_CERT_FILE`; to use only the packages in the cache, pass "
        "`--offline`",
    ),
    Entry(
        name="uv-wheel-unsupported",
        patterns=(
            r"Failed to read metadata: `?(?P<name>[^`\n]{1,300}\.whl)",
            r"(?<!\S)(?P<name>\S{1,200}\.whl)` ?[^\n]{0,80}is not compatible with the current platform",
        ),
        means="the wheel `{name}` cannot be read, or is for a different platform",
        fix="download the wheel for this Python version and platform",
    ),
    Entry(
        name="uv-build-failed",
        patterns=(
            r"The build backend returned an error",
            r"Build backend failed to (?P<detail>[^\n]{1,120})",
            r"Failed to (?:build|download and build) `(?P<name>[^`\n]{1,200})`",
        ),
        means="uv found no wheel, and the build from source failed",
        fix="install a release that has a wheel: `uv pip install --only-binary :all: PACKAGE`",
    ),
)

NUMPY = (
    Entry(
        name="numpy-abi",
        patterns=(
            r"compiled using NumPy 1\.x cannot be run in NumPy (?P<release>\S{1,30})",
            r"_ARRAY_API not found",
            r"numpy\.core\.multiarray failed to import",
            r"module compiled against (?:API|ABI) version \S{1,20} but this version of numpy is \S{1,20}",
            r"numpy\.dtype size changed, may indicate binary incompatibility",
        ),
        means="a package built for NumPy 1 was imported with NumPy 2",
        fix="run `pip install 'numpy<2'` or `pip install 'onnxruntime>=1.19.0'`",
        affected="onnxruntime before 1.19.0",
        rules=("load-failed",),
    ),
    Entry(
        name="numpy-alias-removed",
        patterns=(
            r"module 'numpy' has no attribute '(?P<name>\w{1,40})'",
            r"`np\.(?P<name>\w{1,40})` is a deprecated alias",
            r"`np\.(?P<name>\w{1,40})` was removed in the NumPy 2\.0 release",
        ),
        means="the installed NumPy has no `numpy.{name}`",
        fix="upgrade the last package in the traceback, or pin `numpy<1.24` (`numpy<2` for names such as `float_`)",
        rules=("toolchain-drift",),
        self_explanatory=True,
    ),
    Entry(
        name="numpy-pickle-newer",
        patterns=r"No module named 'numpy\._core(?:\.\w{1,40})?'",
        means="a pickle file written with NumPy 2 was read with NumPy 1.25 or older",
        fix="read the file with NumPy 2 or 1.26, or save the data as `.npy`",
    ),
)

PROTOBUF = (
    Entry(
        name="protobuf-mismatch",
        patterns=(
            r"Descriptors cannot (?:not )?be created directly",
            r"cannot import name '(?P<name>runtime_version|builder)' from 'google\.protobuf",
            r"Detected (?:incompatible|mismatched) Protobuf Gencode/Runtime (?:major )?versions when loading"
            r" (?P<file>\S{1,200}): gencode (?P<expected>\S{1,30}) runtime (?P<actual>[\w.]{1,30})",
            r"'MessageFactory' object has no attribute 'GetPrototype'",
            r"Couldn't build proto file into descriptor pool",
        ),
        means="the installed protobuf does not match the generated code in `onnx` or another package",
        fix="run `pip install --upgrade onnx protobuf`, or pin `protobuf<=3.20.3` if an old package cannot be upgraded",
        rules=("toolchain-drift",),
    ),
)


_PACKAGE_OF_MODULE = {
    "cv2": "opencv-python-headless",
    "google.protobuf": "protobuf",
    "sklearn": "scikit-learn",
    "onnx_ir": "onnx-ir",
    "onnxruntime_extensions": "onnxruntime-extensions",
}
"""Name of a Python module -> name of its package on PyPI, if the two names differ."""


def _install_command(captured: CapturedGroups) -> str:
    package = _PACKAGE_OF_MODULE.get(captured["name"], captured["name"])
    return f"install the package with the Python interpreter that reported the error: `python -m pip install {package}`"


SYSTEM = (
    Entry(
        name="lfs-pointer",
        patterns=r"version https://git-lfs\.github\.com/spec/v1",
        means="a file is a Git LFS pointer (content not fetched)",
        fix="run `git lfs install && git lfs pull`, or set `lfs: true` for `actions/checkout` in GitHub Actions",
        rules=("lfs-pointer",),
        example="version https://git-lfs.github.com/spec/v1",
        source="the first line of every Git LFS pointer, https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md",
    ),
    Entry(
        name="lfs-missing",
        patterns=(
            r"This repository is configured for Git LFS but 'git-lfs' was not found on your path",
            r"git-lfs filter-process: (?:\S{1,60} ){0,4}(?:command )?not found",
            r"Error downloading object: (?P<file>[^\n(]{1,300}) \((?P<oid>[0-9a-f]{1,64})\): Smudge error",
            r"This repository is over its data quota",
        ),
        means="Git LFS could not fetch a file",
        fix="install git-lfs and run `git lfs pull`; if the quota is exceeded, cache `.git/lfs` between CI jobs",
        rules=("lfs-pointer",),
        example="This repository is configured for Git LFS but 'git-lfs' was not found on your path.",
        source="git-lfs 2 and 3: hooks, filter, smudge and batch messages",
        self_explanatory=True,
    ),
    Entry(
        name="disk-full",
        patterns=(r"No space left on device", r"OSError: \[Errno 28\]"),
        means="the disk is full",
        fix="free up space with `onnxgate runtimes prune` or `pip cache purge`, or install CPU-only packages",
        example="OSError: [Errno 28] No space left on device",
        source="error ENOSPC, which any program can report",
        self_explanatory=True,
    ),
    Entry(
        name="module-missing",
        patterns=r"No module named '(?P<name>onnx|onnxruntime|onnxscript|onnx_ir|openvino|tract|cv2|skl2onnx|"
        r"onnxmltools|tf2onnx|jax2onnx|"
        r"onnxruntime_extensions|torch|tensorflow|sklearn|google\.protobuf|numpy)'",
        means="the module `{name}` is not installed in this environment",
        why="the package was installed for a different Python interpreter, or is an optional dependency that was not "
        "installed",
        fix=_install_command,
        anywhere="install the package with the Python interpreter that reported the error: "
        "`python -m pip install PACKAGE`",
        rules=("export-failed",),
        example="ModuleNotFoundError: No module named 'onnxruntime'",
        source="error ModuleNotFoundError of Python 3.6 and newer",
        general=True,
        self_explanatory=True,
    ),
    Entry(
        name="file-missing",
        patterns=(
            r"Load model (?!from )(?P<file>.{1,400}?) failed\. File doesn't exist",
            r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<file>[^'\n]{0,400})'",
            r"Could not open requirements file: \[Errno 2\] No such file or directory: '(?P<file>[^'\n]{0,400})'",
        ),
        means="the file `{file}` does not exist",
        why="the working directory is wrong, or the file was not committed or fetched",
        fix="pass the full path, and check that git tracks the file: `git ls-files FILE`",
        family="no_file",
        general=True,
        self_explanatory=True,
    ),
)
