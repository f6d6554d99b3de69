"""The options that every command takes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from onnxgate.cli.shared.options import CommonOptions, common_options, usable_cores


@click.command()
@click.argument("word")
@common_options
def echo(word: str, options: CommonOptions) -> tuple[str, CommonOptions]:
    """Give back what it got."""
    return word, options


def test_defaults() -> None:
    """Nothing asked for: everything, on all cores, errors close the gate."""
    expected = ("x", CommonOptions(jobs=usable_cores()))

    assert expected == echo.main(["x"], standalone_mode=False)


def test_all_of_them(tmp_path: Path) -> None:
    """Each option arrives in its field."""
    config = tmp_path / "c.toml"
    config.touch()
    given = ["--directory", str(tmp_path), "--config", str(config), "--offline", "--jobs", "3", "--fail-on", "never"]
    expected = CommonOptions(tmp_path, config, True, 3, "never", True, True, True)

    assert echo.main([*given, "--no-ignores", "-q", "-v", "x"], standalone_mode=False) == ("x", expected)
    assert expected.start == tmp_path


@pytest.mark.parametrize(
    "wrong", [["--jobs", "0"], ["--fail-on", "note"], ["--directory", "absent"], ["--config", "."]]
)
def test_wrong_values_are_usage_errors(wrong: list[str]) -> None:
    """They end with status 2."""
    with pytest.raises(click.UsageError) as error:
        echo.main([*wrong, "x"], standalone_mode=False)

    assert error.value.exit_code == 2
