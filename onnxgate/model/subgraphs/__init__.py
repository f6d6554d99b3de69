"""Parts of models: reduced copies, isolated nodes and neighborhoods of nodes."""
