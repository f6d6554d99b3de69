"""`onnxgate init`: examines a repository, selects targets, and generates the files to write."""
