"""Types of the evidence that stages collect and rules read."""
