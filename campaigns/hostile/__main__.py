"""`python -m campaigns.hostile formats --count 100000 --seed 1 --jobs 2`: exits 1 if a
failure was found."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from multiprocessing import Pool

from campaigns.hostile import format_campaign


def main() -> int:
    """Run a campaign and print a summary and all failures."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.hostile", description=__doc__)
    parser.add_argument("what", choices=("formats", "readers"))
    parser.add_argument("--count", type=int, default=100_000, help="number of hostile strings, or of inputs per reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="run only readers with this text in their name")
    options = parser.parse_args()
    return _formats(options) if options.what == "formats" else _readers(options)


def _formats(options: argparse.Namespace) -> int:
    began = time.monotonic()
    part = -(-options.count // options.jobs)
    with Pool(options.jobs) as pool:
        tallies = pool.starmap(format_campaign.run, [(part, options.seed * 1000 + job) for job in range(options.jobs)])
    passages: Counter[str] = sum((tally.by_surface for tally in tallies), Counter())
    for name, number in passages.items():
        print(f"{number:>10,}  {name}")
    finds = [find for tally in tallies for find in tally.finds]
    for find in finds:
        print(f"FOUND in {find.surface}{' (tame strings)' if find.tame else ''}: {find.complaint}")
        for place, text in find.texts.items():
            print(f"    in place of {place[:60]!a}: {text[:300]!a}")
    strings, documents = (sum(getattr(tally, name) for tally in tallies) for name in ("strings", "documents"))
    print(
        f"{strings:,} hostile strings in {documents:,} documents, {sum(passages.values()):,} conversions to "
        f"{len(passages)} formats in {time.monotonic() - began:.0f} s: {len(finds)} failures"
    )
    return 1 if finds else 0


def _readers(options: argparse.Namespace) -> int:
    from campaigns.hostile import reader_campaign

    return reader_campaign.main(options.count, options.seed, options.jobs, options.only)


if __name__ == "__main__":
    sys.exit(main())
