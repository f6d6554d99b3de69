"""
Networks of the Transformers library, with random weights, exported by PyTorch: `python -m bench.corpora.architectures`.

The graphs are like those that users export, but with reduced sizes, and no weights are downloaded. This requires
transformers 5.23, torch 2.13 and onnxscript, and takes 6 minutes.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path

# fmt: off
ARCHITECTURES = (
    "albert", "beit", "bert", "big_bird", "biogpt", "bloom", "camembert", "cohere", "convbert", "ctrl",
    "data2vec-audio", "data2vec-text", "deberta", "deberta-v2", "deit", "dinov2", "distilbert", "electra", "ernie",
    "esm", "falcon", "fnet", "gpt2", "gpt_neox", "granite", "hubert", "ibert", "layoutlm", "llama", "megatron-bert",
    "mobilebert", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "mpnet", "mpt", "mra",
    "nystromformer", "olmo", "openai-gpt", "opt", "persimmon", "phi", "poolformer", "rembert", "resnet", "roberta",
    "roformer", "sew", "splinter", "starcoder2", "unispeech", "vit", "vit_msn", "wav2vec2", "wavlm", "xglm",
    "xlm-roberta", "yoso",
)
# fmt: on
_LIBRARIES = ("torch", "onnxscript", "transformers")
_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "image_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
"""Configuration settings of all architectures; an architecture ignores unknown settings."""
_TOKENS, _PIXELS, _SAMPLES = 8, 64, 16_000


def missing_libraries() -> list[str]:
    """Return the libraries that the export requires but that are not installed."""
    return [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]


def write_architectures(folder: Path, names: tuple[str, ...] = ARCHITECTURES) -> None:
    """Export each architecture to `NAME.onnx` in `folder`, unless the file exists."""
    for name in names:
        path = folder / f"{name}.onnx"
        if not path.exists():
            partial = path.with_suffix(".partial")
            _export(name, partial)
            partial.rename(path)


def _export(name: str, path: Path) -> None:
    """Export the model without a head. Tokens are (1, 8), images (1, 3, 64, 64), sound (1, 16000)."""
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(name, **_SIZES)).eval()
    main_input = model.main_input_name
    if main_input == "input_ids":
        example = torch.randint(0, 100, (1, _TOKENS))
    elif main_input == "pixel_values":
        example = torch.randn(1, 3, _PIXELS, _PIXELS)
    else:
        example = torch.randn(1, _SAMPLES)

    class FirstOutput(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        """A wrapper that calls the model with a single tensor."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.model(**{main_input: value}, return_dict=True)[0]

    torch.onnx.export(FirstOutput(), (example,), str(path), dynamo=True, external_data=False, verbose=False)


def main() -> None:
    """Export all architectures to the folder named on the command line."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m bench.corpora.architectures FOLDER")
    missing = missing_libraries()
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    logging.disable(logging.WARNING)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_architectures(folder)


if __name__ == "__main__":
    main()
