"""
What the static stages cost, beside their peers and bare lower bounds, in one run.

    python -m bench.static [--corpus NAME]... [--repeat 3] [--folder FOLDER] [--also NAME=CHECKOUT]... [--quick]
                           [--json FILE] [--markdown FILE] [--keep] [--limit 60] [--no-peers]
    python -m bench.static --from FILE        # the tables of an earlier `--json`, measuring nothing

Every contestant is a process of its own over all models of a corpus, repetition by repetition in turn; files were read
once before, so that all find them in the page cache. The first run of onnxgate in each repetition begins with an empty
cache folder; `again` is the next one. Whoever fails, or is ended at the limit, is shown so and not tried again.

The corpora take 7.2 GB below `--folder` (default: a temporary one) and go away afterwards unless `--keep` is given, or
unless they were there. Memory: peers take up to 8 GB for the file of 1.9 GB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from bench import contests, corpora, peers, tables
from bench.contestants import HERE, ROOT, bounds, contenders, gates
from bench.figures import Result

_QUICK = ("small-100", "nodes-2000", "large-10")
_FULL = ("small-100", "small-1000", "nodes-2000", "nodes-20000", "large-100", "huge")
_PAIRS, _QUICK_PAIRS = 11, 3


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and write what was asked for; 1 where onnxgate itself failed."""
    asked = _arguments(words)
    if asked.source is not None:
        print(tables.markdown(msgspec.json.decode(asked.source.read_bytes(), type=Result)))
        return 0
    with tempfile.TemporaryDirectory(prefix="onnxgate-bench-") as scratch:
        result = _measured(asked, asked.folder or Path(scratch), Path(scratch))
    text = tables.markdown(result)
    print(text)
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    if asked.markdown is not None:
        asked.markdown.write_text(text, encoding="utf-8")
    return 1 if _own_failure(result) else 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the static stages cost.")
    known = [each.name for each in corpora.ALL]
    parser.add_argument("--corpus", action="append", choices=known, help="only this one; repeatable")
    parser.add_argument("--repeat", type=int, help="repetitions (3; with --quick 1)")
    parser.add_argument("--folder", type=Path, help="where corpora and the peers' environment lie, or are made")
    parser.add_argument("--also", action="append", type=_checkout, default=[], metavar="NAME=CHECKOUT")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one contestant may take")
    parser.add_argument("--quick", action="store_true", help="three small corpora once, in about a minute")
    parser.add_argument("--no-peers", action="store_true", help="without onnx-doctor and Polygraphy: asks no index")
    parser.add_argument("--no-pairs", action="store_true", help="without start-up and predictions")
    parser.add_argument("--keep", action="store_true", help="leave the corpora in --folder")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--from", dest="source", type=Path, help="print the tables of this JSON file")
    asked = parser.parse_args(words)
    if asked.keep and asked.folder is None:
        parser.error("--keep means nothing without --folder")
    return asked


def _checkout(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    folder = Path(path).resolve()
    if not name or not (folder / "onnxgate" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: no checkout of onnxgate there")
    return name, folder


def _measured(asked: argparse.Namespace, folder: Path, scratch: Path) -> Result:
    checkouts = {HERE: ROOT, **dict(asked.also)}
    programs = None if asked.no_peers else peers.environment(folder)
    every = (*gates(checkouts, scratch / "caches"), *contenders(programs), *bounds())
    repeat = asked.repeat or (1 if asked.quick else 3)
    results = []
    for name in asked.corpus or (_QUICK if asked.quick else _FULL):
        corpus = corpora.by_name(name)
        with contests.written(corpus, folder, keep=asked.keep) as project:
            results.append(contests.contest(corpus, project, every, repeat, asked.limit))
    result = Result(contests.machine(), tuple(results))
    if asked.no_pairs:
        return result
    with contests.written(corpora.by_name("one"), folder, keep=asked.keep) as project:
        count = _QUICK_PAIRS if asked.quick else _PAIRS
        pairs = contests.pairs(project, checkouts, scratch / "caches", count, asked.limit)
    commands = () if asked.quick else (contests.predictions(scratch),)
    return replace(result, pairs=pairs, commands=commands)


def _own_failure(result: Result) -> bool:
    rows = [row for corpus in result.corpora for row in corpus.rows] + [pair.subject for pair in result.pairs]
    return any(row.failure and row.name.startswith(HERE) for row in (*rows, *result.commands))


if __name__ == "__main__":
    sys.exit(main())
