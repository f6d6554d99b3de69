"""Search for changes to a model after which all required releases support an unsupported operation."""
