"""Measures the project against what it must reach: `python -m tests.bench`, or `make bench`."""
