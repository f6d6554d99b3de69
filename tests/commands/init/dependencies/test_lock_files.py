"""ONNX Runtime packages in lock files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxgate.commands.init.deployed_runtimes import find_deployments

UV_PROJECT = """\
version = 1

[[package]]
name = "app"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [
    {{ name = "{dependency}" }},
]

[package.dev-dependencies]
dev = [
    {{ name = "onnxruntime" }},
]

[[package]]
name = "fastembed"
version = "0.3.6"
dependencies = [
    {{ name = "onnxruntime" }},
]

[[package]]
name = "onnxruntime"
version = "1.22.0"
"""
UV_FORKS = """\
[[package]]
name = "fastembed"
dependencies = [
    { name = "onnxruntime", version = "1.19.2" },
]

[[package]]
name = "onnxruntime"
version = "1.19.2"
resolution-markers = [
    "python_full_version < '3.10'",
]

[[package]]
name = "onnxruntime"
version = "1.22.0"
resolution-markers = [
    "python_full_version == '3.10.*'",
    "python_full_version >= '3.11'",
]
"""
POETRY = """\
[[package]]
name = "onnxruntime"
version = "1.22.0"
groups = {groups}
"""
YARN_1 = """\
# yarn lockfile v1

"onnxruntime-common@1.21.0":
  version "1.21.0"

onnxruntime-web@^1.17.0, onnxruntime-web@1.x:
  dependencies:
    onnxruntime-common "1.21.0"
  version "1.21.0"
"""
YARN_BERRY = """\
__metadata:
  version: 8

"onnxruntime-web@npm:^1.17.0":
  version: 1.21.0
  resolution: "onnxruntime-web@npm:1.21.0"
"""
PNPM_9 = """\
importers:
  .:
    dependencies:
      onnxruntime-web:
        specifier: ^1.17.0
        version: 1.21.0
packages:
  onnxruntime-web@1.21.0:
    resolution: {integrity: sha512-x}
snapshots:
  onnxruntime-web@1.21.0:
    dependencies: {}
"""


def find(folder: Path, **files: str) -> list[tuple[str, int, bool]]:
    """Write the files, whose names have `__` for `.`, and return the packages with their lines and their use."""
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    deployments = find_deployments(folder, [name.replace("__", ".") for name in files])

    assert deployments.problems == ()
    return [(it.declaration, it.line, it.is_for_development) for it in deployments.runtimes]


def test_each_fork_of_uv_has_its_own_line_and_marker(tmp_path: Path) -> None:
    """The line is that of the package, not the first line that contains its name."""
    assert find(tmp_path, uv__lock=UV_FORKS) == [
        ("onnxruntime==1.19.2 ; python_full_version < '3.10'", 8, False),
        ("onnxruntime==1.22.0 ; python_full_version == '3.10.*' or python_full_version >= '3.11'", 15, False),
    ]


@pytest.mark.parametrize(("dependency", "is_for_development"), [("numpy", True), ("fastembed", False)])
def test_packages_of_development_groups_in_uv_lock(tmp_path: Path, dependency: str, is_for_development: bool) -> None:
    """A package that only development groups of the project reach is not deployed."""
    found = find(tmp_path, uv__lock=UV_PROJECT.format(dependency=dependency))

    assert found == [("onnxruntime==1.22.0", 24, is_for_development)]


@pytest.mark.parametrize(
    ("groups", "is_for_development"), [('["dev"]', True), ('["main", "dev"]', False), ('["default"]', False)]
)
@pytest.mark.parametrize("name", ["poetry__lock", "pdm__lock"])
def test_groups_of_a_locked_package(tmp_path: Path, name: str, groups: str, is_for_development: bool) -> None:
    """Poetry 2 and PDM write the groups that need a package into the lock file."""
    found = find(tmp_path, **{name: POETRY.format(groups=groups)})

    assert found == [("onnxruntime==1.22.0", 2, is_for_development)]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [("yarn__lock", YARN_1, 6), ("yarn__lock", YARN_BERRY, 4), ("pnpm-lock__yaml", PNPM_9, 8)],
)
@pytest.mark.parametrize("key", ["dependencies", "devDependencies"])
def test_lock_files_of_yarn_and_pnpm(tmp_path: Path, name: str, text: str, line: int, key: str) -> None:
    """The locked version replaces the range in package.json, which contains whether it is for development only."""
    found = find(tmp_path, **{"package__json": json.dumps({key: {"onnxruntime-web": "^1.17.0"}}), name: text})

    assert found == [("onnxruntime-web==1.21.0", line, key == "devDependencies")]


@pytest.mark.parametrize(
    "entry", ["/onnxruntime-node/1.20.1:", "/onnxruntime-node@1.20.1:", "'onnxruntime-node@1.20.1(x@1.0.0)':"]
)
def test_keys_of_pnpm(tmp_path: Path, entry: str) -> None:
    """The versions of pnpm write the key of a package in different forms."""
    assert find(tmp_path, **{"pnpm-lock__yaml": f"packages:\n  {entry}\n"}) == [("onnxruntime-node==1.20.1", 2, False)]


def test_line_in_package_lock(tmp_path: Path) -> None:
    """The line is that of the installed package, not that of the dependency."""
    content = {
        "packages": {
            "": {"dependencies": {"onnxruntime-node": "1.20.1"}},
            "node_modules/onnxruntime-node": {"version": "1.20.1"},
        }
    }

    assert find(tmp_path, **{"package-lock__json": json.dumps(content, indent=2)}) == [
        ("onnxruntime-node==1.20.1", 8, False)
    ]
