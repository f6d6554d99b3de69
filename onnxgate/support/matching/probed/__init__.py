"""Match the nodes of a model with engines whose support was probed, by loading models with one node of each kind."""
