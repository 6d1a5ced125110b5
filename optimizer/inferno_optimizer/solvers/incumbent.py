"""The incumbent of a search: the best plan so far, with a proven bound of the objective."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray

Plan = TypeVar("Plan")
"""Rows that are chosen, or replicas of items."""

UNKNOWN = -np.inf
"""The bound of an objective of which nothing is proven."""


NO_FLOORS = np.zeros(0)
"""Nothing comes before the objective."""


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


def progress_of(
    observe: ProgressObserver | None,
    level: int | None,
    served: Callable[[Plan], FloatArray],
    value: Callable[[Plan], float],
) -> Callable[[Plan, float], None] | None:
    """What tells an observer of a plan and a bound, from the plan's loads and its value."""
    if observe is None:
        return None

    def tell(plan: Plan, bound: float) -> None:
        observe(SearchProgress(level, served(plan), value(plan), bound))

    return tell


class Incumbent(Generic[Plan]):
    """The best plan of one stage. Here, and nowhere else, is a plan accepted.

    Parameters
    ----------
    plan
        The plan to begin with; feasible, as all that are offered.
    objective
        What is minimized, of a plan.
    tell
        Is told the plan and the bound at the beginning and whenever one of them improves; None
        where nobody wants to know.
    floors
        Loads that every plan keeps, of the levels before; shape (levels,).
    near
        Plans that were the best before this one are kept if they are worse by at most this share.
    """

    def __init__(
        self,
        plan: Plan,
        objective: Callable[[Plan], float],
        tell: Callable[[Plan, float], None] | None = None,
        floors: FloatArray = NO_FLOORS,
        near: float = 0.0,
    ) -> None:
        self.plan, self.floors = plan, floors
        self.value = objective(plan)
        self.bound = UNKNOWN
        self._objective, self._tell = objective, tell
        self._near, self._before = near, list[tuple[float, Plan]]()
        self._report()

    @property
    def observed(self) -> bool:
        """Whether anybody wants to know of improvements."""
        return self._tell is not None

    @property
    def before(self) -> list[Plan]:
        """Plans close to this one that were the best before it."""
        return [plan for _, plan in self._before]

    def distance(self, gap: float) -> float:
        """How far from its bound a plan with this relative gap is."""
        return gap * max(1.0, abs(self.value))

    def is_within(self, gap: float) -> bool:
        """Whether the relative gap of the plan is no larger."""
        return self.value - self.bound <= self.distance(gap)

    def offer(self, plan: Plan) -> bool:
        """Accept a feasible plan if its objective is lower; return whether it is."""
        return self.offer_at(plan, self.floors, self.bound)

    def offer_at(self, plan: Plan, floors: FloatArray, bound: float) -> bool:
        """The same of a plan that keeps other floors, with the bound that holds for these."""
        value = self._objective(plan)
        if value >= self.value:
            return False
        known = [*self._before, (self.value, self.plan)]
        self._before = [each for each in known if each[0] - value <= self._near * abs(value)]
        self.plan, self.value = plan, value
        self.floors, self.bound = floors, min(bound, value)
        self._report()
        return True

    def prove(self, bound: float) -> None:
        """Raise the bound, if it is higher than what was proven before."""
        bound = min(bound, self.value)
        if bound > self.bound:
            self.bound = bound
            self._report()

    def _report(self) -> None:
        if self._tell is not None:
            self._tell(self.plan, self.bound)
