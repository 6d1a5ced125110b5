"""Explains decisions: the options of a server, what-if changes, comparisons and remedies."""
