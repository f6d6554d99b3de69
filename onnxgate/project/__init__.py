"""A project: its config, its lock, its git revisions, and the plan of which models run on which runtimes."""
