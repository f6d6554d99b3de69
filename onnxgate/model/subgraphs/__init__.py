"""Models derived from a model: only the nodes that an output needs, or a single node; also the neighbors of a node."""
