"""What each release implements: measured limits, and their match with a model's facts."""
