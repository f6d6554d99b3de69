"""Scripts that run a tool on one model after another and print a line per model. They are run by path."""
