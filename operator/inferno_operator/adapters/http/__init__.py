"""The operator's HTTP endpoints: health probes, metrics and decisions."""
