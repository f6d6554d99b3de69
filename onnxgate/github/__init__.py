"""The steps of the GitHub Action: inputs, cache, comments and the REST API."""
