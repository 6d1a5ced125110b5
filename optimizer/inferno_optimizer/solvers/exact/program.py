"""What the searches share until they are joined."""

from inferno_optimizer.sizing.queueing import BoolArray
from inferno_optimizer.solvers.loads import weight_of

__all__ = ["BoolArray", "weight_of"]
