"""Supervised TensorRT engine builds for agents, services, CI and people in a terminal."""

__version__ = "0.1.0"
