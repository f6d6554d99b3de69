"""Each stage gathers the evidence that its rules judge."""
