"""The axis of time of a chart: it begins at a moment, in the unit that suits its length."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

UNITS = ((3 * 86400.0, 86400.0, "days"), (3 * 3600.0, 3600.0, "hours"), (0.0, 60.0, "minutes"))
"""Units of an axis: the shortest axis that has it [s], its length [s], and its name."""

SHORTEST_S = 60.0
"""Shortest axis [s]."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """An axis from `start` that is `length_s` long [s]."""

    start: datetime
    length_s: float

    @classmethod
    def of(cls, moments: Iterable[datetime], now: datetime) -> Self:
        """The axis from the first of some moments until now."""
        start = min([*moments, now])
        return cls(start, max((now - start).total_seconds(), SHORTEST_S))

    @property
    def _unit(self) -> tuple[float, str]:
        return next((size, name) for least, size, name in UNITS if self.length_s >= least)

    @property
    def label(self) -> str:
        """The title of the axis."""
        return f"{self._unit[1]} since {self.start:%Y-%m-%d %H:%M} UTC"

    @property
    def end(self) -> float:
        """Where the axis ends, in its unit."""
        return self.length_s / self._unit[0]

    def at(self, moment: datetime) -> float:
        """Where a moment is, in the unit of the axis."""
        return (moment - self.start).total_seconds() / self._unit[0]
