"""Sessions of nox: lint, types and tests by default; `nox --list` names the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
TOOLCHAIN = "fixtures/projects/quickstart/requirements.txt"
ACTIONS = ("action.yml", "comment/action.yml")
WORKFLOWS = [str(path) for where in (".github/workflows", "examples") for path in sorted(Path(where).glob("*.yml"))]
DEPENDABOT = ".github/dependabot.yml"
FORMS = [str(path) for path in sorted(Path(".github/ISSUE_TEMPLATE").glob("*.yml"))]
PYTEST = ("python", "-m", "pytest", "--numprocesses=2", "--dist=worksteal")
HOOKS = (".pre-commit-config.yaml", ".pre-commit-hooks.yaml")

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"


def group(*names: str) -> list[str]:
    """The requirements of the dependency groups of that name."""
    return nox.project.dependency_groups(PYPROJECT, *names)


def node() -> list[str]:
    """The requirement that brings Node and npm where a machine has none."""
    return [] if shutil.which("npm") else group("node")


@nox.session
def lint(session: nox.Session) -> None:
    """Hold code to ruff, and the surface to GitHub's schemas and to zizmor."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("ruff", "check", "--target-version=py38", "onnxgate/runtimes/worker")
    audit = ("zizmor", "--offline", "--no-progress", "--persona=auditor", "--strict-collection")
    session.run(*audit, *ACTIONS, *WORKFLOWS, DEPENDABOT)
    session.run("check-jsonschema", "--builtin-schema=vendor.github-actions", *ACTIONS)
    session.run("check-jsonschema", "--builtin-schema=vendor.github-workflows", *WORKFLOWS)
    session.run("check-jsonschema", "--builtin-schema=vendor.dependabot", DEPENDABOT)
    session.run("check-jsonschema", "--builtin-schema=vendor.github-issue-forms", *FORMS)
    session.run("pre-commit", "validate-config", HOOKS[0])
    session.run("pre-commit", "validate-manifest", HOOKS[1])


@nox.session
def types(session: nox.Session) -> None:
    """Check the package, campaigns and bench with mypy in strict mode."""
    session.install(".", *group("lint", "test"))
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the quick tier: unit and component tests, and one check on real runtimes."""
    session.install(".", *group("test"))
    session.run(*PYTEST, "-m", "not full", *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """Run all other tests; `nox -s full -- -m index` selects by another mark."""
    session.install(".", *group("test", "surface"), *node(), "-r", TOOLCHAIN)
    session.run(*PYTEST, "-m", "full", *session.posargs)


@nox.session
def minimums(session: nox.Session) -> None:
    """Run the tests that need no index with the oldest releases that the package says it works with."""
    session.install(*group("test"), "uv")
    session.run("uv", "pip", "install", f"--python={session.bin}/python", "--resolution=lowest-direct", ".")
    session.run("python", "-m", "pytest", "-m", "not index and not torch and not surface", *session.posargs)


@nox.session
def frameworks(session: nox.Session) -> None:
    """Gate a project of each framework in an environment of its own: `nox -s frameworks -- sklearn`, else all."""
    session.install(".", *group("test"))
    asked = {"ONNXGATE_TEST_FRAMEWORKS": " ".join(session.posargs) or "all"}
    session.run("python", "-m", "pytest", "tests/e2e/frameworks", "-m", "frameworks", env=asked)


@nox.session
def conformance(session: nox.Session) -> None:
    """Compare predictions with real loads: all backend models and the whole schema fuzz. A few minutes."""
    session.install(".", *group("test"))
    session.run("python", "-m", "campaigns.conformance", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Compare the cost of onnxgate with peers and bounds: half an hour, 10 GB; `-- --quick`: two minutes."""
    session.install(".", *group("test", "bench"), "-r", TOOLCHAIN)
    session.run("python", "-m", "bench", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Make every fault at all moments and sizes: full disks, kills, broken indexes, lying runtimes. Half an hour."""
    session.install(".", *group("test"))
    session.run("python", "-m", "campaigns.faults", "--all", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation strictly, after seeing that what is generated is what the code says."""
    session.install(".", *group("docs"))
    session.run("python", "tools/generate_reference.py", "--check")
    built = session.posargs[0] if session.posargs else "build/docs"
    session.run("sphinx-build", "-q", "-n", "-W", "--keep-going", "-b", "html", "docs", built)
