"""The REST optimizer: the only part of this package that knows HTTP."""
