"""The engines: which figures each has in Prometheus, and how many servers are asked about."""
