"""Input cases of a model, generated from its facts and graph or read from the user's files."""
