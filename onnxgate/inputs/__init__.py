"""What models are fed: cases made from facts, or read from the user's files."""
