"""The worker: plain Python that runs under the interpreters of runtimes and toolchains (3.8 and later).

It imports the standard library, numpy and its runtime only: onnxgate need not be installed there.
"""
