"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from onnxgate.cli.shared.options import CommonOptions, common_options_without, usable_cores


@click.command()
@click.argument("word")
@common_options_without()
def echo(word: str, options: CommonOptions) -> tuple[str, CommonOptions]:
    """Return the arguments."""
    return word, options


def test_defaults() -> None:
    """By default, a command uses all cores and fails on errors."""
    expected = ("x", CommonOptions(jobs=usable_cores()))

    assert expected == echo.main(["x"], standalone_mode=False)


def test_every_option(tmp_path: Path) -> None:
    """Each option sets its field."""
    config = tmp_path / "c.toml"
    config.touch()
    given = ["--directory", str(tmp_path), "--config", str(config), "--offline", "--jobs", "3", "--fail-on", "never"]
    expected = CommonOptions(tmp_path, config, True, 3, "never", True, True, 2)

    assert echo.main([*given, "--no-ignores", "-q", "-vv", "x"], standalone_mode=False) == ("x", expected)
    assert expected.start == tmp_path


@click.command()
@common_options_without("jobs", "fail_on")
def brief(options: CommonOptions) -> CommonOptions:
    """Return the options."""
    return options


def test_options_that_a_command_does_not_have() -> None:
    """A command without an option rejects it, does not list it, and gets the default."""
    listed = brief.get_help(click.Context(brief))

    assert "--offline" in listed
    assert "--jobs" not in listed
    assert "--fail-on" not in listed
    assert brief.main(["--offline"], standalone_mode=False) == CommonOptions(offline=True, jobs=usable_cores())
    with pytest.raises(click.UsageError):
        brief.main(["--jobs", "2"], standalone_mode=False)


@pytest.mark.parametrize(
    "problem", [["--jobs", "0"], ["--fail-on", "note"], ["--directory", "absent"], ["--config", "."]]
)
def test_wrong_values_are_usage_errors(problem: list[str]) -> None:
    """Invalid values end with status 2."""
    with pytest.raises(click.UsageError) as error:
        echo.main([*problem, "x"], standalone_mode=False)

    assert error.value.exit_code == 2
