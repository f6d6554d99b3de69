"""The gate: stages in their order, their results, and the report of them."""
