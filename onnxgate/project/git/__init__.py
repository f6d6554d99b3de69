"""Git: its commands, the models at another revision, and the choice of that revision."""
