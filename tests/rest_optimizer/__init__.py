"""A small REST optimizer to test clients with: it behaves, or misbehaves, as a test wants."""

from tests.rest_optimizer.optimizer import Failure, RestOptimizer

__all__ = ["Failure", "RestOptimizer"]
