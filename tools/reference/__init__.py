"""Generated parts of `docs/`: JSON Schemas, rule pages, tables of keys."""
