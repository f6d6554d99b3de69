"""An engine that cannot be imported where programs get no privileges."""

from pathlib import Path

if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text(encoding="ascii"):
    raise ImportError("something is missing")


def load(job, phase):
    """Say who runs it."""
    phase("load")
    return {"kind": "load", "providers": ["Shy"]}
