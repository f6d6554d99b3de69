"""From hits to the report: rules, ignores, verdict, reproduction commands."""
