"""The Kubernetes operator that asks the optimizer and carries out its answer."""
