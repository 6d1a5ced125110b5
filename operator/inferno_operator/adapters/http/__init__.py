"""The operator's HTTP endpoints: health probes and metrics."""
