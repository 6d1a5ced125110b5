"""Measures loads and latencies of Servers with Prometheus."""
