"""Dynamic stages: jobs in runtimes and in the toolchain, and the evidence from them."""
