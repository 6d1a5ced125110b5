"""Calibration: performance parameters from measurements of running replicas."""
