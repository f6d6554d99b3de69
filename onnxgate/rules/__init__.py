"""All rules, listed by hand: a file that is not named here judges nothing, and a test says so."""

from __future__ import annotations

from onnxgate.rules.budget.memory_over_budget import memory_over_budget
from onnxgate.rules.budget.size_over_budget import size_over_budget
from onnxgate.rules.budget.slower_than_budget import slower_than_budget
from onnxgate.rules.definition import AnyRule
from onnxgate.rules.export.dynamic_axis_lost import dynamic_axis_lost
from onnxgate.rules.export.export_drops_mutation import export_drops_mutation
from onnxgate.rules.export.export_failed import export_failed
from onnxgate.rules.export.export_opset_ignored import export_opset_ignored
from onnxgate.rules.export.export_rounding import export_rounding
from onnxgate.rules.export.export_stale import export_stale
from onnxgate.rules.export.export_unstable import export_unstable
from onnxgate.rules.export.output_dropped import output_dropped
from onnxgate.rules.export.source_not_exportable import source_not_exportable
from onnxgate.rules.export.toolchain_drift import toolchain_drift
from onnxgate.rules.export.training_mode_left import training_mode_left
from onnxgate.rules.file.external_data_corrupt import external_data_corrupt
from onnxgate.rules.file.external_data_escapes import external_data_escapes
from onnxgate.rules.file.external_data_missing import external_data_missing
from onnxgate.rules.file.input_passthrough import input_passthrough
from onnxgate.rules.file.invalid_model import invalid_model
from onnxgate.rules.file.lfs_pointer import lfs_pointer
from onnxgate.rules.file.not_a_model import not_a_model
from onnxgate.rules.file.path_leaked import path_leaked
from onnxgate.rules.gate.ignore_expired import ignore_expired
from onnxgate.rules.gate.ignore_unused import ignore_unused
from onnxgate.rules.lock.data_file_added import data_file_added
from onnxgate.rules.lock.domain_added import domain_added
from onnxgate.rules.lock.input_added import input_added
from onnxgate.rules.lock.input_removed import input_removed
from onnxgate.rules.lock.input_renamed import input_renamed
from onnxgate.rules.lock.input_shape_narrowed import input_shape_narrowed
from onnxgate.rules.lock.input_type_changed import input_type_changed
from onnxgate.rules.lock.io_reordered import io_reordered
from onnxgate.rules.lock.ir_version_mismatch import ir_version_mismatch
from onnxgate.rules.lock.lock_stale import lock_stale
from onnxgate.rules.lock.metadata_removed import metadata_removed
from onnxgate.rules.lock.minimum_runtime_raised import minimum_runtime_raised
from onnxgate.rules.lock.model_changed import model_changed
from onnxgate.rules.lock.operators_changed import operators_changed
from onnxgate.rules.lock.opset_mismatch import opset_mismatch
from onnxgate.rules.lock.output_added import output_added
from onnxgate.rules.lock.output_removed import output_removed
from onnxgate.rules.lock.output_renamed import output_renamed
from onnxgate.rules.lock.output_shape_changed import output_shape_changed
from onnxgate.rules.lock.output_type_changed import output_type_changed
from onnxgate.rules.lock.size_grew import size_grew
from onnxgate.rules.lock.unlocked_model import unlocked_model
from onnxgate.rules.lock.weights_changed import weights_changed
from onnxgate.rules.parity.engine_mismatch import engine_mismatch
from onnxgate.rules.parity.optimization_mismatch import optimization_mismatch
from onnxgate.rules.parity.quantization_drift import quantization_drift
from onnxgate.rules.parity.quantization_invalid import quantization_invalid
from onnxgate.rules.parity.runtime_mismatch import runtime_mismatch
from onnxgate.rules.parity.source_mismatch import source_mismatch
from onnxgate.rules.runtime.dynamic_axis_broken import dynamic_axis_broken
from onnxgate.rules.runtime.inputs_unusable import inputs_unusable
from onnxgate.rules.runtime.load_failed import load_failed
from onnxgate.rules.runtime.output_not_finite import output_not_finite
from onnxgate.rules.runtime.output_shape_wrong import output_shape_wrong
from onnxgate.rules.runtime.output_unstable import output_unstable
from onnxgate.rules.runtime.prediction_contradicted import prediction_contradicted
from onnxgate.rules.runtime.provider_not_used import provider_not_used
from onnxgate.rules.runtime.run_failed import run_failed
from onnxgate.rules.runtime.runtime_crashed import runtime_crashed
from onnxgate.rules.runtime.runtime_timed_out import runtime_timed_out
from onnxgate.rules.support.attribute_unsupported import attribute_unsupported
from onnxgate.rules.support.deprecated_operator import deprecated_operator
from onnxgate.rules.support.external_data_refused import external_data_refused
from onnxgate.rules.support.ir_version_too_new import ir_version_too_new
from onnxgate.rules.support.missing_kernel import missing_kernel
from onnxgate.rules.support.no_support_data import no_support_data
from onnxgate.rules.support.opset_experimental import opset_experimental
from onnxgate.rules.support.opset_too_new import opset_too_new
from onnxgate.rules.support.provider_fallback import provider_fallback
from onnxgate.rules.support.type_mismatch import type_mismatch
from onnxgate.rules.support.unknown_domain import unknown_domain
from onnxgate.rules.support.unknown_operator import unknown_operator

ALL: tuple[AnyRule, ...] = (
    # file
    lfs_pointer,
    not_a_model,
    invalid_model,
    external_data_missing,
    external_data_corrupt,
    external_data_escapes,
    input_passthrough,
    path_leaked,
    # lock
    unlocked_model,
    model_changed,
    lock_stale,
    opset_mismatch,
    ir_version_mismatch,
    input_added,
    input_removed,
    input_renamed,
    input_type_changed,
    input_shape_narrowed,
    output_added,
    output_removed,
    output_renamed,
    output_type_changed,
    output_shape_changed,
    io_reordered,
    domain_added,
    data_file_added,
    metadata_removed,
    size_grew,
    minimum_runtime_raised,
    weights_changed,
    operators_changed,
    # support
    ir_version_too_new,
    opset_too_new,
    opset_experimental,
    unknown_domain,
    unknown_operator,
    deprecated_operator,
    missing_kernel,
    type_mismatch,
    attribute_unsupported,
    external_data_refused,
    provider_fallback,
    no_support_data,
    # runtime
    load_failed,
    run_failed,
    runtime_crashed,
    runtime_timed_out,
    dynamic_axis_broken,
    output_shape_wrong,
    output_not_finite,
    output_unstable,
    provider_not_used,
    inputs_unusable,
    prediction_contradicted,
    # parity
    source_mismatch,
    runtime_mismatch,
    optimization_mismatch,
    engine_mismatch,
    quantization_drift,
    quantization_invalid,
    # export
    export_failed,
    source_not_exportable,
    export_stale,
    export_rounding,
    export_unstable,
    export_opset_ignored,
    dynamic_axis_lost,
    output_dropped,
    export_drops_mutation,
    training_mode_left,
    toolchain_drift,
    # budget
    size_over_budget,
    slower_than_budget,
    memory_over_budget,
    # gate
    ignore_expired,
    ignore_unused,
)

by_id: dict[str, AnyRule] = {rule.id: rule for rule in ALL}
