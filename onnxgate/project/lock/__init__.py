"""Types of `onnxgate.lock`; load, resolve and write the lock."""
