"""Options, output, errors and the worker pool, shared by all commands."""
