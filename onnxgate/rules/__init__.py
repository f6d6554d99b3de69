"""All rules of onnxgate. In the folder of a stage, each file defines the rule with the file's name.

Files whose names start with `_` contain functions that several rules use.
"""

from __future__ import annotations

import importlib
import pkgutil

from onnxgate.core.findings import Stage
from onnxgate.rules.definition import AnyRule

ALL: tuple[AnyRule, ...] = tuple(
    getattr(importlib.import_module(f"{folder.__name__}.{file.name}"), file.name)
    for folder in (importlib.import_module(f"{__name__}.{stage.value}") for stage in Stage)
    for file in sorted(pkgutil.iter_modules(folder.__path__))
    if not file.name.startswith("_")
)
"""All rules of onnxgate, sorted by stage and name."""

by_id: dict[str, AnyRule] = {rule.id: rule for rule in ALL}
