"""`onnxgate init`: the survey of a repository, the resulting targets, and the files to write."""
