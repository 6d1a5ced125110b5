"""The optimization controller: an Optimizer asks, every Server gets a decision."""
