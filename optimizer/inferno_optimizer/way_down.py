"""How fast replicas may go: within a window, a server loses at most a share of what serves; pure.

A Model in the wrong unit, a series that came back under another name and a load that was measured
as zero look different and do the same: a plan for too few replicas. With this rule half of them
still serve after the first minutes, and targets that are missed then raise the next plan.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Generic, TypeVar

from inferno_optimizer.system import Role

SHARE = 0.5
"""Share of what serves that may go within a window."""

WINDOW_S = 300.0
"""Length of the window [s]."""

ROUNDING = 1e-9
"""Replicas that carry less than a share by this share carry it."""

Place = TypeVar("Place", bound=Hashable)
"""What replicas of one kind have in common: their accelerator, and their role."""


@dataclass(frozen=True, slots=True)
class StepDown(Generic[Place]):
    """Replicas that served, by place, until some of them went at a time [s]."""

    time_s: float
    replicas: Mapping[Place, int]


def choose_weights(
    roles: Mapping[Place, Role], rates: Mapping[Place, float | None]
) -> Sequence[Mapping[Place, float]]:
    """Return what replicas count: what they carry, or 1 where that is unknown of any of them.

    Parameters
    ----------
    roles
        What the replicas of each place do.
    rates
        What one replica of each place carries, in one unit.
    """
    known = {place: rate for place in roles if (rate := rates.get(place))}
    weights = known if len(known) == len(roles) else dict.fromkeys(roles, 1.0)
    return [
        {place: weights[place] for place, role in roles.items() if role in (Role.BOTH, half)}
        for half in (Role.PREFILL, Role.DECODE)
    ]


@dataclass(frozen=True, slots=True)
class WayDown:
    """The rule: which share of what serves may go within which window.

    Parameters
    ----------
    share
        Share that may go; 1 switches the rule off.
    window_s
        Length of the window [s].
    """

    share: float = SHARE
    window_s: float = WINDOW_S

    def count_fewest(self, replicas: int) -> int:
        """Return the fewest replicas of one kind that may be left of these; one may always go."""
        return max(replicas - max(1, floor(replicas * self.share)), 0)

    def list_numbers_between(self, kinds: Sequence[tuple[int, int]]) -> list[int]:
        """Return the numbers of all replicas in between, one for each window.

        Parameters
        ----------
        kinds
            The replicas of each kind before and after: those of one role.
        """
        found: list[int] = []
        left = [before for before, _ in kinds]
        while True:
            left = [
                max(self.count_fewest(n), last) for n, (_, last) in zip(left, kinds, strict=True)
            ]
            if all(n == last for n, (_, last) in zip(left, kinds, strict=True)):
                return found
            found.append(sum(left))

    def select_recent(
        self, reductions: Iterable[StepDown[Place]], now_s: float
    ) -> tuple[StepDown[Place], ...]:
        """Return the reductions in the window; a time in the future counts as now."""
        return tuple(
            StepDown(min(each.time_s, now_s), each.replicas)
            for each in reductions
            if now_s - each.time_s < self.window_s
        )

    def permits(
        self,
        after: Mapping[Place, int],
        before: Iterable[Mapping[Place, int]],
        weights: Sequence[Mapping[Place, float]],
    ) -> bool:
        """Whether so few replicas may serve after what served at moments of the window.

        Of each half of the work the share is left, or all replicas but one.
        """
        return all(self._is_left(after, served, half) for served in before for half in weights)

    def _is_left(
        self,
        after: Mapping[Place, int],
        before: Mapping[Place, int],
        weights: Mapping[Place, float],
    ) -> bool:
        if sum(max(before.get(place, 0) - after.get(place, 0), 0) for place in weights) <= 1:
            return True
        least = (1.0 - self.share) * _sum_weights(before, weights)
        return _sum_weights(after, weights) >= least * (1 - ROUNDING)

    def next_s(
        self,
        choices: Collection[Mapping[Place, int]],
        serving: Mapping[Place, int],
        recent: Iterable[StepDown[Place]],
        weights: Sequence[Mapping[Place, float]],
    ) -> float | None:
        """Return when the first of some choices may serve, if what serves now goes on until then.

        None if what serves now permits none of them, whatever went before.
        """
        recent = tuple(recent)
        for time_s in (0.0, *sorted(each.time_s + self.window_s for each in recent)):
            rest = [r.replicas for r in recent if r.time_s + self.window_s > time_s]
            if any(self.permits(each, [serving, *rest], weights) for each in choices):
                return time_s
        return None


HALF = WayDown()
"""The rule where nobody says another one."""


def _sum_weights(replicas: Mapping[Place, int], weights: Mapping[Place, float]) -> float:
    return sum(weight * replicas.get(place, 0) for place, weight in weights.items())
