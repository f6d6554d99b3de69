"""Dynamic stages: run jobs on runtimes and in the toolchain, and collect evidence from their results."""
