"""Models derived from a model: reduced copies, isolated nodes, neighbourhoods of nodes."""
