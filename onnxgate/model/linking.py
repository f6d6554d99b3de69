"""Files that stand in a second place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def link(file: Path, to: Path) -> None:
    """Have a file at a second place, by a hard link where there can be one.

    No symbolic link: runtimes refuse external data that are one. Source: onnxruntime 1.24 to 1.31.
    """
    try:
        os.link(os.path.realpath(file), to)
    except OSError:  # another device, or a system without links
        shutil.copyfile(file, to)
