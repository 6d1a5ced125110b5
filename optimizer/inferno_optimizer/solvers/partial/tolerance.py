"""How near to its bound a goal has to be, and what later goals may take of it."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.solvers.levels import GIVEN_UP
from inferno_optimizer.solvers.partial.goals import SLACK, Goal, GoalKind

NEAR = 0.25
"""Share of the tolerance within which whole replicas are near enough to what is proven."""

NEAR_VALUE = 1e-4
"""The same of the value."""

LEAST_SLACK = 0.2
"""Part of the tolerance that later goals have where more than all of it is missing."""

LEAST_SLACK_NEAR = 0.1
"""The same where less is missing: a floor at what was reached leaves later plans hardly any room.
With so little a level is within a thousandth of its bound."""


@dataclass(frozen=True, slots=True)
class GoalTolerance:
    """Share of the load of a level that later goals may take; nothing where all is `exact`."""

    share: float
    exact: bool

    @classmethod
    def of(cls, wanted: float | None, *, exact: bool) -> "GoalTolerance":
        """What a person wants, or `GIVEN_UP`; never less than rounding."""
        by_default = SLACK if exact else GIVEN_UP
        return cls(by_default if wanted is None else max(wanted, SLACK), exact)

    def near(self, goal: Goal, bound: float) -> float:
        """Distance from a bound that is near enough."""
        if self.exact or not np.isfinite(bound):
            return 0.0
        if goal.kind is GoalKind.VALUE:
            return NEAR_VALUE * max(abs(bound), 1.0)
        return NEAR * self.share * bound

    def kept(self, goal: Goal, load: float, bound: float) -> float:
        """What later goals keep of a load, where no more than the bound is possible."""
        if goal.kind is GoalKind.HELD:  # what runs is no matter of tolerance
            return load
        tolerance = self.share * bound
        if load < bound - tolerance:
            return load - LEAST_SLACK * tolerance
        return min(bound - tolerance, load - LEAST_SLACK_NEAR * tolerance)
