"""The work that a search may still do, counted so that it ends at the same place on any machine.

The unit is a second of the machine on which the costs were measured, while nothing else ran. What
HiGHS does is counted in steps of the simplex method and coefficients of its program; all else by
the size of arrays. The wall clock is the last stop only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import highspy

from inferno_optimizer.solvers.params import DEFAULTS, SolveParams

UNLIMITED = 2**31 - 1
"""Steps of HiGHS without a limit."""

FOREVER = 1e9
"""Seconds that are no limit."""

LOOKS = highspy.cb.HighsCallbackType.kCallbackMipInterrupt


@dataclass(slots=True)
class _Account:
    """What all parts of a budget spend from."""

    left: float
    seconds_left: Callable[[], float]
    params: SolveParams


@dataclass(frozen=True, slots=True)
class Budget:
    """A part of the work that remains; what is spent of it is spent of all of it.

    It is over when its work is done, or when its time ends.
    """

    _account: _Account
    _kept: float = 0.0
    _kept_seconds: float = 0.0

    @classmethod
    def of(
        cls,
        units: float,
        seconds_left: Callable[[], float] = lambda: FOREVER,
        params: SolveParams = DEFAULTS,
    ) -> "Budget":
        """So much work, in the time that remains."""
        return cls(_Account(units, seconds_left, params))

    @property
    def params(self) -> SolveParams:
        """Of the search."""
        return self._account.params

    @property
    def left(self) -> float:
        """Units of work that remain; negative when more was spent."""
        return self._account.left - self._kept

    @property
    def seconds_left(self) -> float:
        """Seconds until the time ends."""
        return self._account.seconds_left() - self._kept_seconds

    @property
    def is_over(self) -> bool:
        """Whether no work remains, or no time."""
        return self.left <= 0 or self.seconds_left <= 0

    @property
    def whole(self) -> "Budget":
        """All that remains, of which this is a part."""
        return Budget(self._account)

    def part(self, share: float) -> "Budget":
        """A share of the work that remains.

        Where the time would end before the work is done, parts that come first get more of it, but
        not all: a share of a half has three quarters of the time.
        """
        others = max(1 - share, 0.0) ** 2 * self.seconds_left
        return Budget(
            self._account, self._kept + (1 - share) * self.left, self._kept_seconds + others
        )

    def without(self, seconds: float) -> "Budget":
        """The same, but for work that takes so many seconds, and the time for it."""
        return Budget(self._account, self._kept + seconds, self._kept_seconds + seconds)

    def spend(self, units: float) -> None:
        """Tell of work that is done."""
        self._account.left -= units

    def run_simplex(
        self, solver: highspy.Highs, steps: int = UNLIMITED
    ) -> highspy.HighsModelStatus:
        """Solve a linear program, in so many steps at most."""
        size, params = solver.getNumNz(), self.params
        step = params.linear_step + params.linear_step_coefficient * size
        affordable = (self.left - params.linear * size) / step
        steps = int(min(steps, max(affordable, 0) + 1))
        solver.setOptionValue("simplex_iteration_limit", steps)
        solver.setOptionValue("time_limit", solver.getRunTime() + max(self.seconds_left, 0.0))
        solver.run()
        taken = solver.getInfo().simplex_iteration_count
        self.spend(params.linear * size + step * taken)
        status: highspy.HighsModelStatus = solver.getModelStatus()
        return status

    def run_branch_and_bound(
        self, solver: highspy.Highs, look_work: float | None = None
    ) -> highspy.HighsModelStatus:
        """Solve a mixed integer program, with so much work for each coefficient between looks."""
        size, looks, params = solver.getNumNz(), count(1), self.params
        look_work = params.mixed_look if look_work is None else look_work
        affordable = (self.left - size * params.mixed) / (size * look_work) if size else 0.0

        def look(_kind: object, _text: str, _known: object, reply: _Reply, _: object) -> None:
            reply.user_interrupt = next(looks) > affordable

        solver.setOptionValue("time_limit", max(self.seconds_left, 0.0))
        solver.setCallback(look, None)
        solver.startCallback(LOOKS)
        solver.run()
        steps = solver.getInfo().simplex_iteration_count
        self.spend(size * params.mixed + steps * params.mixed_step)
        status: highspy.HighsModelStatus = solver.getModelStatus()
        return status


class _Reply(Protocol):
    """What HiGHS is told when it looks at its limits."""

    user_interrupt: bool
