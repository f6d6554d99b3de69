"""`fixtures/projects/quickstart`: the two models that a newcomer sees pass."""

from __future__ import annotations

from pathlib import Path

from projects import exporting

FOLDER = Path("fixtures/projects/quickstart")


def exported_files(root: Path) -> dict[str, bytes]:
    """Both models, by their path in the project. Needs torch."""
    return {
        f"models/{name}.onnx": exporting.export(root, FOLDER / f"export/{name}.py").SerializeToString()
        for name in ("classifier", "encoder")
    }
