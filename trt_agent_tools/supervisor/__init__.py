"""Implements `BuildService`: queue, devices, launching workers, the cancel ladder, shutdown."""
