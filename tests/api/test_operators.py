"""`onnxgate.api.support`: the answers of `onnxgate support`, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onnxgate.api import ArgumentError, Support, SupportSpan, predict, support
from onnxgate.support.answers.operator_answers import SupportWay
from onnxgate.support.operators import list_known_releases
from tests.cli.test_check_and_matrix import run
from tests.harness.models import write
from tests.harness.version_models import EQUAL

FIRST, LAST = list_known_releases()[0], list_known_releases()[-1]


@pytest.mark.parametrize(
    ("operator", "options", "since", "until"),
    [
        ("Gelu", {}, "1.17.0", LAST),
        ("Gelu", {"domain": ""}, "1.17.0", LAST),
        ("Gelu", {"domain": "com.microsoft"}, FIRST, LAST),
        ("com.microsoft.Gelu", {}, FIRST, LAST),
        ("Gelu", {"types": "bfloat16"}, "", ""),
        ("Equal", {"types": "uint8"}, "1.21.0", LAST),
        ("Equal", {"types": {"T": "uint8"}, "requirement": "onnxruntime>=1.18,<1.22"}, "1.21.0", "1.21.1"),
        ("Attention", {"types": {"T1": "float16", "U": "bool"}, "opset": 23}, "1.23.0", LAST),
        ("LinearAttention", {"domain": "com.microsoft"}, "1.25.1", LAST),
        ("FusedConv", {}, FIRST, LAST),
        ("Equal", {"types": "uint8", "requirement": "onnxruntime-web<1.31"}, "1.21.0", "1.30.0"),
    ],
)
def test_the_first_and_last_release(operator: str, options: Mapping[str, Any], since: str, until: str) -> None:
    """A question about an operator is one line."""
    answer = support(operator, **options)

    assert (since, until) == (answer.since, answer.until)


def test_the_releases_that_are_asked_about() -> None:
    """`is_supported_by_all` is about all of the releases."""
    everywhere, some = (support("Gelu", requirement=f"onnxruntime>=1.{minor},<1.19") for minor in (17, 16))

    assert (everywhere.is_supported_by_all, some.is_supported_by_all) == (True, False)
    assert everywhere.releases == some.supported == ("1.17.0", "1.17.1", "1.17.3", "1.18.0", "1.18.1")


def spans_of(*ways: SupportWay) -> Support:
    """Return an answer about releases 1.0.0, 2.0.0, …, which support an operator in these ways."""
    releases = tuple(f"{number}.0.0" for number in range(1, len(ways) + 1))
    spans = tuple(SupportSpan(release, release, way) for release, way in zip(releases, ways, strict=True))
    return Support(
        engine="e", domain="ai.onnx", operator="O", releases=releases, spans=spans, versions=(), summary="a sentence"
    )


@pytest.mark.parametrize(
    ("ways", "since", "until", "supported"),
    [
        (("kernel", "none", "cast", "function"), "3.0.0", "4.0.0", "134"),
        (("kernel", "folded", "none"), "1.0.0", "2.0.0", "12"),
        (("none", "kernel", "unknown"), "2.0.0", "2.0.0", "2"),
        (("none", "unknown"), "", "", ""),
    ],
)
def test_support_with_gaps(ways: tuple[SupportWay, ...], since: str, until: str, supported: str) -> None:
    """`since` and `until` are the ends of the newest releases in a row; an unknown release does not count."""
    answer = spans_of(*ways)

    assert (since, until) == (answer.since, answer.until)
    assert list(supported) == [release[0] for release in answer.supported]


def test_an_answer_in_a_terminal() -> None:
    """`print` shows a sentence, and a REPL a short value instead of all types of all versions."""
    answer = support("Gelu", types="float16")

    assert str(answer) == (
        "`Gelu` with `T=float16` at opset 20+ is supported since onnxruntime 1.17.0, by its function body"
    )
    assert repr(answer) == f"<Support of Gelu by onnxruntime: since='1.17.0', until='{LAST}'>"
    assert repr(support("FusedConv")).startswith("<Support of com.microsoft.FusedConv by onnxruntime: ")


def test_the_details_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Versions, types and spans equal the JSON of `onnxgate support`."""
    command = ("support", "Cast", "--type", "T2=float16", "--runtime", "onnxruntime>=1.18", "--output", "json")
    (operator,) = json.loads(run(capsys, *command)[1])["operators"]
    versions = support("Cast", types={"T2": "float16"}, requirement="onnxruntime>=1.18").versions

    assert len(versions) > 1
    assert operator["versions"] == json.loads(msgspec.json.encode(versions))


def test_it_agrees_with_predictions(tmp_path: Path) -> None:
    """The releases that support an operator are those that load a model of it."""
    write(tmp_path / "model.onnx", EQUAL)
    loading = [it.release for it in predict(tmp_path / "model.onnx") if it.verdict == "loads"]

    assert tuple(loading) == support("Equal", types="uint8", opset=18).supported


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        ("Gellu", {}, "no known release of onnxruntime has an operator `Gellu`; did you mean `Gelu`?"),
        ("", {}, "no known release of onnxruntime has an operator ``"),
        ("Gelu", {"types": "flot16"}, "unknown type `flot16`; did you mean `float16`?"),
        ("Gelu", {"types": {"Q": "float"}}, "`Gelu` has no type parameter `Q`; its type parameters: T"),
        ("Gelu", {"domain": "com.microsft"}, "has the domain `com.microsft`; did you mean `com.microsoft`?"),
        ("Gelu", {"requirement": "1.18"}, "`1.18` is not a valid requirement; did you mean `onnxruntime==1.18.*`?"),
        ("Gelu", {"requirement": ""}, "`` is not a valid requirement"),
        ("Gelu", {"requirement": "onnxruntime<1.10"}, "kernels are known for onnxruntime 1.16.0–"),
        ("Gelu", {"requirement": "tensorflow"}, "onnxgate has no support data for `tensorflow`"),
    ],
)
def test_unknown_names(operator: str, options: Mapping[str, Any], message: str) -> None:
    """A misspelled name is an error with a suggestion, not the answer "no"."""
    with pytest.raises(ArgumentError) as raised:
        support(operator, **options)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        (5, {}, "`operator` must be `str`, got `int`"),
        ("Gelu", {"opset": "20"}, "`opset` must be `int`, got `str`"),
        ("Gelu", {"opset": True}, "`opset` must be `int`, got `bool`"),
        ("Gelu", {"types": ["float16"]}, "`types` must be `str` or `Mapping`, got `list`"),
        ("Gelu", {"types": {"T": None}}, r"`types\['T'\]` must be `str`, got `NoneType`"),
        ("Gelu", {"domain": 1}, "`domain` must be `str`, got `int`"),
        ("Gelu", {"requirement": None}, "`requirement` must be `str`, got `NoneType`"),
    ],
)
def test_arguments_of_other_types(operator: Any, options: Mapping[str, Any], message: str) -> None:
    """The error names the argument."""
    with pytest.raises(TypeError, match=message):
        support(operator, **options)


def test_a_domain_that_the_name_contains() -> None:
    """The domain may be repeated."""
    assert support("com.microsoft.Gelu", domain="com.microsoft").domain == "com.microsoft"


def test_an_opset_before_the_first_version() -> None:
    """The operator is not supported, which is an answer and not an error."""
    answer = support("Gelu", opset=3)

    assert answer.supported == ()
    assert "`Gelu` does not exist in opset 3" in str(answer)


def test_the_opset_of_another_domain() -> None:
    """Without a domain, the opset is that of `ai.onnx`, in which most models have their operators."""
    of_default, of_domain = support("LabelEncoder", opset=20), support("LabelEncoder", domain="ai.onnx.ml", opset=3)

    assert [1, 2, 4] == [version.version for version in of_default.versions]
    assert [2] == [version.version for version in of_domain.versions]


def test_an_engine_without_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the versions of some engines are known."""
    monkeypatch.setattr("onnxgate.commands.support.list_known_releases", lambda _: ())
    with pytest.raises(ArgumentError, match="the operators of onnxruntime are not known, only its versions"):
        support("Gelu")


def test_an_operator_of_several_other_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    """If `ai.onnx` does not have the operator and several domains do, none of them is guessed."""
    from onnxgate.commands import support as command

    answer = command.answer(command.Question(operator="Gelu"))
    other = answer.operators[1]
    twins = (other, msgspec.structs.replace(other, domain="my.domain"))
    monkeypatch.setattr(command, "answer", lambda _: msgspec.structs.replace(answer, operators=twins))
    with pytest.raises(ArgumentError, match=r"`Gelu` exists in `com\.microsoft` and `my\.domain`; pass `domain`"):
        support("Gelu")


def test_answers_are_hashable() -> None:
    """Equal answers are the same key of a dictionary."""
    first, second = support("Gelu", types="float16"), support("Gelu", types="float16")

    assert {first: "known"}[second] == "known"
    assert len({first, second, support("Gelu", types="float")}) == 2
