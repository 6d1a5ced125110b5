"""Reads and writes the documents of the REST API, and checks the answers of other optimizers."""
