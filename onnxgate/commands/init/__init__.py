"""`onnxgate init`: the survey of a repository, and the files that are generated."""
