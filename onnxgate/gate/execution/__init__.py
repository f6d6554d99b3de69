"""The dynamic stages: jobs in runtimes and in the toolchain, and their evidence."""
