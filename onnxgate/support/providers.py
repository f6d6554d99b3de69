"""A release's kernels by execution provider."""

from __future__ import annotations

import functools
from dataclasses import replace

from onnxgate.support.match import match
from onnxgate.support.operations import Miss, Operation
from onnxgate.support.table import Implementation, Kernel, Operator


@functools.lru_cache(maxsize=256)
def providers_of(implementation: Implementation) -> frozenset[str]:
    """The providers that have a kernel at all; asked where a target names others than the processor."""
    return frozenset(
        kernel.provider
        for domain in implementation.domains()
        for name in implementation.operators(domain)
        if (operator := implementation.operator(domain, name)) is not None
        for kernel in operator.kernels
    )


class OneProvider(Implementation):
    """A release as if it had the kernels of one provider alone; answers are remembered here, not with the release."""

    def __init__(self, whole: Implementation, provider: str) -> None:
        super().__init__(whole.release, whole.newest_opsets, whole._source, whole._bit)
        self._whole = whole
        self._provider = provider

    def operator(self, domain: str, name: str) -> Operator | None:
        """The operator with the provider's kernels."""
        key = (domain, name)
        if key not in self._known:
            found = self._whole.operator(domain, name)
            self._known[key] = found and replace(found, kernels=self._own(found))
        return self._known[key]

    def _own(self, operator: Operator) -> tuple[Kernel, ...]:
        return tuple(kernel for kernel in operator.kernels if kernel.provider == self._provider)

    def leaves(self, operation: Operation) -> bool:
        """Whether the provider has no kernel for an operation that the release runs on the processor."""
        alone = match(operation, self, (self._provider,))
        return isinstance(alone, Miss) and alone.rule == "missing-kernel" and match(operation, self._whole) is None
