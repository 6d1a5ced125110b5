"""Predictions of generation 4 beside what was measured on a real GPU."""
