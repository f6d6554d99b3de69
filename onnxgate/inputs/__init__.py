"""Input cases, generated from a model's facts and graph or read from the user's files."""
