"""Conditions on the attribute values of nodes, which are met if kernels of ONNX Runtime reject the node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from onnxgate.core.text import truncate
from onnxgate.model.reading.omitted_data import find_omitted_list
from onnxgate.support.matching.attribute_values import AttributeValues, LongList, integers_of, number_of

if TYPE_CHECKING:
    from onnx import AttributeProto


def is_not_permutation(values: AttributeValues) -> bool:
    """Return whether `perm` does not name each axis once."""
    axes = values.get("perm")
    return isinstance(axes, tuple) and sorted(map(int, axes)) != list(range(len(axes)))


def has_other_directions(values: AttributeValues) -> bool:
    """Return whether a direction of a Scan is neither 0 nor 1."""
    names = ("directions", "scan_input_directions", "scan_output_directions")
    return any(direction % 2**32 not in (0, 1) for name in names for direction in integers_of(values, name))


def directs_other_inputs(values: AttributeValues) -> bool:
    """Return whether a Scan has not a direction for each input that it scans."""
    counts = count_elements(values, "scan_input_directions")
    return bool(counts) and counts != [number_of(values, "num_scan_inputs", counts[0])]


def has_wrong_ngram_indexes(values: AttributeValues) -> bool:
    """Return whether there are no indexes of n-grams, or negative ones."""
    return values.get("ngram_indexes") == () or has_negative(values, "ngram_indexes")


def excludes_outside_wrongly(values: AttributeValues) -> bool:
    """Return whether a Resize excludes outside values in a mode without weights."""
    mode = values.get("mode", "nearest")
    is_smooth = mode == "cubic" or (mode == "linear" and bool(values.get("antialias")))
    return bool(values.get("exclude_outside")) and mode is not None and not is_smooth


def count_elements(values: AttributeValues, *names: str) -> list[int]:
    """Return the numbers of elements of the lists with these names that exist."""
    lists = (values.get(name) for name in names)
    return [it.count if isinstance(it, LongList) else len(it) for it in lists if isinstance(it, LongList | tuple)]


def pads_too_much(values: AttributeValues) -> bool:
    """Return whether a padding is as large as the window."""
    kernel, pads = integers_of(values, "kernel_shape"), integers_of(values, "pads")
    return any(pad >= size for pad, size in zip(pads, kernel + kernel, strict=False))


def has_nonpositive(values: AttributeValues, name: str) -> bool:
    """Return whether a list of integers has an element below 1."""
    return min(integers_of(values, name), default=1) <= 0


def has_negative(values: AttributeValues, name: str) -> bool:
    """Return whether a list of integers has a negative element."""
    return min(integers_of(values, name), default=0) < 0


def lacks(values: AttributeValues, name: str) -> bool:
    """Return whether an attribute is absent."""
    return name not in values


def has_other_axes(values: AttributeValues) -> bool:
    """Return whether a ReverseSequence has other axes than 0 and 1, or the same axis twice."""
    time, batch = number_of(values, "time_axis", 0), number_of(values, "batch_axis", 1)
    return max(time, batch) > 1 or time == batch


def slices_other_axes(values: AttributeValues) -> bool:
    """Return whether the lists of a Slice have different lengths."""
    starts, ends, axes = (count_elements(values, name) for name in ("starts", "ends", "axes"))
    return bool(starts and ends) and (starts != ends or (axes not in ([], starts)))


def differs_in_length(name: str) -> Callable[[AttributeValues], bool]:
    """Return a condition that is met if a list is not as long as `kernel_shape`."""

    def is_met(values: AttributeValues) -> bool:
        kernel, listed = integers_of(values, "kernel_shape"), integers_of(values, name)
        return bool(kernel and listed) and len(listed) != len(kernel)

    return is_met


def pads_other_axes(values: AttributeValues) -> bool:
    """Return whether `pads` has not two elements for each axis of the window."""
    kernel, pads = integers_of(values, "kernel_shape"), integers_of(values, "pads")
    return bool(kernel and pads) and len(pads) != 2 * len(kernel)


def pads_too_few(values: AttributeValues) -> bool:
    """Return whether `pads` has less than two elements for each axis of the window."""
    return pads_other_axes(values) and len(integers_of(values, "pads")) < 2 * len(integers_of(values, "kernel_shape"))


def lacks_pool(values: AttributeValues) -> bool:
    """Return whether there are no n-grams, or an empty list of texts next to one of numbers."""
    names = ("pool_strings", "pool_int64s")
    return values.get("pool_strings") == () or all(values.get(name, ()) == () for name in names)


def divides_ngrams_wrongly(values: AttributeValues) -> bool:
    """Return whether `ngram_counts` does not divide the pool into lists of 1-grams, 2-grams and so on."""
    pools = count_elements(values, "pool_strings", "pool_int64s")  # the first one counts
    starts = integers_of(values, "ngram_counts")
    if not pools or not pools[0] or not starts:
        return False
    ends = (*starts[1:], pools[0])
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    return min(starts) < 0 or min(sizes) < 0 or any(size % length for length, size in enumerate(sizes, 1))


def find_repeated_ngram(attributes: Iterable[AttributeProto]) -> str:
    """Return an n-gram that the pool of a TfIdfVectorizer contains twice; "" if there is none or the pool is omitted.

    N-grams of other lengths than the node looks for may repeat, and so may an n-gram in a longer one.
    Source: 50 pools of strings and numbers, loaded on ONNX Runtime 1.16.3, 1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0.
    """
    known = {attribute.name: attribute for attribute in attributes}
    counts, shortest, longest = (known.get(name) for name in ("ngram_counts", "min_gram_length", "max_gram_length"))
    attribute = known.get("pool_strings") or known.get("pool_int64s")
    if attribute is None or counts is None or shortest is None or longest is None or find_omitted_list(attribute):
        return ""
    pool: Sequence[bytes] | Sequence[int] = attribute.strings or attribute.ints
    for length, (start, end) in enumerate(itertools.pairwise((*counts.ints, len(pool))), 1):
        if not 0 <= start <= end:
            return ""  # not a valid division, in which parts would also overlap
        if not shortest.i <= length <= longest.i:
            continue
        found: set[tuple[object, ...]] = set()
        for place in range(start, end - length + 1, length):
            ngram = tuple(pool[place : place + length])
            if ngram in found:
                words = (f'"{it.decode(errors="replace")}"' if isinstance(it, bytes) else str(it) for it in ngram)
                return truncate(" ".join(words))
            found.add(ngram)
    return ""


def weighs_other_ngrams(values: AttributeValues) -> bool:
    """Return whether there are weights, but not one for each n-gram."""
    weights, indexes = count_elements(values, "weights"), count_elements(values, "ngram_indexes")
    return bool(weights and indexes) and weights != indexes


def maps_other_keys(values: AttributeValues) -> bool:
    """Return whether a LabelEncoder has more keys than values, or fewer."""
    kinds = ("strings", "int64s", "floats")
    keys, targets = (count_elements(values, *(f"{role}_{kind}" for kind in kinds)) for role in ("keys", "values"))
    return len(keys) == len(targets) == 1 and keys != targets


def has_single_text(values: AttributeValues) -> bool:
    """Return whether a tensor among the attributes of a LabelEncoder contains exactly one string."""
    tensors = (values.get(f"{role}_tensor") for role in ("keys", "values", "default"))
    return any(isinstance(texts, tuple) and len(texts) == 1 for texts in tensors)


def count_ngrams_wrongly(values: AttributeValues) -> bool:
    """Return whether the lengths of n-grams are not positive, not ascending or not counted."""
    shortest, longest = number_of(values, "min_gram_length", 1), number_of(values, "max_gram_length", 1)
    counts = values.get("ngram_counts")
    too_few = isinstance(counts, tuple) and longest > len(counts)
    return too_few or shortest < 1 or longest < shortest


def has_other_activations(values: AttributeValues, per_direction: int = 0) -> bool:
    """Return whether the activations are unknown, too many or too few.

    An RNN, for which `per_direction` is 0, ignores the second activation if it has one direction.
    """
    names = values.get("activations")
    if not isinstance(names, tuple):
        return False
    if not per_direction and len(names) not in ((2,) if values.get("direction") == "bidirectional" else (1, 2)):
        return True
    if not names:
        return False
    expected = per_direction * (2 if values.get("direction") == "bidirectional" else 1)
    if expected:
        known = [str(name).lower() in _LOWER_ACTIVATIONS for name in names]
        return len(names) != expected or not all(known)
    return not _ACTIVATIONS.issuperset(names[: 2 if values.get("direction") == "bidirectional" else 1])


_ACTIVATIONS = frozenset(
    (
        *("Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign"),
        *("Tanh", "ThresholdedRelu"),
    )
)
_LOWER_ACTIVATIONS = frozenset(name.lower() for name in _ACTIVATIONS)
