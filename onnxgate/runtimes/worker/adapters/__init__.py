"""One module per engine, each with the same three functions: `probe`, `load` and `run`."""
