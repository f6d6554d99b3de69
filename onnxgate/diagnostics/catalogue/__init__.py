"""Known error texts by their producer. A new one is one entry in a tuple here; docs follow by command."""
