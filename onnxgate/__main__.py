"""`python -m onnxgate` is the same as the command `onnxgate`."""

from onnxgate.cli import main

main()
