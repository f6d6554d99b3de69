"""What the stages gathered, as the typed subjects that rules judge. Values only."""
