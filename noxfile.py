"""Sessions of nox: lint, types and tests by default; `nox --list` lists all."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
TOOLCHAIN = "fixtures/projects/quickstart/requirements.txt"
ACTIONS = ("action.yml", "comment/action.yml", "pull-request/action.yml")
WORKFLOWS = [str(path) for where in (".github/workflows", "examples") for path in sorted(Path(where).glob("*.yml"))]
DEPENDABOT = ".github/dependabot.yml"
FORMS = [str(path) for path in sorted(Path(".github/ISSUE_TEMPLATE").glob("*.yml"))]
PYTEST = ("python", "-m", "pytest", "--numprocesses=2", "--dist=worksteal")
HOOKS = (".pre-commit-config.yaml", ".pre-commit-hooks.yaml")

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"


def group(*names: str) -> list[str]:
    """Return the requirements of these dependency groups."""
    return nox.project.dependency_groups(PYPROJECT, *names)


def node() -> list[str]:
    """Return the package that contains Node and npm, unless npm is installed."""
    return [] if shutil.which("npm") else group("node")


def run_tests(session: nox.Session, tier: str) -> None:
    """Run a tier, with compiled modules: processes that write no bytecode would compile them again at each start."""
    session.run("python", "-m", "compileall", "-q", "onnxgate")
    session.run(*PYTEST, "-m", tier, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Run ruff and zizmor, and validate actions, workflows and hooks against their schemas."""
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
    """Check the package, campaigns and bench with mypy in strict mode, and a project that uses the Python API."""
    session.install(".", *group("lint", "test"))
    session.run("mypy")
    session.run("python", "-m", "pytest", "tests/api/test_types.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the quick tier: unit and component tests, and one check on real runtimes."""
    session.install(".", *group("test"))
    run_tests(session, "not full")


@nox.session
def full(session: nox.Session) -> None:
    """Run all other tests; `nox -s full -- -m index` selects by another mark."""
    session.install(".", *group("test", "surface"), *node(), "-r", TOOLCHAIN)
    run_tests(session, "full")


@nox.session
def minimums(session: nox.Session) -> None:
    """Run the tests that need no package index with the oldest supported dependencies."""
    session.install(*group("test"), "uv")
    session.run("uv", "pip", "install", f"--python={session.bin}/python", "--resolution=lowest-direct", ".")
    session.run("python", "-m", "pytest", "-m", "not index and not torch and not surface", *session.posargs)


@nox.session
def frameworks(session: nox.Session) -> None:
    """Check a project of each framework in its own environment: all, or `nox -s frameworks -- sklearn`."""
    session.install(".", *group("test"))
    selected = {"ONNXGATE_TEST_FRAMEWORKS": " ".join(session.posargs) or "all"}
    session.run("python", "-m", "pytest", "tests/e2e/frameworks", "-m", "frameworks", env=selected)


@nox.session
def conformance(session: nox.Session) -> None:
    """Compare predictions and answers with real loads: all backend models, the whole schema fuzz. A few minutes."""
    session.install(".", *group("test"))
    session.run("python", "-m", "campaigns.conformance", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "campaigns.conformance.support_answers")


@nox.session
def bench(session: nox.Session) -> None:
    """Compare time and memory with targets and other tools: 30 minutes, 10 GB; `-- --quick`: 2 minutes."""
    session.install(".", *group("test", "bench"), "-r", TOOLCHAIN)
    session.run("python", "-m", "bench", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Run every fault: full disks, killed processes, broken package indexes, misbehaving runtimes. 30 minutes."""
    session.install(".", *group("test"))
    session.run("python", "-m", "campaigns.faults", "--all", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Check that generated pages are current, and build the documentation; warnings are errors."""
    session.install(".", *group("docs"))
    session.run("python", "tools/generate_reference.py", "--check")
    built = session.posargs[0] if session.posargs else "build/docs"
    session.run("sphinx-build", "-q", "-n", "-W", "--keep-going", "-b", "html", "docs", built)
