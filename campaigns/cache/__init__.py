"""A check with a warm cache must report the same as one with an empty cache, after any change of a repository."""
