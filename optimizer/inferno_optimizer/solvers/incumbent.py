"""What a search tells of its incumbent, the best plan so far, and of a proven bound."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray

UNKNOWN = -np.inf
"""The bound of an objective of which nothing is proven."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The state of a search.

    Attributes
    ----------
    level
        The level whose load is maximized; None while the value is minimized.
    served
        Load that the incumbent serves of each level; shape (levels,).
    value
        Value of the incumbent.
    bound
        No plan has a lower objective: the load of the level with its sign changed, or the value.
    """

    level: int | None
    served: FloatArray
    value: float
    bound: float

    @property
    def objective(self) -> float:
        """What the incumbent has of what is minimized."""
        return self.value if self.level is None else -float(self.served[self.level])


ProgressObserver = Callable[[SearchProgress], None]
"""Is told of every improvement of the incumbent or of the bound."""
