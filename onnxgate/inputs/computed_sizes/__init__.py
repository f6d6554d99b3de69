"""Sizes that a graph computes from the values of its inputs."""
