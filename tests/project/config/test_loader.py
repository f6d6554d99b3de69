"""Loading the config, and reporting all of its problems at once."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from onnxgate.core.errors import ConfigError
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.schema import Config, Ignore, Limits, ModelSettings, Target, Tolerance, Toolchain

RULES = ("opset-too-new", "missing-kernel", "lock-stale")
FULL = """
required-version = ">=0.1"
models = ["models/**/*.onnx"]
exclude = ["tests/data/**"]
ir-version = "<=10"
opset = { "ai.onnx" = 18 }

[targets.server]
runtime = "onnxruntime>=1.18,<1.32"
select = "bounds"
providers = ["CPUExecutionProvider"]
optimization = ["all"]
extensions = ["onnxruntime-extensions>=0.13", "libs/foo.so"]
required = false

[targets.own]
runtime = "onnxruntime"
python = ".venv"
providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]

[toolchain]
python = ".venv"
requires = ["torch==2.13.*", "onnxscript>=0.6"]

[[model]]
path = "models/*.onnx"
targets = ["server"]
source = "export.py:build"
command = ["{python}", "export.py", "--out", "{output}", "--opset={opset}"]
sizes = { batch = [1, 3] }
inputs = "samples/*.npz"
tolerance = { rtol = 1e-3, atol = 0, logits = { rtol = 0.01, atol = 1e-5 } }

[rules]
opset-too-new = "warning"

[[ignore]]
rule = "missing-kernel"
model = "models/legacy.onnx"
reason = "moves in March"
until = 2027-03-31

[limits]
time-s = 60
memory-mib = 2048
"""
EXPECTED = Config(
    required_version=">=0.1",
    models=("models/**/*.onnx",),
    exclude=("tests/data/**",),
    ir_version="<=10",
    opset={"ai.onnx": 18},
    targets={
        "server": Target(
            runtime="onnxruntime>=1.18,<1.32",
            select="bounds",
            optimization=("all",),
            extensions=("onnxruntime-extensions>=0.13", "libs/foo.so"),
            required=False,
        ),
        "own": Target(
            runtime="onnxruntime", python=".venv", providers=("CUDAExecutionProvider", "CPUExecutionProvider")
        ),
    },
    toolchain=Toolchain(python=".venv", requires=("torch==2.13.*", "onnxscript>=0.6")),
    model=(
        ModelSettings(
            path="models/*.onnx",
            targets=("server",),
            source="export.py:build",
            command=("{python}", "export.py", "--out", "{output}", "--opset={opset}"),
            sizes={"batch": (1, 3)},
            inputs="samples/*.npz",
            tolerance={"rtol": 1e-3, "atol": 0.0, "logits": Tolerance(rtol=0.01, atol=1e-5)},
        ),
    ),
    rules={"opset-too-new": "warning"},
    ignore=(
        Ignore(
            rule="missing-kernel",
            model="models/legacy.onnx",
            reason="moves in March",
            until=datetime.date(2027, 3, 31),
        ),
    ),
    limits=Limits(time_s=60.0, memory_mib=2048),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a git repository with one script."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "export.py").touch()
    return tmp_path


def problems(folder: Path, text: str | bytes, name: str = "onnxgate.toml") -> list[str]:
    """Return all problems reported for a config."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path, rule_ids=RULES)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


def test_full(folder: Path) -> None:
    """A config that uses every key is loaded completely."""
    (folder / "onnxgate.toml").write_text(FULL)

    project = load_config(folder / "onnxgate.toml", rule_ids=RULES)

    assert project.config == EXPECTED
    assert (project.folder, project.root) == (folder, folder)


def test_pyproject(folder: Path) -> None:
    """A table in `pyproject.toml` is equivalent; lines and key paths refer to that file."""
    path = folder / "pyproject.toml"
    path.write_text('[project]\nname = "x"\n[tool.onnxgate.targets.server]\nruntime = "onnxruntime"\n')

    project = load_config(path, rule_ids=RULES)

    assert project.config == Config(targets={"server": Target(runtime="onnxruntime")})
    assert (project.place("targets", "server", "runtime").path, project.place("targets", "server", "runtime").line) == (
        "pyproject.toml",
        4,
    )
    assert problems(folder, "[tool.onnxgate]\nmodel = 1\n", "pyproject.toml") == [
        "line 1: `tool.onnxgate.targets`: no targets are set; add a target, for example "
        '`[tool.onnxgate.targets.cpu]` with `runtime = "onnxruntime>=1.18"`',
        "line 2: `tool.onnxgate.model`: expected a list of tables, got `1`",
    ]


def test_pyproject_without_a_table(folder: Path) -> None:
    """An explicitly selected `pyproject.toml` without a `[tool.onnxgate]` table is an error."""
    (folder / "pyproject.toml").write_text("[tool]\n")

    with pytest.raises(ConfigError, match=r"`pyproject.toml` has no `\[tool.onnxgate\]` table"):
        load_config(folder / "pyproject.toml")


def test_all_at_once(folder: Path) -> None:
    """All problems are reported in file order, each with its line, its key and the closest valid spelling."""
    text = """\
model-paths = []
ir-version = "ten"
[targets.server]
runtime = "onnxruntime>=1.20,<1.18"
select = "minor"
providors = ["CPUExecutionProvider"]
optimization = ["all", "some", "all"]
[targets.edge]
runtime = 3
python = 3
[[model]]
path = "a.onnx"
targets = ["sever"]
source = "export.py"
[[ignore]]
rule = "opset-to-new"
"""
    expected = [
        "line 1: `model-paths`: unknown key; did you mean `models`?",
        "line 2: `ir-version`: expected an integer or a specifier such as `<=10`, got `ten`",
        "line 4: `targets.server.runtime`: no release can satisfy `<1.18,>=1.20`",
        "line 5: `targets.server.select`: expected one of `minors`, `bounds`, `newest`, `all`, got `minor`; "
        "did you mean `minors`?",
        "line 6: `targets.server.providors`: unknown key; did you mean `providers`?",
        "line 7: `targets.server.optimization[1]`: expected one of `all`, `disabled`, got `some`",
        "line 9: `targets.edge.runtime`: expected a string, got `3`",
        "line 10: `targets.edge.python`: expected a string, got `3`",
        "line 13: `model[0].targets[0]`: unknown target `sever`; did you mean `server`?",
        "line 14: `model[0].source`: expected `file.py:callable`, got `export.py`",
        "line 15: `ignore[0].reason`: is missing; expected a string",
    ]

    assert expected == problems(folder, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models = []", "line 1: `models`: expected at least one path or glob"),
        ('models = "a.onnx"', "line 1: `models`: expected a list of strings, got the string `a.onnx`"),
        ('models = ["a.onnx", "a.onnx"]', "line 1: `models[1]`: `a.onnx` is listed twice"),
        ('models = ["../a.onnx"]', "line 1: `models[0]`: expected a path below the config's folder, got `../a.onnx`"),
        ('exclude = ["/a"]', "line 1: `exclude[0]`: expected a path below the config's folder, got `/a`"),
        ("exclude = ['a\\b']", "line 1: `exclude[0]`: expected a path with `/`, got `a\\b`"),
        ("ir-version = 0", "line 1: `ir-version`: expected an integer or a specifier such as `<=10`, got `0`"),
        ("ir-version = true", "line 1: `ir-version`: expected a string or an integer, got `true`"),
        (
            'ir-version = "<=10.5"',
            "line 1: `ir-version`: expected an integer or a specifier such as `<=10`, got `<=10.5`",
        ),
        ('ir-version = ">9,<9"', "line 1: `ir-version`: no IR version can satisfy `>9,<9`"),
        ('opset = { "ai.onnx" = 0 }', 'line 1: `opset."ai.onnx"`: expected version 1 or newer, got `0`'),
        ('opset = { "ai.onnx" = "18" }', 'line 1: `opset."ai.onnx"`: expected an integer, got the string `18`'),
        ("opset = 0", "line 1: `opset`: expected version 1 or newer, got `0`"),
        (
            '[[model]]\npath = "*.onnx"\nopset = { "ai.onnx" = 0 }',
            'line 3: `model[0].opset."ai.onnx"`: expected version 1 or newer, got `0`',
        ),
        (
            'opset = { "" = 18 }',
            'line 1: `opset.""`: expected the name of a domain; the default domain is `ai.onnx`',
        ),
        (
            "",
            "`targets`: no targets are set; add a target, for example "
            '`[targets.cpu]` with `runtime = "onnxruntime>=1.18"`',
        ),
        (
            "models = ['a.onnx']\n[targets]",
            "line 2: `targets`: no targets are set; add a target, for example "
            '`[targets.cpu]` with `runtime = "onnxruntime>=1.18"`',
        ),
        ("[targets.a]", "line 1: `targets.a.runtime`: is missing; expected a string"),
        ("targets = 1", "line 1: `targets`: expected a table of tables, got `1`"),
        (
            "[targets.a]\nruntime = 'onnxruntime'\nproviders = ['CUDAExecutionProvider']",
            "line 3: `targets.a.providers[0]`: provider `CUDAExecutionProvider` is not available in the environments "
            "that onnxgate creates; set `python` to an environment that contains this provider",
        ),
        (
            "[targets.a]\nruntime = 'onnxruntime'\noptimization = []",
            "line 3: `targets.a.optimization`: expected at least one value",
        ),
        (
            "[toolchain]\nrequires = ['torch', 'Torch==2']",
            "line 2: `toolchain.requires[1]`: `Torch==2` repeats `torch`, which is already listed as `torch`",
        ),
        ("[[model]]\nsizes = {}", "line 1: `model[0].path`: is missing; expected a string"),
        (
            "[[model]]\npath = 'a.onnx'\n[[model]]\npath = './a.onnx'",
            "line 4: `model[1].path`: `./a.onnx` has another `[[model]]` entry; merge both entries",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nsource = 'nowhere.py:build'",
            "line 3: `model[0].source`: `nowhere.py` does not exist",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nsource = 'exprot.py:build'",
            "line 3: `model[0].source`: `exprot.py` does not exist; did you mean `export.py`?",
        ),
        (
            "model = ['*.onnx']",
            "line 1: `model[0]`: expected a table, got the string `*.onnx`; did you mean `models`?",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nsource = '../export.py:build'",
            "line 3: `model[0].source`: `../export.py` is outside the project",
        ),
        *(
            (
                f"[[model]]\npath = 'a.onnx'\ninputs = '{pattern}'",
                f"line 3: `model[0].inputs`: expected a glob, relative to the config, got `{pattern}`",
            )
            for pattern in (
                "",
                ".",
                "./",
                "/",
                "/samples/*.npz",
                "/etc/passwd",
                "C:/a",
                "*/../a",
            )
        ),
        *(
            (
                f"[[model]]\npath = 'a.onnx'\ninputs = '{pattern}'",
                f"line 3: `model[0].inputs`: `**` must be a whole path component, as in `a/**/b`, got `{pattern}`",
            )
            for pattern in ("***", "a/**b", "a**b")
        ),
        *(
            (
                f"[[model]]\npath = 'a.onnx'\ninputs = '{pattern}'",
                f"line 3: `model[0].inputs`: expected files in the repository, got `{pattern}`",
            )
            for pattern in ("../../etc/*", "../*.npz", "a/../../b", "linked/*")
        ),
        *(
            (
                f"[[model]]\npath = 'a.onnx'\nquantized-from = '{path}'",
                f"line 3: `model[0].quantized-from`: expected the path of a model in the project, got `{path}`",
            )
            for path in ("", "/etc/passwd", "../a.onnx", "linked/passwd")
        ),
        ("models = ['../*.onnx']", "line 1: `models[0]`: expected a path below the config's folder, got `../*.onnx`"),
        ("exclude = ['/a']", "line 1: `exclude[0]`: expected a path below the config's folder, got `/a`"),
        ("exclude = ['']", "line 1: `exclude[0]`: expected a path or a glob"),
        (
            "[[model]]\npath = 'a.onnx'\ncommand = ['make']",
            "line 3: `model[0].command`: expected the placeholder `{output}`, the path of "
            "the exported model, in the arguments",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ncommand = ['make', '{output}', '{out}']",
            "line 3: `model[0].command`: unknown placeholder `{out}`; "
            "expected one of `{python}`, `{output}`, `{opset}`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ncommand = []",
            "line 3: `model[0].command`: expected a program and its arguments",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nsizes = { batch = [1, 0] }",
            "line 3: `model[0].sizes.batch[1]`: expected a size of 1 or more, got `0`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nsizes = { batch = [] }",
            "line 3: `model[0].sizes.batch`: expected at least one size",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ntargets = []",
            "line 3: `model[0].targets`: expected at least one target; remove the key to use all targets",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ntolerance = { rtol = 1 }",
            "line 3: `model[0].tolerance`: `atol` is missing; expected both `rtol` and `atol`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nbudget = {}",
            "line 3: `model[0].budget`: expected at least one of `size-mib`, `slower-than-baseline`, "
            "`memory-over-baseline`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nbudget = { size-mib = 0 }",
            "line 3: `model[0].budget.size-mib`: expected a number above 0, got `0`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nbudget = { slower-than-baseline = -1.2 }",
            "line 3: `model[0].budget.slower-than-baseline`: expected a number above 0, got `-1.2`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\nbudget = { memory-over-baseline = inf }",
            "line 3: `model[0].budget.memory-over-baseline`: expected a number above 0, got `inf`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ntolerance = { y = 1 }",
            "line 3: `model[0].tolerance.y`: expected a table with `rtol` and `atol`, got a number",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ntolerance = { rtol = nan, atol = -1 }",
            "line 3: `model[0].tolerance.rtol`: expected a finite number, 0 or greater, got `nan`",
        ),
        (
            "[[model]]\npath = 'a.onnx'\ntolerance = { y = { rtol = 1 } }",
            "line 3: `model[0].tolerance.y.atol`: is missing; expected a number",
        ),
        (
            "[rules]\nopset-too-nw = 'off'",
            "line 2: `rules.opset-too-nw`: unknown rule `opset-too-nw`; did you mean `opset-too-new`?",
        ),
        (
            "[rules]\nfoo = 'off'",
            "line 2: `rules.foo`: unknown rule `foo`; `onnxgate explain` lists all rules",
        ),
        (
            "[rules]\nlock-stale = 'warn'",
            "line 2: `rules.lock-stale`: expected one of `error`, `warning`, `note`, `off`, got `warn`; "
            "did you mean `warning`?",
        ),
        ("[[ignore]]\nrule = 'lock-stale'\nreason = ' '", "line 3: `ignore[0].reason`: expected a reason"),
        (
            "[[ignore]]\nrule = 'lock-stale'\nreason = 'x'\nsha256 = 'aa'",
            "line 4: `ignore[0].sha256`: expected the 64 hexadecimal digits that `check --show-ignores` prints, "
            "got `aa`",
        ),
        (
            "[[ignore]]\nrule = 'lock-stale'\nreason = 'x'\nfingerprints = []",
            "line 4: `ignore[0].fingerprints`: expected at least one fingerprint; "
            "remove the key to accept all findings of the rule",
        ),
        (
            "[[ignore]]\nrule = 'lock-stale'\nreason = 'x'\nfingerprints = ['0123456789abcdef', '0123456789ABCDEF']",
            "line 4: `ignore[0].fingerprints[1]`: expected the 16 hexadecimal digits that `check --show-ignores` "
            "prints, got `0123456789ABCDEF`",
        ),
        (
            "[[ignore]]\nrule = 'lock-stale'\nreason = 'x'\nfingerprints = ['0123456789abcdef', '0123456789abcdef']",
            "line 4: `ignore[0].fingerprints[1]`: `0123456789abcdef` is listed twice",
        ),
        (
            "[[ignore]]\nrule = 'lock-stale'\nreason = 'x'\nuntil = 'soon'",
            "line 4: `ignore[0].until`: expected a date such as 2027-03-31, got the string `soon`",
        ),
        ("[limits]\ntime-s = 0", "line 2: `limits.time-s`: expected a number above 0, got `0`"),
        ("[limits]\nmemory-mib = -1", "line 2: `limits.memory-mib`: expected a number above 0, got `-1`"),
        ("[limits]\ntime_s = 1", "line 2: `limits.time_s`: unknown key; did you mean `time-s`?"),
    ],
)
def test_wrong(folder: Path, text: str, expected: str) -> None:
    """Each kind of invalid value is reported."""
    (folder / "linked").symlink_to("/etc")

    assert expected in problems(folder, text)


@pytest.mark.parametrize(
    "table",
    [
        "models = ['{0}']",
        "exclude = ['{0}']",
        "[[model]]\npath = '{0}'",
        "[[model]]\npath = 'a.onnx'\ninputs = '{0}'",
        "[[model]]\npath = 'a.onnx'\ninputs = '{0}.py:f'",
        "[[model]]\npath = 'a.onnx'\nsource = '{0}.py:f'",
        "[[model]]\npath = 'a.onnx'\nquantized-from = '{0}'",
        "[targets.a]\nruntime = 'onnxruntime'\npython = '{0}'",
        "[targets.a]\nruntime = 'onnxruntime'\nextensions = ['./{0}.so']",
    ],
)
def test_paths_that_the_system_refuses(folder: Path, table: str) -> None:
    """A path with a NUL character or with too many bytes is a problem of the config, not a bug."""
    nul = problems(folder, table.replace("'", '"').format("a\\u0000b"))
    long_name = problems(folder, table.format("a" * 256))
    long_path = problems(folder, table.format("a/" * 2100 + "a"))

    assert "expected a path without NUL characters, got `" in "\n".join(nul)
    assert "expected a path of at most 4,095 bytes whose names have at most 255 bytes" in "\n".join(long_name)
    assert long_name == long_path


def test_misspelled_targets(folder: Path) -> None:
    """A misspelled table is reported once, with the line of its first key."""
    text = "models = ['a.onnx']\n[target.a]\nruntime = 'onnxruntime'"

    assert problems(folder, text) == ["line 2: `target`: unknown key; did you mean `targets`?"]


def test_wrong_element(folder: Path) -> None:
    """A list with an invalid element is not also reported as empty."""
    text = "[targets.a]\nruntime = 'onnxruntime'\noptimization = ['extended']"
    expected = ["line 3: `targets.a.optimization[0]`: expected one of `all`, `disabled`, got `extended`"]

    assert expected == problems(folder, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"models = [\n", "line 1: "),
        (b"a = 1\na = 2\n", "line 2, column 6: "),
        (b"[targets.a]\n  runtime = onnxruntime\n", "line 2, column 13: invalid value: `runtime = onnxruntime`"),
        (b'ok = "x"\nbad = "\xff"\n', "line 2: expected UTF-8, got the byte 0xff"),
        (b"[targets\n", "line 1, column 9: "),
    ],
)
def test_toml_syntax_error(folder: Path, text: bytes, expected: str) -> None:
    """A TOML syntax error is reported with its line."""

    (problem,) = problems(folder, text)
    assert problem.startswith(expected)


def test_required_version(folder: Path) -> None:
    """A config that requires another onnxgate version is not checked further, because its keys may have changed
    meaning.
    """
    path = folder / "onnxgate.toml"
    path.write_text('required-version = ">=99"\nunknown = 1\n')

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert caught.value.message.startswith("`onnxgate.toml` requires onnxgate `>=99`; this is onnxgate ")
    assert not caught.value.problems


@pytest.mark.parametrize("text", ['required-version = "new"', 'required-version = ">2,<1"', "required-version = 1"])
def test_wrong_required_version(folder: Path, text: str) -> None:
    """An invalid `required-version` is reported with the other problems."""

    assert "`required-version`" in problems(folder, text)[-1]


def test_absent(tmp_path: Path) -> None:
    """A config that cannot be read is an error."""
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "onnxgate.toml")


def test_without_rules(folder: Path) -> None:
    """Rule names are checked only if the list of rules is given."""
    (folder / "onnxgate.toml").write_text("[targets.cpu]\nruntime = 'onnxruntime'\n[rules]\nfoo = 'off'\n")

    assert load_config(folder / "onnxgate.toml").config.rules == {"foo": "off"}
