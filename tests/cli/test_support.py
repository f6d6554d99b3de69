"""`onnxgate support`. The ranges end before 1.33, so that the answers do not change with new releases."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

from onnxgate.cli.support import command
from onnxgate.core.errors import OnnxgateError, UsageError

KNOWN = ("--runtime", "onnxruntime>=1.16,<1.33")


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def first_sentence(*arguments: str) -> str:
    """Return the answer of the command, which is its last line with `--quiet`."""
    result = run(*arguments, "--quiet")

    assert result.exception is None
    assert result.return_value == 0
    return result.output.strip()


def answer(*arguments: str) -> dict[str, Any]:
    """Return the JSON output."""
    parsed: dict[str, Any] = json.loads(run(*arguments, "--output", "json").output)
    return parsed


def error_of(*arguments: str) -> tuple[str, str | None, int]:
    """Return message, hint and exit status of the error that ends the command."""
    error = run(*arguments).exception

    assert isinstance(error, OnnxgateError)
    return error.message, error.hint, error.exit_code


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("com.microsoft.Gelu", *KNOWN),
            "`com.microsoft.Gelu` is supported by all 34 known releases of onnxruntime that match "
            "`onnxruntime>=1.16,<1.33` (1.16.0–1.32.0), by a kernel",
        ),
        (
            ("Attention", "--opset", "23", "--type", "T1=float16", "--runtime", "onnxruntime>=1.22,<1.26"),
            "`Attention` with `T1=float16` at opset 23 is supported by onnxruntime 1.23.0–1.25.1, by a kernel",
        ),
        (
            ("Where", "--type", "bool", *KNOWN),
            "`Where` with `T=bool` is not supported by any of the 34 known releases of onnxruntime that match "
            "`onnxruntime>=1.16,<1.33` (1.16.0–1.32.0), at any opset",
        ),
        (
            ("Mish", "--type", "float", "--opset", "20", "--runtime", "onnxruntime==1.17.1"),
            "`Mish` with `T=float` at opset 20 is supported by onnxruntime 1.17.1, by its function body",
        ),
        (
            ("--opset", "20", *KNOWN),
            "opset 20 is accepted by onnxruntime 1.17.0–1.32.0",
        ),
        (("--ir-version", "10", *KNOWN), "IR version 10 is accepted by onnxruntime 1.18.0–1.32.0"),
        (
            ("--ir-version", "11", "--engine", "onnxruntime-web"),
            "IR version 11 is accepted since onnxruntime-web 1.23.0",
        ),
        (("--ir-version", "9", "--engine", "openvino"), "IR version 9 is accepted by all "),
        (
            ("--ir-version", "10", "--opset", "20", "--runtime", "onnxruntime<1.18"),
            "IR version 10 and opset 20 are not accepted by any of the ",
        ),
        (
            ("--ir-version", "9", "--opset", "20", "--runtime", "onnxruntime==1.17.1"),
            "IR version 9 and opset 20 are accepted by onnxruntime 1.17.1",
        ),
        (
            ("--runtime", "onnxruntime>=1.18,<1.33", "--opset"),
            "export at opset 21 and IR version 10: all 27 known releases of onnxruntime that match "
            "`onnxruntime>=1.18,<1.33` (1.18.0–1.32.0) accept them",
        ),
        (
            ("--runtime", "onnxruntime==1.17.1"),
            "onnxruntime 1.17.1 accepts models up to IR version 9 and opset 20 of ai.onnx",
        ),
        (("--diff", "1.17.3", "1.18.0", "Relu"), "from onnxruntime 1.17.3 to 1.18.0: `Relu` did not change"),
        (
            ("Identity", "--type", "int4", *KNOWN),
            "`Identity` with `V=int4` (before opset 14, `T=int4`) may be supported by onnxruntime 1.19.0–1.32.0: only",
        ),
        (
            ("Relu", "--runtime", "onnxruntime==1.18.*"),
            "`Relu` is supported by both known releases of onnxruntime that match `onnxruntime==1.18.*` "
            "(1.18.0–1.18.1), by a kernel, at opset 6–21",
        ),
        (
            ("Where", "--type", "bool", "--runtime", "onnxruntime==1.18.*"),
            "`Where` with `T=bool` is not supported by either of the 2 known releases",
        ),
        (
            ("Mish", "--runtime", "onnxruntime>=1.16.1,<1.20"),
            "`Mish` is supported by all 10 known releases of onnxruntime that match `onnxruntime>=1.16.1,<1.20` "
            "(1.16.1–1.19.2), by its function body, at opset 18–21 "
            "(1.16.1–1.16.3: up to opset 19; 1.17.0–1.17.3: up to opset 20)",
        ),
        (
            ("Cast", "--opset", "19", "--runtime", "onnxruntime==1.16.3"),
            "`Cast` at opset 19 is supported by onnxruntime 1.16.3, by a kernel",
        ),
        (("--diff", "1.22.0", "1.22.1"), "from onnxruntime 1.22.0 to 1.22.1: no operator changed"),
        (("--diff", "1.17.3", "1.18.0", "Gelu"), "from onnxruntime 1.17.3 to 1.18.0: 1 operator changed"),
    ],
)
def test_the_first_sentence_is_the_answer(arguments: tuple[str, ...], expected: str) -> None:
    """Each question is answered in one sentence per domain; "no" is an answer, too."""
    assert first_sentence(*arguments).startswith(expected)


def test_opset_is_of_ai_onnx() -> None:
    """Operators of other domains are described at their own version."""
    operators = answer("QuantizeLinear", "--opset", "17", "--type", "int16", *KNOWN)["operators"]

    assert [(it["domain"], it["versions"][0]["fixed"]) for it in operators] == [
        ("ai.onnx", {"T2": "tensor(int16)"}),
        ("com.microsoft", {"T2": "tensor(int16)"}),
    ]
    assert [it["versions"][0]["spans"][-1]["way"] for it in operators] == ["none", "kernel"]


def test_a_way_out_is_suggested() -> None:
    """If no release supports the operator at the opset, a hint names the opsets at which releases do."""
    assert "hint: at opset 10–21, `RoiAlign` is supported by all" in run("RoiAlign", "--opset", "22", *KNOWN).output


def test_differences_omit_the_operators_of_the_optimizer() -> None:
    """Users cannot use operators of internal domains; others, limits and external data are compared."""
    output = run("--diff", "1.17.3", "1.18.0").output

    assert "com.ms.internal" not in output
    assert "com.microsoft.SparseAttention" in output
    assert "opset of ai.onnx     20      21" in output


def test_refused_interface_types() -> None:
    """Types that inputs and outputs of models cannot have are a limit of a release, and are compared."""
    release = run("--runtime", "onnxruntime-web==1.22.0").output
    difference = run("--diff", "1.21.1", "1.22.0", "Gelu", "--engine", "onnxruntime-web").output
    reverse = run("--diff", "1.22.0", "1.21.1", "Gelu", "--engine", "onnxruntime-web").output

    assert "inputs and outputs of the model  complex64, complex128, bfloat16," in release
    assert "inputs and outputs of bfloat16        accepted  refused\n" in difference
    assert "complex64" not in difference
    assert "inputs and outputs of bfloat16        refused  accepted\n" in reverse


@pytest.mark.parametrize(
    ("requirement", "origin"),
    [
        ("onnxruntime==1.18.1", "from the packages of onnxruntime (1.18.1, linux x86_64); attribute values"),
        (
            "onnxruntime-web==1.22.0",
            "from the kernels of the ONNX Runtime releases with the same numbers, without those whose models "
            "onnxruntime-web refused (1.22.0, wasm); kernels that no such model reaches are assumed; attribute values",
        ),
        ("openvino==2025.3.0", "from models with one node that openvino loaded or refused (2025.3.0, linux x86_64); "),
    ],
)
def test_the_origin_of_an_answer(requirement: str, origin: str) -> None:
    """The last lines state where the answer comes from, and what it assumes."""
    assert f"\n\n{origin}" in run("Gelu", "--runtime", requirement).output


def test_hints_about_releases_are_useful() -> None:
    """An engine that accepts any opset has no newest one to export at; the hint is about operators instead."""
    limited, unlimited = (run("--runtime", it).output for it in ("onnxruntime>=1.18", "openvino>=2026"))

    assert "hint: `onnxgate support --runtime 'onnxruntime>=1.18' --opset` shows the versions to export at" in limited
    expected = "hint: `onnxgate support OPERATOR --runtime 'openvino>=2026'` shows which of them support an operator"
    assert expected in unlimited
    assert "--opset" not in unlimited


def test_tract_may_refuse_a_model_whose_nodes_it_supports() -> None:
    """Its answers must not read as a prediction for models."""
    note = "tract refuses many models although it supports each of their nodes\n"

    assert run("If", "--engine", "tract").output.endswith(note)
    assert note not in run("If", "--engine", "openvino").output


def test_only_onnx_runtime_has_execution_providers() -> None:
    """The advice is not to configure what another engine does not have."""
    message, hint, status = error_of("Gelu", "--engine", "openvino", "--provider", "CUDAExecutionProvider")

    assert message.startswith("`--provider` cannot be combined with openvino")
    assert (hint, status) == (None, 2)


def test_differences_of_engines_without_kernels() -> None:
    """Versions with the same change share a description, which does not mention kernels."""
    output = run("--engine", "openvino", "--diff", "2024.5.0", "2025.0.0", "Cast", "--output", "markdown").output

    assert re.search(r"\| Cast \| support of version 19, [0-9, ]+ also with `T1` = `float8e4m3fn`", output)
    assert "kernel" not in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("1.22.0", "1.22.1"), []),
        (("1.17.3", "1.18.0", "Cast"), ["kernel", "schema", "A for B"]),
        (("1.31.1", "1.32.0", "com.microsoft.GroupQueryAttention"), ["schema", "A for B", "`+` and `-`", "`?`"]),
    ],
)
def test_the_legend_of_differences(arguments: tuple[str, ...], expected: list[str]) -> None:
    """It explains the marks that occur."""
    last_line = run("--diff", *arguments).output.splitlines()[-1]
    marks = ("kernel", "schema", "A for B", "`+` and `-`", "`?`", "`…`", "`!`")

    assert expected == [mark for mark in marks if f"{mark}" in last_line]


@pytest.mark.parametrize(
    "arguments",
    [
        ("Mish", "--runtime", "onnxruntime==1.17.1"),
        ("--runtime", "onnxruntime==1.17.1", "--opset"),
        ("--runtime", "onnxruntime==1.17.1", "--opset", "20"),
        ("--diff", "1.17.1", "1.17.3"),
    ],
)
@pytest.mark.parametrize("output_format", ["text", "markdown"])
def test_quiet_and_verbose_output(arguments: tuple[str, ...], output_format: str) -> None:
    """In each format, `-q` omits all but the sentence, and `-v` adds the packages."""
    usual, quiet, verbose = (run(*arguments, "--output", output_format, *it).output for it in ((), ("-q",), ("-v",)))

    assert usual.startswith(quiet)
    assert len(quiet.splitlines()) == 1
    assert ("onnxruntime-1.17.1-cp" in usual, "onnxruntime-1.17.1-cp" in verbose) == (False, True)


def test_json_contains_what_the_answer_rests_on() -> None:
    """Each release has its package, with a digest that names its algorithm; the types are complete."""
    found = answer("Gelu", "--runtime", "onnxruntime==1.17.1")

    assert found["releases"] == ["1.17.1"]
    assert [(it["file"], it["digest"][:9]) for it in found["sources"]] == [
        ("onnxruntime-1.17.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", "sha256:fd")
    ]
    assert found["operators"][0]["versions"][0]["spans"] == [{"since": "1.17.1", "until": "1.17.1", "way": "function"}]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("Gleu",), "no known release of onnxruntime has an operator `Gleu`; did you mean `Gelu`?", None),
        (
            ("com.microsft.Gelu",),
            "no known release of onnxruntime has the domain `com.microsft`; did you mean `com.microsoft`?",
            "domains: ai.onnx, ai.onnx.ml, com.microsoft",
        ),
        (
            ("com.microsoft.Conv",),
            "no known release of onnxruntime has an operator `com.microsoft.Conv`",
            "it exists in ai.onnx, com.microsoft.nchwc, com.ms.internal.nhwc",
        ),
        (("Gelu", "--opset", "x"), "`--opset` must be a positive number, got `x`", "for example `--opset 20`"),
        (("Gelu", "--type", "Z=float"), "`Gelu` has no type parameter `Z`", "its type parameters: T"),
        (
            ("Gelu", "--type", "float", "--type", "double"),
            "`--type` is given twice for a type without a parameter",
            "name the parameters: `--type T1=float16`",
        ),
        (
            ("Conv", "--type", "T=float", "--type", "double"),
            "`Conv` has no type parameter besides `T`",
            "omit the type without a parameter",
        ),
        (
            ("Gelu", "--runtime", "onnxruntime==1.14.1"),
            "the operators of the releases that match `onnxruntime==1.14.1` are not known",
            "kernels are known for onnxruntime 1.16.0–1.32.0",
        ),
        (
            ("--diff", "1.17.2", "1.18.0"),
            "the operators of onnxruntime 1.17.2 are not known",
            "known releases of 1.17: 1.17.0, 1.17.1, 1.17.3",
        ),
        (
            ("--runtime", "onnxruntime==1.17.2"),
            "no known release matches `onnxruntime==1.17.2`",
            "known releases of 1.17: 1.17.0, 1.17.1, 1.17.3",
        ),
        (
            ("com.microsoft.Gellu",),
            "no known release of onnxruntime has an operator `com.microsoft.Gellu`; did you mean `com.microsoft.Gelu`?",
            None,
        ),
        (("Gelu", "--opset", "0"), "`--opset` must be a positive number, got `0`", "for example `--opset 20`"),
        (("Gelu", "--provider", "cpu"), "unknown execution provider `cpu`; did you mean `CPUExecutionProvider`?", None),
        (
            ("Gelu", "--ir-version", "10"),
            "`--ir-version` cannot be combined with an operator",
            "omit one of them; support of an operator does not depend on the IR version",
        ),
        (
            ("--ir-version", "10", "--opset"),
            "`--opset` requires a number with `--ir-version`",
            "for example `--opset 20`",
        ),
        (
            ("--engine", "onnxruntime>=1.18"),
            "`onnxruntime>=1.18` is not the name of an engine",
            "for example `onnxruntime`",
        ),
        ((), "name an operator or releases", "for example `onnxgate support Gelu` or `onnxgate support "
         "--runtime 'onnxruntime==1.18.1'`"),
    ],
)  # fmt: skip
def test_usage_errors_suggest_what_was_meant(arguments: tuple[str, ...], message: str, hint: str | None) -> None:
    """An unknown name is a usage error with the most similar known names."""
    assert error_of(*arguments) == (message, hint, 2)


def test_unknown_types_and_engines() -> None:
    """Types have aliases of other libraries; an engine without a table is an error with those that have one."""
    assert first_sentence("Gelu", "--type", "fp16", *KNOWN) == first_sentence("Gelu", "--type", "float16", *KNOWN)
    assert error_of("Gelu", "--type", "flot16")[0] == "unknown type `flot16`; did you mean `float16`?"
    message, hint, status = error_of("Gelu", "--engine", "tensorrt")

    assert (message, status) == ("onnxgate has no support data for `tensorrt`", 2)
    assert (hint or "").startswith("engines with support data: `onnxruntime`")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("Relu", "--runtime", "onnxruntime==1.18.1"),
            "`Relu` is supported by onnxruntime 1.18.1, by a kernel, at opset 6–21",
        ),
        (
            ("com.microsoft.BiasGelu", "--runtime", "onnxruntime==1.18.1"),
            "`com.microsoft.BiasGelu` is supported by onnxruntime 1.18.1, by a kernel",
        ),
        (
            ("BiasGelu", "--opset", "25", "--runtime", "onnxruntime>=1.22,<1.25"),
            "`com.microsoft.BiasGelu` in models with opset 25 of ai.onnx is supported by onnxruntime 1.24.1–1.24.4, "
            "by a kernel",
        ),
        (
            ("Scaler", "--opset", "25", "--runtime", "onnxruntime==1.18.1"),
            "`ai.onnx.ml.Scaler` in models with opset 25 of ai.onnx is not supported by onnxruntime 1.18.1: "
            "opset 25 of ai.onnx is too new",
        ),
        (
            ("ai.onnx.ml.Scaler", "--opset", "5", "--runtime", "onnxruntime>=1.17.3,<1.18.1"),
            "`ai.onnx.ml.Scaler` at opset 5 is supported by onnxruntime 1.18.0, by a kernel",
        ),
    ],
)  # fmt: skip
def test_opsets_that_the_releases_in_question_accept(arguments: tuple[str, ...], expected: str) -> None:
    """No answer names an opset that all releases in question refuse, also not of ai.onnx for other domains."""
    assert first_sentence(*arguments) == expected


def test_opsets_before_the_first_version() -> None:
    """That an operator does not exist yet is an answer; operators of other domains may exist."""
    output = run("Gelu", "--opset", "19", *KNOWN).output.splitlines()

    assert output[0].startswith("`Gelu` at opset 19 is not supported by any of the 34 known releases")
    assert output[0].endswith(": `Gelu` does not exist in opset 19")
    assert output[1].startswith("`com.microsoft.Gelu` in models with opset 19 of ai.onnx is supported by all")
    assert any(line.startswith("hint: at opset 20") for line in output)


def test_digests_of_npm_packages() -> None:
    """Packages of npm have another kind of digest."""
    output = run("Gelu", "-v", "--runtime", "onnxruntime-web==1.22.0").output

    assert "sha512-" in output
    assert "sha256:" not in output


def test_domains_that_only_one_release_has() -> None:
    """A release that does not know a domain accepts no opset of it."""
    lines = run("--diff", "1.16.0", "1.32.0").output.splitlines()

    assert [line.split() for line in lines if "ai.onnx.preview " in line] == [
        ["opset", "of", "ai.onnx.preview", "none", "1"]
    ]


def test_map_types_are_spelled_as_they_are_printed() -> None:
    """Types that the answer lists are valid for `--type`, also with spaces and with `tensor(...)`."""
    listed = run("DictVectorizer", *KNOWN).output
    spellings = ("map(string,int64)", "map(string, int64)", "map(string,tensor(int64))", "map(str,long)")
    answers = {first_sentence("DictVectorizer", "--type", it, *KNOWN) for it in spellings}

    assert "map(string,int64)" in listed
    assert [it.split(" by ")[0] for it in answers] == [
        "`ai.onnx.ml.DictVectorizer` with `T1=map(string,int64)` is supported"
    ]
    assert " is supported by " in first_sentence("ZipMap", "--type", "seq(map(int64,float))", *KNOWN)
    assert error_of("ZipMap", "--type", "map(foo,bar)")[0] == "unknown type `foo`"
    assert error_of("ZipMap", "--type", "map(seq(int8),float)")[0] == "unknown type `seq(int8)`"


@pytest.mark.parametrize(
    "arguments",
    [("Gelu",), ("--opset", "20"), ("--opset", *KNOWN), KNOWN, ("--diff", "1.17.0", "1.18.0")],
)
def test_kernels_of_other_providers_are_not_known(arguments: tuple[str, ...]) -> None:
    """The tables were read from CPU packages: the answer is not guessed."""
    message, hint, status = error_of(*arguments, "--provider", "CUDAExecutionProvider")

    assert status == 3
    assert message.startswith("the kernels of `CUDAExecutionProvider` are not known")
    assert "omit `--provider`" in (hint or "")


@pytest.mark.parametrize(
    "arguments",
    [("--diff", "1.17.1", "1.18.0", "--opset", "20"), ("--type", "float"), ("Gelu", "--opset")],
)
def test_options_that_cannot_be_combined(arguments: tuple[str, ...]) -> None:
    """Each option belongs to a kind of question."""
    assert isinstance(run(*arguments).exception, UsageError)
