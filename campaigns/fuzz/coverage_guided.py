"""Coverage-guided fuzzing of onnxgate's model readers with atheris: inputs that reach new lines are mutated again.

Atheris is not a dependency: run `pip install atheris` (Python 3.11 on Linux).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from campaigns.fuzz.seed_models import contents

LARGEST_BYTES = 4096


def guide(runs: int, time_s: int, seed: int, corpus: Path | None) -> None:
    """Fuzz for a number of inputs or seconds. A failure saves the input and ends the process."""
    import atheris

    with atheris.instrument_imports(include=["onnxgate"]):
        from campaigns.fuzz.reader_checks import Bench
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    bench = Bench(folder / "bench", costly_every=8)

    def look(data: bytes) -> None:
        for find in bench.look(data):
            raise AssertionError(f"{find.reader}: {find.what} {find.detail}")

    kept = corpus or folder / "corpus"
    kept.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(contents()):
        (kept / f"seed-{number}").write_bytes(data)
    limits = [f"-runs={runs}", f"-max_total_time={time_s}", f"-seed={seed}", f"-max_len={LARGEST_BYTES}", "-timeout=20"]
    atheris.Setup(
        [
            sys.argv[0],
            *limits,
            "-rss_limit_mb=4096",
            f"-artifact_prefix={kept.parent}/",
            "-print_final_stats=1",
            str(kept),
        ],
        look,
    )
    atheris.Fuzz()
