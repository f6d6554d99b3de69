"""Runtime stage: loads and runs of models, isolated nodes and shapes of outputs."""
