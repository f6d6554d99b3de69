"""Error texts of pip and uv about unavailable packages, and of numpy and protobuf about incompatible releases."""

from __future__ import annotations

from onnxgate.diagnostics.catalogue import CapturedGroups, Entry
from onnxgate.support.limits import load_limit_table


def _describe_pythons(captured: CapturedGroups) -> str:
    """Return the Python versions with wheels, if the missing package is a release of ONNX Runtime."""
    requirement = captured.get("asked", "")
    if "wanted" in captured:
        return "loosen one of the two, or put the packages into environments of their own, as onnxgate does"
    offered = captured.get("offered", "").split(", ")
    if offered == ["none"]:
        return (
            "the index offers no release of it at all for this Python on this platform: look which it has wheels for,"
            " and whether the name is right"
        )
    if offered != [""] and not requirement.startswith("onnxruntime==1."):
        return (
            f"for this Python and platform there is {offered[0]} to {offered[-1]}: take one of these, or the Python"
            " that the release has wheels for"
        )
    if not requirement.startswith("onnxruntime==1."):
        return "look at the files of the release on the index: another Python or another release has a wheel"
    minor = requirement.removeprefix("onnxruntime==1.").partition(".")[0]
    if not minor.isdigit() or len(minor) > 3:
        return "ask for a release that there is"
    releases = list(load_limit_table().releases)
    if int(minor) > int(releases[-1].split(".")[1]):
        return f"ask for a release that there is: the newest that is known is onnxruntime {releases[-1]}"
    patches = [release for release in releases if release.startswith(f"1.{minor}.")]
    if patches and requirement.count(".") == 2 and requirement.removeprefix("onnxruntime==") not in patches:
        return f"ask for a release that there is: of onnxruntime 1.{minor}, {', '.join(patches)} are known"
    pythons = ", ".join(python for python, (first, last) in _FIRST_WHEELS.items() if first <= int(minor) <= last)
    having = f"Python {pythons}" if pythons else "no Python that is known"
    return f"onnxruntime 1.{minor} has wheels for {having}: take such a Python, or a release that has one for yours"


# Source: wheels of every release for x86_64 Linux; first and last minor per Python.
_FIRST_WHEELS = {
    "3.7": (0, 14),
    "3.8": (2, 19),
    "3.9": (7, 19),
    "3.10": (12, 23),
    "3.11": (15, 99),
    "3.12": (17, 99),
    "3.13": (20, 99),
    "3.14": (24, 99),
}


PIP = (
    Entry(
        name="pip-unreachable",
        patterns=(
            r"connection broken by '(?P<said>\w{1,60})",
            r"Could not fetch URL (?P<url>\S{1,300}): There was a problem confirming the ssl certificate",
            r"ReadTimeoutError: HTTPS?ConnectionPool\(host='(?P<url>[^'\n]{1,200})'",
        ),
        means="the package index does not answer",
        why="no network, a proxy, or a certificate that is not trusted; what pip says next, that there is no"
        " version, follows from it",
        fix="set `HTTPS_PROXY`, `PIP_INDEX_URL` or `PIP_CERT`; offline, install from a folder with `--no-index"
        " --find-links`",
    ),
    Entry(
        name="pip-no-distribution",
        patterns=(
            r"Could not find a version that satisfies the requirement (?P<asked>[^\s(]{1,200})"
            r"[^\n(]{0,100}\(from versions: (?P<offered>[^)\n]{1,4000})\)",
            r"Could not find a version that satisfies the requirement (?P<asked>[^\s(]{1,200})",
            r"No matching distribution found for (?P<asked>[^\s(]{1,200})",
        ),
        means="nothing that can be installed here fits `{asked}`",
        why="there is no wheel for this Python or this platform, the release does not exist, or the name is wrong",
        fix=_describe_pythons,
        rules=("lock-stale",),
    ),
    Entry(
        name="pip-conflict",
        patterns=(
            r"ResolutionImpossible",
            r"because these package versions have conflicting dependencies",
            r"pip's dependency resolver does not currently take into account all the packages",
            r" requires (?P<asked>[^\n,]{1,120}), but you (?:have|'ll have) (?P<said>[^\n]{1,120}) which is"
            r" incompatible",
        ),
        means="packages ask for releases of another one that exclude each other",
        fix="loosen the pin that is named as the cause, or put the packages into environments of their own, as"
        " onnxgate does",
        rules=("toolchain-drift",),
    ),
    Entry(
        name="pip-hash-mismatch",
        patterns=(
            r"THESE PACKAGES DO NOT MATCH THE HASHES",
            r"Expected sha256 (?P<expected>[0-9a-f]{64}) Got +(?P<asked>[0-9a-f]{64})",
        ),
        means="a downloaded file is not the one whose hash is written down",
        why="the requirements file was made for another platform or release, the index serves another file, or"
        " the download was changed",
        fix="write the hashes again where you trust the index (`onnxgate lock`); else do not install it",
        rules=("lock-stale",),
    ),
    Entry(
        name="pip-hash-missing",
        patterns=r"Hashes are required in --require-hashes mode",
        means="one requirement has a hash, so that all need one",
        fix="write the hashes of all of them: `pip-compile --generate-hashes` or `uv pip compile --generate-hashes`",
    ),
    Entry(
        name="pip-wheel-unsupported",
        patterns=r"(?<!\S)(?P<name>\S{1,200}\.whl) is not a supported wheel on this platform",
        means="the wheel `{name}` is for another Python or platform",
        why="its name says for which: `cp311` is CPython 3.11, then comes the platform",
        fix="take the wheel for this Python and platform, or let pip choose it by name and release",
    ),
    Entry(
        name="pip-build-failed",
        patterns=(
            r"metadata-generation-failed",
            r"subprocess-exited-with-error",
            r"Command errored out with exit status (?P<code>-?\d{1,9}): ",
            r"ModuleNotFoundError: No module named '(?P<said>distutils)'",
            r"Failed building wheel for (?P<name>\S{1,100})",
            r"Could not build wheels for (?P<name>\S{1,100})",
        ),
        means="pip found no wheel, and building from source failed",
        why="the release is older than this Python, so that only its source is there; `onnx` needs cmake and"
        " protobuf for it",
        fix="install a release that has a wheel for this Python, and forbid sources with `--only-binary :all:`",
    ),
    Entry(
        name="pip-requirement-invalid",
        patterns=r"Invalid requirement: '?(?P<asked>[^\n']{1,200})",
        means="`{asked}` is no requirement",
        fix="write it as `name==release`; conditions are parted by commas",
    ),
    Entry(
        name="pip-externally-managed",
        patterns=r"externally-managed-environment",
        means="this Python belongs to the operating system, and pip may not change it",
        fix="make an environment: `python -m venv .venv`, or `uv venv`",
        source="PEP 668; Debian 12, Ubuntu 23.04, pip 23.0 and newer",
    ),
)

UV = (
    Entry(
        name="uv-no-solution",
        patterns=(
            r"Because (?P<asked>[^\s,]{1,200}) has no wheels with a matching (?P<said>[^\n]{1,120})",
            r"Because (?P<asked>[^\s,]{1,200}) depends on (?P<needs>[^\s,]{1,200}) and you require"
            r"[\s\S]{1,400}?And because you require (?P<wanted>[^\s,]{1,100}),",
            r"Because (?:there is no version of )?(?P<asked>[^\s,]{1,200})[^\n]{0,200}",
            r"No solution found when resolving dependencies",
        ),
        means=(
            "{asked} depends on {needs}, and {wanted} is required as well",
            "uv finds no set of packages that fits: {asked}",
        ),
        why="there is no wheel for this Python or platform, the release does not exist, or requirements exclude each"
        " other; the sentence that begins with `Because` says which",
        fix=_describe_pythons,
        rules=("lock-stale",),
    ),
    Entry(
        name="uv-hash-mismatch",
        patterns=r"Hash mismatch for `?(?P<asked>[^`\s]{1,200})`?",
        means="the downloaded file of `{asked}` is not the one whose hash is written down",
        fix="write the hashes again where you trust the index (`onnxgate lock`); else do not install it",
        rules=("lock-stale",),
    ),
    Entry(
        name="uv-hash-missing",
        patterns=r"In `--require-hashes` mode, all requirements must have a hash",
        means="requirements without a hash stand beside those that have one",
        fix="write the hashes of all of them: `uv pip compile --generate-hashes`",
    ),
    Entry(
        name="uv-unreachable",
        patterns=(
            r"Failed to fetch: `?(?P<url>https?://[^`\s]{1,300})",
            r"error sending request for url \((?P<url>[^)\s]{1,300})\)",
        ),
        means="the package index does not answer",
        fix="set `HTTPS_PROXY`, `UV_DEFAULT_INDEX` or `SSL_CERT_FILE`; with `--offline` uv uses its cache only",
    ),
    Entry(
        name="uv-wheel-unsupported",
        patterns=(
            r"Failed to read metadata: `?(?P<name>[^`\n]{1,300}\.whl)",
            r"(?<!\S)(?P<name>\S{1,200}\.whl)` ?[^\n]{0,80}is not compatible with the current platform",
        ),
        means="the wheel `{name}` cannot be read, or is for another platform",
        fix="fetch it again, and look for `cp311` and the platform in its name",
    ),
    Entry(
        name="uv-build-failed",
        patterns=(
            r"The build backend returned an error",
            r"Build backend failed to (?P<said>[^\n]{1,120})",
            r"Failed to (?:build|download and build) `(?P<name>[^`\n]{1,200})`",
        ),
        means="uv found no wheel, and building from source failed",
        fix="install a release that has a wheel for this Python, and forbid sources with `--only-binary :all:`",
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
        means="a package that was built for numpy 1 runs under numpy 2",
        why="the wheels of ONNX Runtime before 1.19 do not say that they need numpy below 2",
        fix="`pip install 'numpy<2'`, or a release of the package that was built for numpy 2: onnxruntime 1.19.0"
        " and newer",
        affected="onnxruntime before 1.19.0 with numpy 2",
        rules=("load-failed",),
    ),
    Entry(
        name="numpy-alias-removed",
        patterns=(
            r"module 'numpy' has no attribute '(?P<name>\w{1,40})'",
            r"`np\.(?P<name>\w{1,40})` is a deprecated alias",
            r"`np\.(?P<name>\w{1,40})` was removed in the NumPy 2\.0 release",
        ),
        means="`numpy.{name}` is gone from newer releases of numpy",
        why="aliases of Python's own types went with numpy 1.24, many more with 2.0; a package is older than that",
        fix="upgrade the package that the traceback ends in, or pin `numpy<1.24` (`numpy<2` for `float_` and the like)",
        rules=("toolchain-drift",),
    ),
    Entry(
        name="numpy-pickle-newer",
        patterns=r"No module named 'numpy\._core(?:\.\w{1,40})?'",
        means="a pickle that was written under numpy 2 is read under numpy 1",
        fix="read it under numpy 2 (or 1.26), or write it again as `.npy`",
    ),
)

PROTOBUF = (
    Entry(
        name="protobuf-mismatch",
        patterns=(
            r"Descriptors cannot (?:not )?be created directly",
            r"cannot import name '(?P<name>runtime_version|builder)' from 'google\.protobuf",
            r"Detected (?:incompatible|mismatched) Protobuf Gencode/Runtime (?:major )?versions when loading"
            r" (?P<file>\S{1,200}): gencode (?P<expected>\S{1,30}) runtime (?P<asked>[\w.]{1,30})",
            r"'MessageFactory' object has no attribute 'GetPrototype'",
            r"Couldn't build proto file into descriptor pool",
        ),
        means="the installed protobuf does not fit the code that `onnx`, or another package, brings along",
        why="generated code works with the major release of protobuf that it was made by, and with the next at most",
        fix="let the package choose: `pip install --upgrade onnx protobuf`; for an old one, pin `protobuf<=3.20.3`",
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
"""Module -> package, if it has another name on PyPI."""


def _install_command(captured: CapturedGroups) -> str:
    package = _PACKAGE_OF_MODULE.get(captured["name"], captured["name"])
    return f"install it there: `python -m pip install {package}`, with the `python` that runs the command"


SYSTEM = (
    Entry(
        name="lfs-pointer",
        patterns=r"version https://git-lfs\.github\.com/spec/v1",
        means="a Git LFS pointer stands where a file should be",
        why="the repository was cloned without Git LFS, or `lfs: true` is missing at `actions/checkout`",
        fix="`git lfs install && git lfs pull`; in a workflow, `with: lfs: true`",
        rules=("lfs-pointer",),
        source="the first line of every pointer, https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md",
    ),
    Entry(
        name="lfs-missing",
        patterns=(
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
        patterns=(r"No space left on device", r"OSError: \[Errno 28\]"),
        means="the disk is full",
        why="several frameworks with CUDA take 5 GB each, and pip keeps what it downloads",
        fix="`onnxgate runtimes prune`, `pip cache purge`, or install the builds for the CPU",
        source="ENOSPC of every program",
    ),
    Entry(
        name="module-missing",
        patterns=r"No module named '(?P<name>onnx|onnxruntime|onnxscript|onnx_ir|openvino|tract|cv2|skl2onnx|"
        r"onnxmltools|tf2onnx|jax2onnx|"
        r"onnxruntime_extensions|torch|tensorflow|sklearn|google\.protobuf|numpy)'",
        means="the package of `{name}` is not installed in this environment",
        why="the command runs in another environment than the one that it was installed in,"
        " or it is an optional dependency",
        fix=_install_command,
        anywhere="install it there: `python -m pip install PACKAGE`, with the `python` that runs the command",
        rules=("export-failed",),
        source="ModuleNotFoundError of Python 3.6 and newer",
        general=True,
    ),
    Entry(
        name="file-missing",
        patterns=(
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
