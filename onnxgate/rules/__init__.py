"""All rules, listed by hand: a file that is not named here judges nothing, and a test says so."""

from __future__ import annotations

from onnxgate.rules.gate.ignore_expired import ignore_expired
from onnxgate.rules.gate.ignore_unused import ignore_unused
from onnxgate.rules.registry import AnyRule
from onnxgate.rules.support.ir_version_too_new import ir_version_too_new
from onnxgate.rules.support.no_support_data import no_support_data
from onnxgate.rules.support.opset_too_new import opset_too_new

ALL: tuple[AnyRule, ...] = (
    # support
    ir_version_too_new,
    opset_too_new,
    no_support_data,
    # gate
    ignore_expired,
    ignore_unused,
)

by_id: dict[str, AnyRule] = {rule.id: rule for rule in ALL}
