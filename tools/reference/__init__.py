"""Generated parts of `docs/`: JSON Schemas, pages of rules, tables of keys."""
