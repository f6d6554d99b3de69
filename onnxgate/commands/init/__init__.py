"""`onnxgate init`: the survey of a repository, the targets that follow from it, and the files that are written."""
