"""Optimizers: the embedded one in a worker process, and remote ones behind REST."""
