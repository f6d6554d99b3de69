"""When two outputs agree: comparison and tolerance, written once."""
