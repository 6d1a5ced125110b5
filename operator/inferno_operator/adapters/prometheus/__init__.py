"""Prometheus: queries over its HTTP API."""
