"""The worker process, which runs in the environments of runtimes and toolchains (Python 3.8 and later).

It imports only the standard library, numpy and its engine, since onnxgate is not installed in these environments.
"""
