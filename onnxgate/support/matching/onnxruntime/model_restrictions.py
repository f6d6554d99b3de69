"""Attribute values of classical models (linear models, support vectors, encoders) that ONNX Runtime rejects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import structs

from onnxgate.support.matching.attribute_values import AttributeValues, LongList, integers_of, number_of
from onnxgate.support.matching.onnxruntime.attribute_restrictions import (
    ML_DOMAIN,
    POST_TRANSFORMS,
    ReleaseRestriction,
    require,
)

_KERNEL_PARAMETERS = (0, 3)
UNKNOWN = -1


def restrict(
    operator: str,
    is_met: Callable[[AttributeValues], bool],
    problem: str,
    attribute: str,
    first: str = "",
    last: str = "",
) -> ReleaseRestriction:
    """Return a restriction of an operator of `ai.onnx.ml` for some releases; all by default."""
    return ReleaseRestriction((operator,), is_met, problem, first, last, attribute, domain=ML_DOMAIN)


def count_elements(values: AttributeValues, name: str) -> int:
    """Return the number of elements of a list; 0 if it is absent, -1 if it is unknown."""
    listed = values.get(name, ())
    return len(listed) if isinstance(listed, tuple) else listed.count if isinstance(listed, LongList) else UNKNOWN


def _lacks_thresholds(values: AttributeValues) -> bool:
    """Return whether an SVMClassifier has fewer values of `rho` than it compares pairs of classes."""
    vectors = integers_of(values, "vectors_per_class")
    needed = len(vectors) * (len(vectors) - 1) // 2 if sum(vectors) > 0 else 1
    return 0 <= count_elements(values, "rho") < needed


def _imputes_other_types(values: AttributeValues) -> bool:
    counts = [count_elements(values, name) for name in ("imputed_value_floats", "imputed_value_int64s")]
    return UNKNOWN not in counts and (counts[0] > 0) == (counts[1] > 0)


def has_negatives(values: AttributeValues, name: str) -> bool:
    """Return whether a list of integers contains a negative one."""
    return min(integers_of(values, name), default=0) < 0


def _lacks(values: AttributeValues, name: str) -> bool:
    return name not in values


def _has_other_scales(values: AttributeValues) -> bool:
    """Return whether a Scaler has no scales, or another number of offsets."""
    scales, offsets = count_elements(values, "scale"), count_elements(values, "offset")
    return scales == 0 or (scales != offsets and UNKNOWN not in (scales, offsets))


def _lacks_supports(values: AttributeValues) -> bool:
    """Return whether an SVMRegressor has not the coefficients and vectors for its number of supports."""
    supports = int(number_of(values, "n_supports", 0))
    coefficients, vectors = count_elements(values, "coefficients"), count_elements(values, "support_vectors")
    if supports <= 0 or UNKNOWN in (coefficients, vectors):
        return False
    return coefficients < supports or vectors == 0 or vectors % supports != 0


def _labels_other_classes(values: AttributeValues) -> bool:
    """Return whether a LinearClassifier has not the labels for the number of its intercepts."""
    classes = count_elements(values, "intercepts")
    labels = count_elements(values, "classlabels_ints") or count_elements(values, "classlabels_strings")
    if UNKNOWN in (classes, labels) or not classes:
        return False
    return labels not in (0, 2) if classes == 1 else labels < classes


def _lists_none(values: AttributeValues, *names: str) -> bool:
    """Return whether all lists are absent or empty."""
    return not any(count_elements(values, name) for name in names)


def _multiplies_other_classes(values: AttributeValues) -> bool:
    """Return whether a LinearClassifier of several classes has not as many coefficients for each of them."""
    classes, coefficients = count_elements(values, "intercepts"), count_elements(values, "coefficients")
    return classes > 1 and coefficients > 0 and coefficients % classes != 0


def _separates_other_classes(values: AttributeValues) -> bool:
    """Return whether an SVMClassifier with vectors has not a number of them for each label."""
    vectors = count_elements(values, "vectors_per_class")
    labels = count_elements(values, "classlabels_strings") or count_elements(values, "classlabels_ints")
    return sum(integers_of(values, "vectors_per_class")) > 0 and labels >= 0 and vectors != labels


def _lacks_vectors(values: AttributeValues) -> bool:
    """Return whether the vectors or coefficients of an SVMClassifier do not fit the number of vectors."""
    listed = integers_of(values, "vectors_per_class")
    vectors, coefficients = count_elements(values, "support_vectors"), count_elements(values, "coefficients")
    count = sum(listed)
    if count <= 0 or min(listed) < 0 or UNKNOWN in (vectors, coefficients):
        return False
    return vectors % count != 0 or coefficients < count * (len(listed) - 1)


MODEL_RESTRICTIONS = (
    restrict("Scaler", _has_other_scales, "`scale` and `offset` must have the same length", "scale"),
    restrict(
        "SVMRegressor",
        lambda values: count_elements(values, "rho") == 0,
        "`rho` is required",
        "rho",
        "1.26.0",
    ),
    restrict(
        "SVMRegressor",
        _lacks_supports,
        "`coefficients` and `support_vectors` must have values for each of `n_supports`",
        "n_supports",
        "1.26.0",
    ),
    restrict(
        "LinearClassifier",
        _labels_other_classes,
        "each class must have a label",
        "classlabels_ints",
        "1.28.0",
    ),
    require(
        ("TreeEnsembleClassifier", "LinearClassifier", "SVMClassifier"),
        "post_transform",
        POST_TRANSFORMS,
        first="1.23.0",
        domain=ML_DOMAIN,
    ),
    require(("SVMRegressor",), "post_transform", POST_TRANSFORMS, first="1.23.0", domain=ML_DOMAIN),
    require(("SVMClassifier",), "kernel_type", ("LINEAR", "POLY", "RBF", "SIGMOID"), first="1.23.0", domain=ML_DOMAIN),
    *(
        restrict(operator, partial(_lacks, name=name), f"`{name}` is required", name)
        for operator, name in (
            ("SVMClassifier", "coefficients"),
            ("SVMClassifier", "rho"),
            ("SVMRegressor", "coefficients"),
            ("SVMRegressor", "rho"),
            ("SVMClassifier", "kernel_params"),
            ("SVMRegressor", "kernel_params"),
            ("LinearRegressor", "coefficients"),
        )
    ),
    *(
        restrict(
            operator,
            lambda values: count_elements(values, "kernel_params") not in (*_KERNEL_PARAMETERS, UNKNOWN),
            "`kernel_params` must have 3 values",
            "kernel_params",
            "1.26.0",
        )
        for operator in ("SVMClassifier", "SVMRegressor")
    ),
    restrict(
        "SVMClassifier",
        partial(has_negatives, name="vectors_per_class"),
        "`vectors_per_class` must not be negative",
        "vectors_per_class",
        "1.26.0",
    ),
    restrict(
        "LinearClassifier",
        lambda values: count_elements(values, "intercepts") == 0,
        "`intercepts` is required",
        "intercepts",
        "1.26.0",
    ),
    restrict(
        "LinearRegressor",
        lambda values: number_of(values, "targets", 1) <= 0,
        "`targets` must be positive",
        "targets",
        "1.26.0",
    ),
    require(("CastMap",), "map_form", ("DENSE", "SPARSE"), domain=ML_DOMAIN),
    *(
        restrict(operator, lambda values, names=names: _lists_none(values, *names), f"{text} is required", names[0])  # type: ignore[misc]
        for operator, names, text in (
            ("FeatureVectorizer", ("inputdimensions",), "`inputdimensions`"),
            ("OneHotEncoder", ("cats_int64s", "cats_strings"), "a category"),
            ("SVMClassifier", ("classlabels_ints", "classlabels_strings"), "a class label"),
            ("SVMClassifier", ("coefficients",), "`coefficients`"),
            ("SVMRegressor", ("coefficients",), "`coefficients`"),
            ("TreeEnsembleClassifier", ("classlabels_int64s", "classlabels_strings"), "a class label"),
        )
    ),
    restrict(
        "DictVectorizer",
        lambda values: not {"int64_vocabulary", "string_vocabulary"} & values.keys(),
        "a vocabulary is required",
        "int64_vocabulary",
    ),
    restrict(
        "SVMClassifier",
        lambda values: len({count_elements(values, "prob_a"), count_elements(values, "prob_b")} - {UNKNOWN}) > 1,
        "`prob_a` and `prob_b` must have the same length",
        "prob_a",
    ),
    restrict(
        "SVMClassifier",
        lambda values: values.get("classlabels_strings") == (),
        "`classlabels_strings` must have values",
        "classlabels_strings",
    ),
    restrict(
        "SVMClassifier",
        _separates_other_classes,
        "`vectors_per_class` must have a value for each class label",
        "vectors_per_class",
        "1.26.0",
    ),
    restrict(
        "SVMClassifier",
        _lacks_vectors,
        "`coefficients` and `support_vectors` must have values for each vector of `vectors_per_class`",
        "support_vectors",
        "1.26.0",
    ),
    restrict(
        "LinearClassifier",
        lambda values: count_elements(values, "coefficients") == 0,
        "`coefficients` is required",
        "coefficients",
        "1.26.0",
    ),
    restrict(
        "LinearClassifier",
        _multiplies_other_classes,
        "the number of `coefficients` must be a multiple of that of `intercepts`",
        "coefficients",
        "1.28.0",
    ),
    restrict(
        "SVMClassifier",
        _lacks_thresholds,
        "`rho` must have a value for each pair of classes",
        "rho",
        "1.25.0",
    ),
    restrict(
        "CastMap",
        lambda values: values.get("map_form") == "SPARSE" and number_of(values, "max_map", 1) <= 0,
        "`max_map` must be positive",
        "max_map",
    ),
    restrict(
        "Imputer",
        _imputes_other_types,
        "either `imputed_value_floats` or `imputed_value_int64s` is required",
        "imputed_value_floats",
    ),
    ReleaseRestriction(
        ("LabelEncoder",),
        partial(_lacks, name="classes_strings"),
        "`classes_strings` is required",
        attribute="classes_strings",
        until=1,
        domain=ML_DOMAIN,
    ),
    restrict(
        "ZipMap",
        lambda values: (
            (count_elements(values, "classlabels_int64s") != 0) == (count_elements(values, "classlabels_strings") != 0)
        ),
        "either `classlabels_int64s` or `classlabels_strings` is required",
        "classlabels_int64s",
    ),
    *(
        structs.replace(
            restrict(
                operator,
                lambda values: 0 < count_elements(values, "kernel_params") < max(_KERNEL_PARAMETERS),
                "`kernel_params` must have 3 values",
                "kernel_params",
                last="1.25.1",
            ),
            is_certain=False,
        )
        for operator in ("SVMClassifier", "SVMRegressor")
    ),
)
"""Attribute values that kernels of classical models reject.

Source: 158 models of these operators with lists that are too short, too long, absent or wrong, loaded on 31 releases
from 1.16.0 to 1.32.0; 60 of Scaler, LinearClassifier and SVMRegressor, loaded on 9 to 13 releases; models with 5 to 8
values of each attribute of these operators, loaded on 13 releases from 1.16.3 to 1.32.0; 3,000 models of 30 such
operators with one or two attributes changed, loaded on 8 of them, and the 85 refused ones among those with one
attribute changed on 23. Releases that crash on some of the models that a restriction concerns may load others.
"""
