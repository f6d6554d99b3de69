"""Locks and their parts for tests."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import strategies as st
from packaging.version import Version

from onnxgate.model.facts import ExternalFile, ValueInfo
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.lock.lock_file import render_lock
from onnxgate.project.lock.types import (
    Lock,
    LockedModel,
    LockedPackage,
    LockedRuntime,
    LockedTarget,
    LockedToolchain,
    MeasuredQuantization,
    MeasuredTolerance,
    Wheel,
)
from onnxgate.project.toml import loads

MODEL = LockedModel(
    sha256="aa" * 32,
    size_bytes=137,
    ir_version=8,
    opsets={"ai.onnx": 18, "com.microsoft": 1},
    producer="pytorch 2.13.0",
    inputs=(ValueInfo("x", "tensor(float)", ("batch", 3)),),
    outputs=(ValueInfo("y", "tensor(float)", None), ValueInfo("z", "tensor(int64)", ())),
    operators={"Conv": 2, "com.microsoft.Gelu": 1},
    metadata_keys=("author",),
    external=(ExternalFile("weights.bin", 4096, "bb" * 32),),
    tolerance={"y": MeasuredTolerance(noise=1e-7, bound=1e-6)},
    quantization={"y": MeasuredQuantization(sqnr_db=36.2, cosine=0.9998, top1=1.0, source="f.onnx", runtime="r 1")},
)


def runtime(release: str, numpy: str = "2.4.6", python: str = "3.11") -> LockedRuntime:
    """Return one release of onnxruntime with its numpy."""
    packages = (f"numpy=={numpy}", f"onnxruntime=={release}")
    return LockedRuntime(engine="onnxruntime", release=release, python=python, packages=packages)


def package(name: str, version: str, python: str = "3.11") -> LockedPackage:
    """Return one package with one wheel."""
    tag = f"cp{python.replace('.', '')}"
    wheel = Wheel(file=f"{name}-{version}-{tag}-{tag}-manylinux_2_28_x86_64.whl", sha256="cc" * 32)
    return LockedPackage(name=name, version=version, python=python, wheels=(wheel,))


def with_digests(text: str) -> str:
    """Return a hand-written lock as `onnxgate lock` would write it, with the digest of each table."""
    return render_lock(msgspec.convert(loads(text), Lock))


def project_of(folder: Path, toml: str) -> Project:
    """Write a config to `folder` and load its project."""
    (folder / "onnxgate.toml").write_text(toml, encoding="utf-8")
    return load_config(folder / "onnxgate.toml")


# TOML and protobuf strings are UTF-8, which has no surrogates.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
sizes = st.integers(0, 2**63 - 1)
versions = st.from_regex(r"(0|[1-9][0-9]?)\.(0|[1-9][0-9]?)(\.[1-9][0-9]?)?(rc[0-9])?", fullmatch=True)
"""Versions in canonical form, so that different texts are different versions."""
values = st.builds(ValueInfo, texts, texts, st.none() | st.lists(sizes | texts, max_size=4).map(tuple))
numbers = st.floats(0, allow_nan=False, allow_infinity=False)
pythons = st.from_regex(r"3\.[0-9]{1,2}", fullmatch=True)


def _tuples(of: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    return st.lists(of, max_size=3).map(tuple)


ratios = st.floats(-1, 1)
quantizations = st.builds(
    MeasuredQuantization, sqnr_db=st.floats(-200, 200), cosine=ratios, top1=ratios, source=texts, runtime=texts
)
models = st.builds(
    LockedModel,
    sha256=digests,
    size_bytes=sizes,
    ir_version=sizes,
    opsets=st.dictionaries(texts, sizes, max_size=3),
    function_opsets=st.dictionaries(texts, sizes, max_size=2),
    producer=texts,
    inputs=_tuples(values),
    outputs=_tuples(values),
    operators=st.dictionaries(texts, sizes, max_size=3),
    metadata_keys=_tuples(texts).map(lambda keys: tuple(sorted(keys))),
    external=_tuples(st.builds(ExternalFile, texts, sizes, digests)).map(lambda files: tuple(sorted(files))),
    tolerance=st.dictionaries(texts, st.builds(MeasuredTolerance, noise=numbers, bound=numbers), max_size=2),
    quantization=st.dictionaries(texts, quantizations, max_size=2),
)
builds = st.builds(
    LockedRuntime,
    engine=st.just("onnxruntime"),
    release=versions,
    packages=st.just(("foo==1.0",)),
    extensions=st.lists(st.sampled_from(["foo", "foo<2", "libs/a b.so", "c.dll"]), max_size=3).map(tuple),
    environment=texts.filter(bool),
)


def _with_packages(lock: Lock) -> Lock:
    """Return the lock with the packages that its runtimes pin."""
    runtimes = (runtime for target in lock.targets.values() for runtime in target.runtimes if not runtime.environment)
    pins = {(*pin.split("=="), runtime.python) for runtime in runtimes for pin in runtime.packages}
    ordered = sorted(pins, key=lambda pin: (pin[0], Version(pin[1])))
    return msgspec.structs.replace(lock, packages=tuple(package(*pin) for pin in ordered))


locks = st.builds(
    Lock,
    targets=st.dictionaries(
        texts,
        st.builds(
            LockedTarget,
            policy=digests,
            runtimes=versions.map(lambda each: (runtime(each),)) | builds.map(lambda each: (each,)) | st.just(()),
        ),
        max_size=3,
    ),
    toolchain=st.none()
    | st.builds(LockedToolchain, policy=digests, python=pythons, packages=st.dictionaries(texts, versions, max_size=3)),
    models=st.dictionaries(texts, models, max_size=3),
).map(_with_packages)
