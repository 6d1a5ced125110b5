"""Fits the efficiency to measurements, and says what estimates of other models are off by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import least_squares

from inferno_operator.cli.catalogue import KnownError
from inferno_optimizer.calibration.roofline import Efficiency
from inferno_optimizer.sizing.queueing import FloatArray
from tests.published.measured import Entry, Point, points, predicted, recent_points

START = (0.8, 0.5, 0.02, 0.02, 0.01)
LEAST, MOST = (0.05, 0.05, 1e-5, 1e-5, 1e-5), (1.0, 1.0, 10.0, 10.0, 10.0)
"""Of each field of `Efficiency`: shares, then times [ms]."""

SMALL = 0.05
"""Errors of the logarithm from which on they count linearly: some engines are old."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Errors of an entry, (estimated - measured) / measured, of each point.

    The efficiency was fitted to all other models.
    """

    entry: Entry
    points: tuple[Point, ...]
    errors: FloatArray

    @property
    def off(self) -> float:
        """The median of the sizes of the errors."""
        return median_size(self.errors)

    @property
    def aiconfigurator_errors(self) -> FloatArray:
        """Errors of AIConfigurator; empty unless it says something of every point."""
        said = [point.aiconfigurator_ms for point in self.points]
        if None in said:
            return np.array([])
        return np.array(said, dtype=np.float64) / [point.ms for point in self.points] - 1.0


def median_size(errors: FloatArray) -> float:
    """The median of the sizes of errors."""
    return float(np.median(np.abs(errors)))


def fit(measured: Sequence[Point]) -> Efficiency:
    """The efficiency that is closest to measurements, in which each entry counts as one."""
    found = [point.entry for point in measured]
    weights = np.array([found.count(entry) for entry in found]) ** -0.5

    def residuals(logs: FloatArray) -> FloatArray:
        return np.log1p(errors(measured, Efficiency(*np.exp(logs)))) * weights

    bounds = (np.log(LEAST), np.log(MOST))
    best = least_squares(residuals, np.log(START), bounds=bounds, loss="soft_l1", f_scale=SMALL)
    return Efficiency(*np.exp(best.x).tolist())


def errors(measured: Iterable[Point], efficiency: Efficiency) -> FloatArray:
    """(Estimated - measured) / measured, of each point."""
    return np.array([predicted(point, efficiency) / point.ms - 1.0 for point in measured])


@cache
def judged() -> tuple[Judged, ...]:
    """Every entry, with an efficiency that its model has no part in."""
    models = dict.fromkeys(point.entry.model for point in points())
    without = {m: fit([p for p in points() if p.entry.model != m]) for m in models}
    groups: dict[Entry, list[Point]] = {}
    for point in points():
        groups.setdefault(point.entry, []).append(point)
    return tuple(
        Judged(entry, tuple(own), errors(own, without[entry.model]))
        for entry, own in groups.items()
    )


def judged_recent() -> tuple[Judged, ...]:
    """The same of the entries of recent engines."""
    recent = {point.entry for point in recent_points()}
    return tuple(one for one in judged() if one.entry in recent)


def known_errors() -> list[KnownError]:
    """What estimates of each kind are off by, where there are entries."""
    kinds = product((False, True), repeat=2)
    return [error for kind in kinds if (error := _known_error(*kind)) is not None]


def _known_error(experts: bool, several: bool) -> KnownError | None:
    off = [j.off for j in judged() if (j.entry.experts, j.entry.several) == (experts, several)]
    if not off:
        return None
    return KnownError(
        experts=experts,
        several=several,
        entries=len(off),
        median=round(100 * float(np.median(off))),
        largest=round(100 * max(off)),
    )
