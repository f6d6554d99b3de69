"""Implementation of the commands, without command-line parsing and output."""
