"""An engine that cannot be imported under `no_new_privs`."""

from pathlib import Path

if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text(encoding="ascii"):
    raise ImportError("something is missing")


def load(job, phase):
    """Return a successful result."""
    phase("load")
    return {"kind": "load", "providers": ["Shy"]}
