"""The optimization controller: an Optimizer requests, and every Server gets a decision."""
