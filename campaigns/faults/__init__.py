"""Run onnxgate under real faults of the machine, the network, the user and the runtimes, and check its behavior."""
