"""`python -m campaigns.fix`: fix every fixable case of `fixtures/` and run the results on real runtimes.

Environments are taken from the user's cache, or from `ONNXGATE_CACHE_DIR`. Each row shows the findings for one model
before and after the fix, the comparison of the old and the new model, and the result of a second run.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from onnxgate.commands.fix.model_file import replace_model_file
from onnxgate.commands.fix.pipeline import FixOptions, FixResult, fix_models
from onnxgate.gate.request import GateRequest
from onnxgate.runtimes.pool import WorkerPool
from tests.harness import fix_cases

ASKED = FixOptions(unsafe=True)


def rows(name: str, request: GateRequest, host: WorkerPool, scratch: Path) -> Iterator[str]:
    """Yield the table rows for the fixable models in one project."""
    (scratch / "first").mkdir()
    first = [fixes for fixes in fix_models(request, ASKED, host, scratch / "first") if fixes.findings]
    for each in first:
        if each.state == "repaired" and each.repaired is not None:
            old, new = each.model.absolute, each.repaired
            replace_model_file(old, request.project.root, new.replaced_sha256, new.path, scratch / "backups")
    (scratch / "second").mkdir()
    second = {fixes.model.path: fixes for fixes in fix_models(request, ASKED, host, scratch / "second")}
    for each in first:
        yield f"| {name} `{each.model.path}` | {_before(each)} | {_after(each, second[each.model.path])} |"


def _before(repair: FixResult) -> str:
    return ", ".join(dict.fromkeys(f"`{finding.rule}`" for finding in repair.findings))


def _after(repair: FixResult, again: FixResult) -> str:
    left = _before(again) or "none"
    if repair.state != "repaired" or repair.proof is None:
        why = "; ".join([repair.reason, *(left.reason for _, left in repair.unfixed)]).strip("; ")
        return f"{left} ({repair.state}) | {why} | {'nothing' if again.state == repair.state else again.state}"
    equal = [row.runtime for row in repair.proof.rows if row.state == "equal"]
    bits = sum("bit-identical" in row.text for row in repair.proof.rows)
    now = sum("runs now" in row.text for row in repair.proof.rows)
    proof = f"{len(equal)} runtimes, {repair.proof.cases} cases, {bits} bit-identical, {now} that refused the old model"
    apart = f"max difference {repair.proof.largest:.2g}"
    return f"{left} | {proof}, {apart} | {'nothing' if again.state == 'unchanged' else again.state}"


def main() -> None:
    """Print the table."""
    print("| case | before | after | proof | second run |\n|---|---|---|---|---|")
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="onnxgate-repair-") as scratch:

        def folder() -> Path:
            made = Path(scratch, str(next(numbers)))
            made.mkdir()
            return made

        projects = {name: fix_cases.make(name, folder()) for name in fix_cases.names()}
        projects["projects/broken"] = fix_cases.broken(folder())
        with projects["projects/broken"].open_host() as host:
            for name, request in projects.items():
                for row in rows(name, request, host, folder()):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
