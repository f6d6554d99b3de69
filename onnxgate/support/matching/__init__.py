"""Type inference for models, and matching of their operations against the kernels of a release."""
