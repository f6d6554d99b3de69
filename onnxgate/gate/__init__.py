"""Gate: run the stages in order, apply the rules and build the report."""
