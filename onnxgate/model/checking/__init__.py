"""Static checks of models: validity and quantization parameters."""
