"""Environments of locked runtimes: built, checked, cached, and found on this machine."""
