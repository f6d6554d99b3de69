"""What a model's file holds: facts, structure without weights, external data, normal form."""
