"""Rule cases: small projects and recorded evidence, checked by all rules."""

from __future__ import annotations

import datetime
import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import onnx
import onnx.parser

from onnxgate import rules
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.core.report import Finding
from onnxgate.evidence.lock import ModelChange
from onnxgate.gate import pipeline
from onnxgate.gate.request import Checkout, GateRequest, IgnorePolicy, Selection, StaticSettings
from onnxgate.gate.results import resolution
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.project.config.loader import load_config
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget

CASES = Path(__file__).parents[2] / "fixtures" / "rules"
TODAY = datetime.date(2026, 11, 20)


def every_case() -> list[Path]:
    """Return the folders of all cases."""
    return sorted(path.parent for path in CASES.glob("*/*/expected.txt"))


def unfold(case: Path, folder: Path) -> None:
    """Create the project of a case in `folder`: from ONNX text, and with `make.py` if it exists."""
    shutil.copytree(case, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected.txt", "__pycache__"))
    for text in sorted(folder.rglob("*.onnxtxt")):
        model = onnx.parser.parse_model(text.read_text(encoding="utf-8"))
        text.with_suffix(".onnx").write_bytes(model.SerializeToString(deterministic=True))
        text.unlink()
    script = folder / "make.py"
    if script.exists():
        spec = importlib.util.spec_from_file_location(f"make_{case.parent.name}_{case.name}", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.make(folder)
        script.unlink()


def findings_of(folder: Path) -> list[Finding]:
    """Return the findings of recorded evidence, of a changed model, or of the static stages of a project."""
    recorded = folder / "evidence.json"
    if recorded.exists():
        return findings_of_evidence(recorded)
    if (folder / "before.onnx").exists():
        return judged_by_all([change_of(folder)])
    return findings_of_project(folder)


def change_of(folder: Path) -> ModelChange:
    """Return the change from `before.onnx` to `model.onnx`, with further fields from `change.json`."""
    actual = folder / "change.json"
    read = {"before": folder / "before.onnx", "after": folder / "model.onnx"}
    told = {
        **{side: msgspec.to_builtins(read_facts(path, "model.onnx")) for side, path in read.items()},
        "place": {"path": "model.onnx"},
        "baseline": "at `main`",
    }
    return msgspec.convert(_laid_over(told, json.loads(actual.read_text()) if actual.exists() else {}), ModelChange)


def _laid_over(told: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Merge `change.json` into a change; keys of `before` and `after` are merged separately."""
    both: dict[str, Any] = {key: {**told[key], **more[key]} for key in ("before", "after") if key in more}
    return {**told, **more, **both}


def findings_of_evidence(recorded: Path) -> list[Finding]:
    """Return the findings of subjects that are recorded as JSON: `[{"subject": "Reexport", ...}]`."""
    return judged_by_all([decode_subject(record) for record in json.loads(recorded.read_text(encoding="utf-8"))])


def judged_by_all(subjects: Sequence[object]) -> list[Finding]:
    """Return the resolved and merged findings of all rules about the subjects."""
    judged = list(resolution.apply_rules(subjects, rules.ALL, {}))
    known = sorted({name for finding in judged for name in finding.hit.runtimes if name})
    return resolution.merge_runtimes(resolution.resolve_hits(judged), known)


def decode_subject(record: dict[str, object]) -> object:
    """Decode one subject by the name of its type."""
    name = record.pop("subject")
    subjects = {rule.subject.__name__: rule.subject for rule in rules.ALL}
    return msgspec.convert(record, subjects[str(name)])


def findings_of_project(folder: Path) -> list[Finding]:
    """Run the static stages in the folder. Without a config, its models are checked as files.
    `runtimes.txt` (releases of ONNX Runtime, or `engine==release`) stands for an otherwise current lock of them.
    """
    (folder / ".git").mkdir(exist_ok=True)
    config = folder / "onnxgate.toml"
    if not config.exists():
        config.write_text('models = ["**/*.onnx"]\n[targets.all]\nruntime = "onnxruntime"\n')
    project = load_config(config, rule_ids=frozenset(rules.by_id))
    lock_path, runtimes = folder / "onnxgate.lock", folder / "runtimes.txt"
    lock = load_lock(lock_path) if lock_path.exists() else _lock_of(runtimes)
    stages = frozenset(STATIC_STAGES) if lock_path.exists() else frozenset(STATIC_STAGES) - {pipeline.Stage.LOCK}
    request = GateRequest(
        checkout=Checkout(
            project=project,
            lock=lock,
            lock_text=lock_path.read_text(encoding="utf-8") if lock_path.exists() else "",
            lock_name="onnxgate.lock",
            models=project.models(),
        ),
        selection=Selection(stages),
        ignores=IgnorePolicy(TODAY),
        open_host=_no_host,
        static=StaticSettings(folder=lambda: folder / ".git" / "kept"),
    )
    findings = list(pipeline.run(request).findings)
    assert list(pipeline.run(request).findings) == findings, "cached results differ"
    return findings


def _lock_of(runtimes: Path) -> Lock:
    releases = runtimes.read_text().split() if runtimes.exists() else []
    pins = [release.rpartition("==")[::2] for release in releases]
    locked = tuple(
        LockedRuntime(engine=engine or "onnxruntime", release=release, python="3.11", packages=())
        for engine, release in pins
    )
    return Lock(targets={"all": LockedTarget(policy="", runtimes=locked)})


def _no_host() -> NoReturn:
    raise AssertionError("static stages start no process")


def say(findings: list[Finding]) -> str:
    """Return one line per finding: level, rule, place, message."""
    lines = []
    for finding in findings:
        place = finding.place.path + (f":{finding.place.line}" if finding.place.line else "")
        ignored = " (ignored)" if finding.ignored else ""
        lines.append(f"{finding.level} {finding.rule} {place}: {finding.message}{ignored}\n")
    return "".join(sorted(lines))
