"""Optimizers: in a process of this machine, or behind REST."""
