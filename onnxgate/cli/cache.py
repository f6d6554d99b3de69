"""Where onnxgate keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`ONNXGATE_CACHE_DIR`, else the user's cache folder; it need not exist yet."""
    if chosen := os.environ.get("ONNXGATE_CACHE_DIR"):
        return Path(chosen).absolute()
    import platformdirs

    return platformdirs.user_cache_path("onnxgate", appauthor=False)
