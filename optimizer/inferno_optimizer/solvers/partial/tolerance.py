"""How near to its bound a goal has to be, and what later goals may take of it."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.solvers.levels import GIVEN_UP
from inferno_optimizer.solvers.partial.goals import SLACK, Goal, GoalKind

NEAR = 0.25
"""Share of the tolerance within which whole replicas are near enough to what is proven."""

NEAR_VALUE = 1e-4
"""The same of the value."""


@dataclass(frozen=True, slots=True)
class GoalTolerance:
    """Share of the load of a level that later goals may take; nothing where all is `exact`.

    With `keeps_whole` nobody is left out of a level that is served entirely: only who asks for a
    tolerance wants that.
    """

    share: float
    exact: bool
    keeps_whole: bool

    @classmethod
    def of(cls, wanted: float | None, *, exact: bool) -> "GoalTolerance":
        """What a person wants, or `GIVEN_UP`; never less than rounding."""
        by_default = SLACK if exact else GIVEN_UP
        return cls(by_default if wanted is None else max(wanted, SLACK), exact, not wanted)

    def near(self, goal: Goal, bound: float) -> float:
        """Distance from a bound that is near enough."""
        if self.exact or not np.isfinite(bound):
            return 0.0
        if goal.kind is GoalKind.VALUE:
            return NEAR_VALUE * max(abs(bound), 1.0)
        return NEAR * self.share * bound

    def kept(self, goal: Goal, load: float, bound: float) -> float:
        """What later goals keep of a load: all but the tolerance, a share of the bound.

        Later goals get the whole of it also where an earlier one is not at its bound: a floor close
        to what was reached leaves their plans hardly any room. What runs is no matter of tolerance.
        """
        return load if goal.kind is GoalKind.HELD else load - self.share * bound
