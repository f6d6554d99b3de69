"""After any change to a repository, checks with a warm cache and with an empty cache must report the same."""
