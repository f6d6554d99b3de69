"""Faults of the machine, the network, the user and the runtimes: each is really caused, and the command checked."""
