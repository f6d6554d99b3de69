"""What must be true of the code's structure: one way in which data flows, and what may be imported where."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import onnxgate

PACKAGE = Path(onnxgate.__file__).parent
VALUES = {"errors", "findings", "lifeline", "scratch"}
# What each part may import besides itself and the values that everything may use.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "findings": set(),
    "lifeline": set(),
    "scratch": set(),
    "model": set(),
    "support": {"model"},
    "baseline": {"model"},
    "config": {"model", "__init__"},
    "lock": {"model", "config", "runtimes.jobs"},
    "runtimes": {"inventory", "lock", "config"},
    "inputs": {"model", "runtimes.jobs"},
    "texts": {"support"},
    "agreement": {"model", "lock", "config"},
    "evidence": {"model", "lock", "runtimes.jobs", "support.ways", "support.operations"},
    "rules": {"evidence"},
    "report": set(),
    "fingerprints": set(),
    "ignores": {"config", "report"},
    "accepting": {"config", "evidence", "ignores", "rules"},
    "judge": {"fingerprints", "ignores", "rules", "report"},
    "plan": {"config", "lock", "report", "runtimes.jobs"},
    "stages": {
        "model",
        "support",
        "baseline",
        "config",
        "lock",
        "runtimes",
        "inputs",
        "agreement",
        "evidence",
        "plan",
        "report",
        "texts",
    },
    "feeding": {"config", "inputs", "model", "runtimes.jobs"},
    "calling": {"config", "feeding", "runtimes", "stages"},
    "work": {
        "baseline",
        "stages.parity",
        "stages.runtime",
        "store",
        "inputs.asked",
        "runtimes.jobs",
        "support.operations",
        "support.harvested",
        "config",
        "lock",
        "model",
        "plan",
        "report",
        "evidence",
    },
    "underway": {"model", "plan", "report", "evidence", "runtimes", "stages", "feeding"},
    "witnesses": {"plan", "evidence", "runtimes", "stages"},
    "harvests": {"lock", "plan", "runtimes", "stages", "support"},
    "followups": {"config", "model", "inputs", "evidence", "runtimes", "stages"},
    "locating": {"evidence", "plan", "runtimes", "stages", "underway", "work"},
    "racing": {"baseline", "config", "evidence", "model", "plan", "report", "runtimes.jobs", "work"},
    "quantizing": {"config", "evidence", "model", "plan", "runtimes", "stages"},
    "exporting": {"inputs", "model", "plan", "runtimes", "stages", "underway", "work"},
    "comparing": {
        *("agreement", "evidence", "followups", "locating", "model", "plan", "quantizing", "runtimes", "stages"),
        *("underway", "work"),
    },
    "execution": {
        *("calling", "comparing", "config", "evidence", "exporting", "feeding", "followups", "inputs", "lock", "model"),
        *("plan", "racing", "runtimes", "stages", "store", "underway", "witnesses", "work"),
    },
    "measuring": {
        *("agreement", "calling", "config", "feeding", "lock", "model", "plan", "quantizing", "runtimes", "stages"),
    },
    "request": {
        *("baseline", "config", "inputs.asked", "lock", "model", "plan", "report", "runtimes", "shards"),
        *("support.harvested", "support.operations", "work"),
    },
    "weighing": {
        *(
            "accepting",
            "config",
            "fingerprints",
            "ignores",
            "inputs",
            "judge",
            "model",
            "plan",
            "report",
            "request",
            "rules",
        ),
    },
    "children": set(),
    "unchanged": {"model.hashing", "scratch"},
    "digests": {"baseline.checked_out", "model.hashing", "scratch"},
    "examining": {
        *("children", "config", "digests", "evidence", "judge", "lock", "model", "plan", "rules", "stages"),
        *("support.harvested", "support.operations", "unchanged", "runtimes.store"),
    },
    "gate": {
        "examining",
        "request",
        "weighing",
        "baseline",
        "support.operations",
        "config",
        "lock",
        "model",
        "runtimes",
        "evidence",
        "rules",
        "stages",
        "judge",
        "accepting",
        "fingerprints",
        "ignores",
        "plan",
        "report",
        "replays",
        "shards",
        "execution",
        "harvests",
        "store",
        "work",
        "support",
        "inputs",
    },
    "adoption": {
        "request",
        "weighing",
        "accepting",
        "config",
        "gate",
        "ignores",
        "fingerprints",
        "model.content",
        "report",
        "rules",
    },
    "shards": {"config"},
    "costs": {"lock", "plan"},
    "sharing": {
        "request",
        "weighing",
        "accepting",
        "config",
        "gate",
        "ignores",
        "judge",
        "plan",
        "report",
        "rules",
        "shards",
        "fingerprints",
    },
    "shared": {"accepting", "config", "evidence", "ignores", "judge", "report", "rules", "fingerprints"},
    "merging": {"__init__", "config", "drawings", "report", "shared"},
    "collecting": {"__init__", "formats.json", "merging", "report", "shards"},
    "verdict": {"request", "drawings", "gate", "plan", "report", "sharing", "replays", "__init__"},
    "drawings": {"model", "report"},
    "replays": {"evidence", "inputs.stored", "report", "runtimes.jobs"},
    "inventory": set(),
    "matrix": set(),
    "sameness": {"config.engines", "lock", "model", "runtimes"},
    "store": {"model", "runtimes", "sameness"},
    "carrying": {"costs", "runtimes.keeping", "store"},
    "preview": {"evidence.parity", "report"},
    "upgrading": {
        "request",
        "evidence",
        "gate",
        "lock",
        "model",
        "plan",
        "preview",
        "report",
        "stages",
        "underway",
        "verdict",
    },
    # of the worker one table: which IR version needs what
    "repair": {"model", "runtimes.worker.exporters.stamp"},
    "trying": {"config", "model", "plan", "repair", "runtimes", "stages.export_plan"},
    "holding": {"evidence.parity", "runtimes.jobs", "stages.parity", "stages.runtime"},
    "proving": {
        *("agreement", "config", "feeding", "followups", "holding", "lock", "model", "plan", "runtimes", "stages"),
    },
    "repairing": {
        *("__init__", "calling", "config", "feeding", "gate", "model", "plan", "proving", "repair", "report"),
        *("request", "runtimes", "trying"),
    },
    # of rules, their pages: in SARIF
    "formats": {
        "inventory",
        "report",
        "matrix",
        "model.difference",
        "model.facts",
        "preview",
        "rules",
        "texts.explained",
    },
}


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, without the package's name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("onnxgate."):
                yield module.removeprefix("onnxgate.")
            case ast.ImportFrom(module="onnxgate", names=names):
                yield from (alias.name if not alias.name.startswith("__") else "__init__" for alias in names)


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_follow_the_data(part: str) -> None:
    """No part imports one that comes after it, or one that it must not know."""
    files = sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]
    forbidden = {
        f"{path.relative_to(PACKAGE)}: {module}"
        for path in files
        for module in imports(path)
        if module.partition(".")[0] not in ALLOWED[part] | VALUES | {part}
        and not any(module == allowed or module.startswith(f"{allowed}.") for allowed in ALLOWED[part])
    }

    assert forbidden == set()


def test_worker_imports_nothing_of_ours() -> None:
    """The worker runs under interpreters that do not have onnxgate."""
    worker = PACKAGE / "runtimes" / "worker"

    assert [path.name for path in worker.rglob("*.py") if list(imports(path))] == []


def test_help_stays_light() -> None:
    """`onnxgate --help` imports none of what only the work itself needs."""
    code = (
        "import sys; sys.argv = ['onnxgate', '--help']\n"
        "from onnxgate.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'onnx', 'numpy', 'msgspec', 'rich', 'packaging', 'uv'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)

    assert done.stderr == "[]\n"
