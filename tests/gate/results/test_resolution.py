"""Resolution of hits to findings: merging across runtimes, confirmation, contradiction and ignores."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from onnxgate import rules
from onnxgate.core.findings import (
    OPEN_UNTIL_RUN,
    Hit,
    HitReference,
    Level,
    OnRuntime,
    Place,
    Relation,
    RelationKind,
    RuleHit,
    Stage,
    confirms,
    contradicts,
    decided_by_runs,
    explained_by,
    follows_from,
    name_runtimes,
)
from onnxgate.core.report import Finding
from onnxgate.evidence.file import GraphFaults, ModelFile
from onnxgate.evidence.runtime import Attempt, ModelRuns
from onnxgate.gate.request import ExecutionResult, apply_runs
from onnxgate.gate.results import resolution
from onnxgate.gate.results.ignore_matching import Ignores
from onnxgate.model.validity import ModelFault
from onnxgate.project.config.schema import Ignore

PLACE = Place("onnxgate.lock", 7)
TODAY = datetime.date(2026, 11, 20)
KNOWN = [f"onnxruntime 1.{minor}.0" for minor in range(9, 20)]


def hit(runtime: str, detail: str = "", **more: str) -> Hit:
    """Return a hit on one runtime."""
    on = OnRuntime(runtime, detail, **more)
    return Hit(PLACE, "imports opset 21 of `ai.onnx`", model="m.onnx", on=on)


def judged(hit: Hit, rule: str = "opset-too-new", stage: Stage = Stage.SUPPORT) -> RuleHit:
    """Return the hit as an error of a rule."""
    return RuleHit(rule, stage, Level.ERROR, hit)


def only_message(*hits: Hit) -> str:
    """Return the message of the single finding that the hits are merged into."""
    (finding,) = resolution.merge_runtimes(resolution.resolve_hits([judged(hit) for hit in hits]), KNOWN)
    return finding.message


def test_details_share_engine_and_verb() -> None:
    """The engine is named once, and a verb shared by two runtimes is not repeated."""
    message = only_message(
        hit("onnxruntime 1.17.3", "supports up to 20", works_since="1.18.0"),
        hit("onnxruntime 1.16.3", "supports up to 19", works_since="1.18.0"),
    )

    assert message == (
        "imports opset 21 of `ai.onnx`; onnxruntime 1.16.3 supports up to 19; 1.17.3 up to 20 (works since 1.18.0)"
    )


def test_each_of_several_engines_has_its_first_release() -> None:
    """A release number alone would not tell which engine it belongs to; the field of the report is then empty."""
    hits = [
        hit("onnxruntime 1.17.3", "supports up to 20", works_since="1.18.0"),
        hit("onnxruntime-web 1.20.1", "supports up to 20", works_since="1.21.0", works_until="1.19.0"),
    ]
    (finding,) = resolution.merge_runtimes(resolution.resolve_hits([judged(it) for it in hits]), KNOWN)

    assert finding.message.endswith(
        "(last worked on onnxruntime-web 1.19.0; works again since onnxruntime 1.18.0 and onnxruntime-web 1.21.0)"
    )
    assert (finding.works_since, finding.works_until) == ("", "")


def test_several_runtimes_take_a_plural_verb() -> None:
    """A detail is written in the singular; for several runtimes its verb is converted to the plural."""
    message = only_message(
        hit("onnxruntime 1.9.0", "does not read data from this location", works_until="1.8.0"),
        hit("onnxruntime 1.10.0", "does not read data from this location", works_until="1.8.0", works_since="1.11.0"),
        hit("onnxruntime 1.12.0", "has no kernel", works_until="1.8.0"),
    )

    assert message == (
        "imports opset 21 of `ai.onnx`; onnxruntime 1.9.0 and 1.10.0 do not read data from this location; "
        "1.12.0 has no kernel "
        "(last worked on 1.8.0; works again since 1.11.0)"
    )


def test_neighbors_become_a_range() -> None:
    """Three or more neighbors among the locked runtimes form a range, in the order of releases."""
    names = ["onnxruntime 1.10.0", "onnxruntime 1.9.0", "onnxruntime 1.11.0", "onnxruntime 1.15.0"]

    assert name_runtimes(names, KNOWN) == "onnxruntime 1.9.0–1.11.0 and 1.15.0"


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (["onnxruntime 1.9.0", "web 2"], "onnxruntime 1.9.0 and web 2"),
        (["onnxruntime 1.9.0", "onnxruntime 1.15.0", "web 2"], "onnxruntime 1.9.0 and 1.15.0, and web 2"),
        (["a 1", "onnxruntime 1.9.0", "web 2"], "a 1, onnxruntime 1.9.0 and web 2"),
    ],
)
def test_runtimes_of_several_engines_are_one_subject(names: list[str], joined: str) -> None:
    """A verb may follow, as in `a 1 and b 2 have no support data`."""
    assert name_runtimes(names, KNOWN) == joined


def test_runtimes_without_detail_are_listed() -> None:
    """Runtimes without a detail are listed in parentheses."""
    message = only_message(hit("onnxruntime 1.9.0"), hit("onnxruntime 1.12.0"))

    assert message == "imports opset 21 of `ai.onnx` (onnxruntime 1.9.0 and 1.12.0)"


def test_findings_at_two_places_stay_two() -> None:
    """Hits are merged into one finding only if they differ in nothing but the runtime."""
    other = Hit(
        Place("onnxgate.lock", 8),
        "imports opset 21 of `ai.onnx`",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
    )
    findings = resolution.merge_runtimes(
        resolution.resolve_hits([judged(hit("onnxruntime 1.9.0")), judged(other)]), KNOWN
    )

    assert len(findings) == 2


def test_observation_confirms_prediction() -> None:
    """A failed load confirms the prediction that explains it; on another runtime it is a separate finding."""
    load = Hit(
        PLACE,
        "does not load",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=explained_by("opset-too-new"),
    )
    elsewhere = Hit(
        PLACE,
        "does not load",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.11.0"),
        relations=explained_by("opset-too-new"),
    )
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(
            [judged(hit("onnxruntime 1.9.0")), *(judged(h, "load-failed", Stage.RUNTIME) for h in (load, elsewhere))]
        ),
        KNOWN,
    )

    actual = [(finding.rule, finding.runtimes, finding.confirmed) for finding in findings]

    assert actual == [
        ("load-failed", ("onnxruntime 1.11.0",), False),
        ("opset-too-new", ("onnxruntime 1.9.0",), True),
    ]


def test_observation_decides_against_a_prediction() -> None:
    """A prediction that a run contradicts is replaced by the contradiction."""
    loaded = Hit(
        PLACE,
        "loads",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=contradicts("opset-too-new"),
    )
    resolved_hits = resolution.resolve_hits(
        [judged(hit("onnxruntime 1.9.0")), judged(loaded, "prediction-contradicted", Stage.RUNTIME)]
    )

    assert [resolved_hit.judged.rule for resolved_hit in resolved_hits] == ["prediction-contradicted"]


def test_a_rule_that_is_off_answers_all_the_same() -> None:
    """If `prediction-contradicted` is off, a contradicted prediction is still removed and does not fail the check."""
    runs = ModelRuns(
        model="m.onnx",
        place=PLACE,
        runtime="onnxruntime 1.9.0",
        attempts=(Attempt(optimization="all", outcome="completed"),),
        predicted=("opset-too-new",),
    )
    observed = list(
        resolution.apply_rules([runs], [rules.by_id["prediction-contradicted"]], {"prediction-contradicted": "off"})
    )
    elsewhere = judged(hit("onnxruntime 1.10.0"))
    resolved_hits = resolution.resolve_hits([judged(hit("onnxruntime 1.9.0")), elsewhere, *observed])

    assert [elsewhere] == [resolved_hit.judged for resolved_hit in resolved_hits]


def test_contradicted_prediction_is_not_a_cause() -> None:
    """A consequence of a contradicted prediction is reported as a finding again."""
    loaded = Hit(
        PLACE,
        "loads",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=contradicts("unknown-operator"),
    )
    observed = judged(loaded, "prediction-contradicted", Stage.RUNTIME)
    resolved_hits = resolution.resolve_hits([invalid(), judged(hit("onnxruntime 1.9.0"), "unknown-operator"), observed])

    assert ["invalid-model", "prediction-contradicted"] == [resolved_hit.judged.rule for resolved_hit in resolved_hits]


def stale(level: Level) -> RuleHit:
    """Return a stale export of the model, as a hit without a runtime."""
    return RuleHit("export-stale", Stage.EXPORT, level, Hit(PLACE, "is stale", model="m.onnx"))


def mismatch() -> RuleHit:
    """Return a mismatch with the source, which is a consequence of a stale export."""
    hit = Hit(
        PLACE,
        "differs",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=follows_from("export-stale"),
    )
    return RuleHit("source-mismatch", Stage.PARITY, Level.ERROR, hit)


def test_only_the_cause_is_reported() -> None:
    """A consequence is not reported in addition to its cause."""
    resolved_hits = resolution.resolve_hits([stale(Level.ERROR), mismatch()])

    assert [resolved_hit.judged.rule for resolved_hit in resolved_hits] == ["export-stale"]


def invalid(rule: str = "unknown-operator") -> RuleHit:
    """Return the checker's error for a model, which a more specific rule may replace."""
    return RuleHit(
        "invalid-model",
        Stage.FILE,
        Level.ERROR,
        Hit(
            PLACE,
            "is not valid",
            model="m.onnx",
            relations=follows_from(rule),
        ),
    )


def test_model_error_follows_from_a_hit_on_any_runtime() -> None:
    """An error of the model is dropped if it follows from a hit on any runtime, and kept if it has another cause."""
    refused = judged(hit("onnxruntime 1.9.0"), "unknown-operator")

    assert [each.judged.rule for each in resolution.resolve_hits([invalid(), refused])] == ["unknown-operator"]
    assert len(resolution.resolve_hits([invalid("type-mismatch"), refused])) == 2


def test_ignored_fault_does_not_hide_a_failed_load() -> None:
    """A model that does not load is an error, even if the fault of its file is ignored."""
    load = Hit(PLACE, "does not load", "m.onnx", on=OnRuntime(KNOWN[0]), relations=follows_from("invalid-model"))
    hits = [invalid(), judged(load, "load-failed", Stage.RUNTIME)]
    accepted = Ignores([Ignore(rule="invalid-model", reason="it loads")], TODAY)

    assert [it.judged.rule for it in resolution.resolve_hits(hits)] == ["invalid-model"]
    assert [it.judged.rule for it in resolution.resolve_hits(hits, accepted.accepts)] == [
        "invalid-model",
        "load-failed",
    ]


def test_softened_cause_hides_nothing() -> None:
    """A stale export that is only a warning does not hide a mismatch with the source."""
    resolved_hits = resolution.resolve_hits([stale(Level.WARNING), mismatch()])

    assert [resolved_hit.judged.rule for resolved_hit in resolved_hits] == ["export-stale", "source-mismatch"]


def test_ignored_cause_hides_nothing() -> None:
    """A stale export that is ignored does not hide a mismatch with the source."""
    resolved_hits = resolution.resolve_hits([stale(Level.ERROR), mismatch()], lambda each: each.rule == "export-stale")

    assert [resolved_hit.judged.rule for resolved_hit in resolved_hits] == ["export-stale", "source-mismatch"]


def test_softened_prediction_does_not_hide_the_observation() -> None:
    """A prediction that is only a warning does not hide a failed load, which is an error."""
    prediction = RuleHit("opset-too-new", Stage.SUPPORT, Level.WARNING, hit("onnxruntime 1.9.0"))
    load = Hit(
        PLACE,
        "does not load",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=explained_by("opset-too-new"),
    )
    resolved_hits = resolution.resolve_hits([prediction, judged(load, "load-failed", Stage.RUNTIME)])

    assert [resolved_hit.judged.rule for resolved_hit in resolved_hits] == ["opset-too-new", "load-failed"]


def about(what: str, rule: str = "missing-kernel") -> RuleHit:
    """Return a prediction for one topic of a rule."""
    predicted = Hit(
        PLACE,
        f"no kernel for {what}",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        topic=what,
    )
    return judged(predicted, rule)


def test_observation_affects_single_predictions() -> None:
    """An observation affects single predictions of a rule: one is confirmed, one removed, and one unchanged."""
    load = Hit(
        PLACE,
        "does not load",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=(
            *explained_by(HitReference("missing-kernel", "Det")),
            *contradicts(HitReference("missing-kernel", "Conv")),
        ),
    )
    predictions = [about("Det"), about("Conv"), about("Mul"), about("Det", "type-mismatch")]
    resolved_hits = resolution.resolve_hits([*predictions, judged(load, "load-failed", Stage.RUNTIME)])

    assert [("missing-kernel", "Det", True), ("missing-kernel", "Mul", False), ("type-mismatch", "Det", False)] == [
        (resolved_hit.judged.rule, resolved_hit.judged.hit.topic, resolved_hit.confirmed)
        for resolved_hit in resolved_hits
    ]


def test_run_confirms_prediction_without_explaining_it() -> None:
    """A run can confirm a prediction that does not explain its failure, which is then reported as well."""
    load = Hit(
        PLACE,
        "does not load",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=(
            *explained_by(HitReference("missing-kernel", "Conv")),
            *confirms(HitReference("missing-kernel", "Det")),
        ),
    )
    resolved_hits = resolution.resolve_hits([about("Det"), judged(load, "load-failed", Stage.RUNTIME)])

    assert [(KERNEL, True), ("load-failed", False)] == [
        (resolved_hit.judged.rule, resolved_hit.confirmed) for resolved_hit in resolved_hits
    ]


def test_reference_without_topic_covers_the_rule() -> None:
    """A reference without a topic applies to all hits of the rule."""
    load = Hit(
        PLACE,
        "loads",
        model="m.onnx",
        on=OnRuntime("onnxruntime 1.9.0"),
        relations=contradicts("missing-kernel"),
    )
    resolved_hits = resolution.resolve_hits(
        [about("Det"), about("Conv"), judged(load, "prediction-contradicted", Stage.RUNTIME)]
    )

    assert ["prediction-contradicted"] == [resolved_hit.judged.rule for resolved_hit in resolved_hits]


@pytest.mark.parametrize("rule", ["input-passthrough", "invalid-model"])
def test_predictions_do_not_block_runs(rule: str) -> None:
    """An error of the file that runs confirm or overrule does not prevent them, other errors of the file do."""
    predicted, broken = Hit(PLACE, "is odd", model="m.onnx"), Hit(PLACE, "is not a model", model="broken.onnx")
    actual = [judged(predicted, rule, Stage.FILE), judged(broken, "not-a-model", Stage.FILE)]

    assert resolution.find_blocked_models(actual, Ignores([], TODAY)) == {"broken.onnx"}


KERNEL = "missing-kernel"
PREDICTED = judged(replace(hit("onnxruntime 1.9.0"), topic="Det"), "missing-kernel")
ELSEWHERE = judged(replace(hit("onnxruntime 1.10.0"), topic="Det"), "missing-kernel")
REFERENCE = HitReference("missing-kernel", "Det")


@pytest.mark.parametrize(
    ("relation", "on", "expected"),
    [
        (contradicts(REFERENCE), "onnxruntime 1.9.0", [(KERNEL, False), ("run-failed", False)]),
        (
            confirms(REFERENCE),
            "onnxruntime 1.9.0",
            [(KERNEL, True), (KERNEL, False), ("run-failed", False)],
        ),
        (explained_by(REFERENCE), "onnxruntime 1.9.0", [(KERNEL, True), (KERNEL, False)]),
        (explained_by(REFERENCE), "", [(KERNEL, True), (KERNEL, True)]),
        (follows_from(REFERENCE), "onnxruntime 1.9.0", [(KERNEL, False), (KERNEL, False)]),
        (follows_from(REFERENCE), "", [(KERNEL, False), (KERNEL, False)]),
        (
            (OPEN_UNTIL_RUN,),
            "onnxruntime 1.9.0",
            [(KERNEL, False), (KERNEL, False), ("run-failed", False)],
        ),
    ],
)
def test_effect_of_each_relation(relation: tuple[Relation, ...], on: str, expected: list[tuple[str, bool]]) -> None:
    """Each kind of relation drops or confirms exactly the hits in its table row, on the given runtimes."""
    source = Hit(PLACE, "is seen", model="m.onnx", on=OnRuntime(on) if on else None, relations=relation)
    resolved = resolution.resolve_hits([PREDICTED, ELSEWHERE, judged(source, "run-failed", Stage.RUNTIME)])

    assert expected == [(each.judged.rule, each.confirmed) for each in resolved]


@pytest.mark.parametrize("relate", [contradicts, confirms, explained_by, follows_from])
def test_relation_to_another_topic_has_no_effect(relate: Callable[..., tuple[Relation, ...]]) -> None:
    """A reference with a topic does not affect other hits of its rule."""
    source = replace(hit("onnxruntime 1.9.0"), relations=relate(HitReference("missing-kernel", "Conv")))
    resolved = resolution.resolve_hits([PREDICTED, judged(source, "run-failed", Stage.RUNTIME)])

    assert [(KERNEL, False), ("run-failed", False)] == [(each.judged.rule, each.confirmed) for each in resolved]


def test_every_kind_of_relation_has_an_effect() -> None:
    """A kind without an effect would raise an error in the middle of a check."""
    assert set(RelationKind) == resolution.RELATION_EFFECTS.keys()


def observed(*pairs: tuple[str, str], failed: str = "") -> ExecutionResult:
    """Return the result of runs of (model, runtime) pairs; the run of `m.onnx` on the runtime `failed` failed."""
    faulty = (ModelRuns(model="m.onnx", place=PLACE, runtime=failed, attempts=()),) if failed else ()
    return ExecutionResult(ran=frozenset(pairs), completed=frozenset(pairs), faulty=faulty)


def test_a_load_alone_does_not_overrule_a_fault_of_a_file() -> None:
    """A runtime that loads an invalid model, but was given no inputs, has not run it."""
    execution = ExecutionResult(ran=frozenset(("m.onnx", name) for name in KNOWN[:3]))

    assert {hit.level for hit in apply_runs([FAULT], execution)} == {Level.ERROR}


def test_open_hits_are_dropped_once_the_model_was_run() -> None:
    """A failed prediction is not reported for runtimes on which the model was run."""
    hits = [judged(replace(hit(f"onnxruntime 1.{minor}.0"), relations=(OPEN_UNTIL_RUN,))) for minor in (9, 10)]
    execution = observed(("m.onnx", "onnxruntime 1.9.0"), ("n.onnx", "onnxruntime 1.10.0"))

    assert [*hits[1:], PREDICTED] == apply_runs([*hits, PREDICTED], execution)


FAULT = judged(
    Hit(PLACE, "is not valid ONNX", model="m.onnx", relations=(decided_by_runs(KNOWN[:3]),)),
    "invalid-model",
    Stage.FILE,
)


@pytest.mark.parametrize(
    ("ran", "failed", "expected"),
    [
        (0, "", [(Level.ERROR, "", "is not valid ONNX")]),
        (1, "", [(Level.ERROR, name, "is not valid ONNX") for name in KNOWN[1:3]]),
        (3, KNOWN[2], [(Level.ERROR, KNOWN[2], "is not valid ONNX")]),
        (3, "", [(Level.WARNING, "", "is not valid ONNX; onnxruntime 1.9.0–1.11.0 accept it")]),
        (1, KNOWN[0], [(Level.ERROR, name, "is not valid ONNX") for name in KNOWN[:3]]),
        (2, KNOWN[1], [(Level.ERROR, name, "is not valid ONNX") for name in KNOWN[1:3]]),
    ],
)
def test_runs_limit_a_fault_of_a_file(ran: int, failed: str, expected: list[tuple[Level, str, str]]) -> None:
    """A fault is an error on the runtimes that do not run the model, and a warning if there is none."""
    execution = observed(*(("m.onnx", name) for name in KNOWN[:ran]), failed=failed)
    results = apply_runs([FAULT], execution)

    assert [(it.level, *it.hit.runtimes, it.hit.message) for it in results] == expected


@pytest.mark.parametrize(("levels", "expected"), [({}, Level.WARNING), ({"invalid-model": "error"}, Level.ERROR)])
def test_a_configured_level_is_final(levels: dict[str, str], expected: Level) -> None:
    """Runs do not lower the level of a fault if the config sets it."""
    graph = GraphFaults(invalid=ModelFault("it is odd"))
    subject = ModelFile("m.onnx", PLACE, runtimes=tuple(KNOWN[:1]), graph=graph)
    (fault,) = apply_runs(
        list(resolution.apply_rules([subject], [rules.by_id["invalid-model"]], levels)), observed(("m.onnx", KNOWN[0]))
    )

    assert fault.level == expected


def test_a_cause_on_one_runtime_does_not_hide_a_failed_load_on_another() -> None:
    """A fault that follows from a prediction for one runtime is reported for the others that do not load the model."""
    fault = replace(FAULT.hit, relations=(*FAULT.hit.relations, *follows_from("unknown-operator")))
    load = Hit(PLACE, "does not load", "m.onnx", relations=follows_from("invalid-model"))
    hits = [
        judged(fault, "invalid-model", Stage.FILE),
        judged(hit(KNOWN[0]), "unknown-operator"),
        *(judged(replace(load, on=OnRuntime(name)), "load-failed", Stage.RUNTIME) for name in KNOWN[:2]),
    ]
    execution = observed(*(("m.onnx", name) for name in KNOWN[:2]), failed=KNOWN[0])
    execution = replace(execution, faulty=(*execution.faulty, *observed(failed=KNOWN[1]).faulty))
    remaining = resolution.resolve_hits(apply_runs(hits, execution))

    found = [(it.judged.rule, *it.judged.hit.runtimes) for it in remaining]
    assert [it for it in found if it[1] != KNOWN[2]] == [
        ("invalid-model", KNOWN[1]),
        ("unknown-operator", KNOWN[0]),
    ]


@pytest.mark.parametrize(
    ("relations", "expected"),
    [
        (contradicts("unknown-operator"), [((KNOWN[0], KNOWN[2]), False)]),
        (confirms("unknown-operator"), [((KNOWN[0], KNOWN[2]), False), ((KNOWN[1],), True)]),
        (explained_by("unknown-operator"), [((KNOWN[0], KNOWN[2]), False), ((KNOWN[1],), True)]),
        ((), [(tuple(KNOWN[:3]), False)]),
    ],
)
def test_an_observation_concerns_one_runtime_of_a_prediction(
    relations: tuple[Relation, ...], expected: list[tuple[tuple[str, ...], bool]]
) -> None:
    """A hit on several runtimes is split if a relation refers to it on one of them."""
    predicted = judged(replace(hit(KNOWN[0]), on=OnRuntime(KNOWN[0], others=tuple(KNOWN[1:3]))), "unknown-operator")
    load = Hit(PLACE, "observed", "m.onnx", on=OnRuntime(KNOWN[1]), relations=relations)
    resolved = resolution.resolve_hits([judged(load, "load-failed", Stage.RUNTIME), predicted])

    assert [
        (it.judged.hit.runtimes, it.confirmed) for it in resolved if it.judged.rule == "unknown-operator"
    ] == expected


def test_a_cause_on_one_runtime_hides_a_prediction_only_there() -> None:
    """A prediction that follows from a cause on some of its runtimes is reported for the others."""
    on = OnRuntime(KNOWN[0], others=tuple(KNOWN[1:3]))
    predicted = judged(replace(hit(KNOWN[0]), on=on, relations=follows_from("opset-too-new")), "unknown-operator")
    cause = judged(hit(KNOWN[2]), "opset-too-new")
    (left,) = [it.judged for it in resolution.resolve_hits([predicted, cause]) if it.judged.rule != "opset-too-new"]

    assert left.hit.runtimes == tuple(KNOWN[:2])


def test_findings_of_joined_hits_equal_those_of_separate_hits() -> None:
    """How hits name their runtimes changes neither the message nor the order, fingerprint and numbers of findings."""
    on = OnRuntime(KNOWN[2], "has it since 2", "1.30.0", others=(KNOWN[0],))
    joined = judged(replace(hit(KNOWN[0]), on=on))
    parts = [judged(replace(hit(KNOWN[0]), on=replace(on, name=name, others=()))) for name in on.names]
    later = judged(replace(hit(KNOWN[1]), node="other", message="another"))

    def report(*hits: RuleHit) -> list[Finding]:
        return resolution.merge_runtimes(resolution.resolve_hits(hits), KNOWN)

    assert report(later, joined) == report(later, *parts)


def test_a_runtime_with_another_reason_does_not_confirm_a_fault() -> None:
    """A release that refuses the IR version does not make an accepted fault an error."""
    execution = observed(*(("m.onnx", name) for name in KNOWN[:3]), failed=KNOWN[0])
    predicted = judged(hit(KNOWN[0]))
    fault, *rest = apply_runs([FAULT, predicted], execution)

    assert (fault.level, fault.hit.runtimes, rest) == (Level.WARNING, ("",), [predicted])
    assert fault.hit.message == "is not valid ONNX; onnxruntime 1.10.0 and 1.11.0 accept it"


def test_evidence_that_no_rule_reads_is_an_error() -> None:
    """Evidence of an unknown type is an error and is not treated as having no problems."""
    with pytest.raises(TypeError, match="no rule is defined for evidence of the type `Place`"):
        list(resolution.apply_rules([PLACE], rules.ALL, {}))
