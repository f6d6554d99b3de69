"""Sources of `fixtures/projects/quickstart`: two models that pass."""

from __future__ import annotations

from pathlib import Path

from projects import exporting

FOLDER = Path("fixtures/projects/quickstart")


def exported_files(root: Path) -> dict[str, bytes]:
    """Return both models by path. Needs torch."""
    return {
        f"models/{name}.onnx": exporting.export(root, FOLDER / f"export/{name}.py").SerializeToString()
        for name in ("classifier", "encoder")
    }
