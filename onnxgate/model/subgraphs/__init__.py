"""Parts of models: models reduced to the needed nodes, models of isolated nodes, and neighborhoods of nodes."""
