"""
Write corpora as projects: `python -m bench.corpora FOLDER [NAME ...]`. By default, all are written (8 GB).

With the same release of onnx, every machine writes the same bytes. Models of any size need at most 300 MB of memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench import corpora
from bench.contestants import ROOT, at, gate
from bench.corpora.projects import make


def main() -> None:
    """Write each corpus that is not in the folder yet."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(f"{(__doc__ or '').strip()}\n\n{', '.join(each.name for each in corpora.ALL)}")
    for corpus in map(corpora.by_name, sys.argv[2:]) if sys.argv[2:] else corpora.ALL:
        make(corpus, Path(sys.argv[1]).resolve() / corpus.name, gate(), at(ROOT))


if __name__ == "__main__":
    main()
