"""Load each model of a corpus on one release, in child processes: a crash affects one model."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import msgspec

from campaigns.conformance import corpora

CHILD = Path(__file__).with_name("child.py")
LEVELS = {"all": "ORT_ENABLE_ALL", "disabled": "ORT_DISABLE_ALL"}
CRASHED = "crashed: "
TIMED_OUT = "timed out after "
TIMEOUT_S = 60
POLL_S = 0.1


class Observed(msgspec.Struct):
    """Results of loading models, by model name: "" if the model loads, else the error text, a crash or a timeout."""

    corpus: str
    texts: dict[str, str]


def observed(python: Path, corpus: Path, stored: Path, optimization: str = "all") -> dict[str, str]:
    """Return the result for each model; results for the same corpus are read from `stored`."""
    digest = f"{corpora.digest(CHILD)}-{corpora.digest(corpus)}"
    if stored.exists():
        kept = msgspec.json.decode(stored.read_bytes(), type=Observed)
        if kept.corpus == digest:
            return kept.texts
    stored.parent.mkdir(parents=True, exist_ok=True)
    texts = load_all(python, corpus, stored.with_suffix(f".{os.getpid()}.lines"), LEVELS[optimization])
    stored.write_bytes(msgspec.json.format(msgspec.json.encode(Observed(digest, texts))))
    return texts


def listed(python: Path, path: Path) -> Path:
    """Write the schemas of a release to a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([str(python), "-I", str(CHILD), "schemas", str(path)], check=True, stdin=subprocess.DEVNULL)
    return path


def load_all(python: Path, corpus: Path, record: Path, level: str, child: Path | None = None) -> dict[str, str]:
    """Load every model, with a new child process after each crash. `child` replaces the script `CHILD`."""
    names = corpora.names(corpus)
    texts: dict[str, str] = {}
    record.parent.mkdir(parents=True, exist_ok=True)
    while len(texts) < len(names):
        record.unlink(missing_ok=True)
        command = [str(python), "-I", str(child or CHILD), "load", str(corpus), level, str(len(texts)), str(record)]
        end = _run_child(command, record)
        for index, text in _records(record).items():
            texts[names[index]] = end if text is None else text
        if not record.exists() or not record.stat().st_size:
            raise RuntimeError(f"{python} loads no model: {end}")
    record.unlink()
    return texts


def _run_child(command: list[str], record: Path) -> str:
    """Run a child process until it ends or stops making progress; return how it ended."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    said, since = 0, time.monotonic()
    while child.poll() is None:
        time.sleep(POLL_S)
        now = record.stat().st_size if record.exists() else 0
        if now != said:
            said, since = now, time.monotonic()
        elif time.monotonic() - since > TIMEOUT_S:
            child.kill()
            child.wait()
            return f"{TIMED_OUT}{TIMEOUT_S} s"
    return f"{CRASHED}exit status {child.returncode}"


def _records(record: Path) -> dict[int, str | None]:
    """Return the error text of each model that a child process started to load; None if it did not finish."""
    outcomes: dict[int, str | None] = {}
    lines = record.read_bytes().splitlines() if record.exists() else []
    for line in lines:
        index, *text = msgspec.json.decode(line)
        outcomes[index] = text[0] if text else None
    return outcomes
