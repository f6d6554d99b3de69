"""Types of evidence that stages collect and rules check."""
