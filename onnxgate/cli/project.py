"""The project that a command works on, where it needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxgate.cli.options import CommonOptions
    from onnxgate.config.project import Project


def load_project(options: CommonOptions) -> Project:
    """The nearest one.

    Raises:
        ConfigError: there is none, or its config is wrong.
    """
    from onnxgate.errors import ConfigError

    project = find_project(options)
    if project is None:
        raise ConfigError("there is no `onnxgate.toml` here or above", hint="run `onnxgate init`")
    return project


def find_project(options: CommonOptions) -> Project | None:
    """The nearest one; None where there is none.

    Raises:
        ConfigError: its config is wrong.
    """
    from onnxgate import rules
    from onnxgate.config.discovery import find_config
    from onnxgate.config.loading import load_config

    path = options.config or find_config(options.start)
    return load_config(path, rule_ids=frozenset(rules.by_id)) if path is not None else None
