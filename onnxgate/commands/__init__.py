"""The commands without their command line: values in, values out."""
