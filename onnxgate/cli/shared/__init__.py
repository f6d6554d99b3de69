"""Command-line options, output, error handling and the worker pool that all commands share."""
