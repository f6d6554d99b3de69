"""Faults of the machine, the network, the user and the runtimes: each is really made, and the gate judged in it."""
