"""What `docs/` holds that is made from the code: JSON Schemas, a page per rule, tables of keys."""
