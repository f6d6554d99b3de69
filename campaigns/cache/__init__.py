"""A warm cache beside a cold one: whatever happened to a repository, both say the same."""
