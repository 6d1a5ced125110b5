"""How far ahead of the measured loads plans are made: the growth until a new replica serves."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.engines.past import PastLoad, Span, read_loads
from inferno_operator.engines.series_groups import windows_of
from inferno_operator.resources import Ahead, Measure, Measured, Server
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import PrometheusPast
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.forecast import (
    ENOUGH_S,
    HISTORY_S,
    REFRESH_S,
    GrowthBound,
    first_ratio,
    growth_bound,
)
from inferno_optimizer.sizing.queueing import IntArray

STEP_S = 60.0
"""Time between two rates of a history [s]."""

STEPS = round(HISTORY_S / STEP_S)
REFRESH_STEPS = round(REFRESH_S / STEP_S)

UNIT = 64.0
"""What rates are kept in [requests/min]: a power of two, so that no digit is lost."""

LARGEST = float(np.finfo(np.float16).max)
"""The largest rate that is kept, in units."""

MOVES = frozenset({"Fresh", "Idle"})
"""Qualities whose rates are those of all replicas, so that their ratios tell how loads grow."""


class LoadHistory:
    """The arrival rates of one server in the last day, by minutes; NaN where none is known.

    A rate takes two bytes, and is right to one part in 2,000: a Poisson count of a million
    requests is no better known.
    """

    __slots__ = ("_growth", "_known", "_newest", "_rates")

    def __init__(self) -> None:
        self._rates = np.full(STEPS, np.nan, dtype=np.float16)
        self._known = 0
        """How many rates are known; to count them would read all histories in each cycle."""
        self._newest: int | None = None
        self._growth: tuple[int, int, GrowthBound] | None = None
        """The step and the steps ahead for which a growth was computed, and the growth."""

    def add(self, time_s: float, rate: float) -> None:
        """Take the rate of a time; a day before the newest one, the clock was set back."""
        step = int(time_s // STEP_S)
        newest = step if self._newest is None else self._newest
        if abs(step - newest) >= STEPS:
            self._forget(np.arange(STEPS))
            newest = step
        if step > newest:
            self._forget(np.arange(newest + 1, step + 1) % STEPS)
        self._known += int(np.isnan(self._rates[step % STEPS]))
        self._rates[step % STEPS] = min(rate / UNIT, LARGEST)
        self._newest = max(step, newest)

    def fill(self, rates: Mapping[float, float]) -> None:
        """Take rates of the past by Unix time [s]; those that are too old by now are left out."""
        for time_s, rate in rates.items():
            if self._newest is None or time_s // STEP_S > self._newest - STEPS:
                self.add(time_s, rate)

    def _forget(self, places: IntArray) -> None:
        self._known -= int(np.count_nonzero(~np.isnan(self._rates[places])))
        self._rates[places] = np.nan

    @property
    def seconds(self) -> float:
        """Time over which rates are known [s]."""
        return STEP_S * self._known

    @property
    def mean(self) -> float | None:
        """Mean of the rates that are known; None without any."""
        return UNIT * float(np.nanmean(self._rates, dtype=np.float64)) if self._known else None

    def growth(self, rate: float, horizon_s: float) -> float | None:
        """Return by how much a rate may grow over a time; None with too little history."""
        newest, ahead = self._newest, max(1, ceil(horizon_s / STEP_S))
        if newest is None or self.seconds < ENOUGH_S:
            return None
        bound = self._growth
        if bound is None or bound[1] != ahead or newest - bound[0] >= REFRESH_STEPS:
            self._growth = bound = newest, ahead, self._bound(newest, ahead)
        return float(bound[2].at(np.array([rate / UNIT]))[0])

    def _bound(self, newest: int, ahead: int) -> GrowthBound:
        in_order = self._rates[np.arange(newest + 1, newest + 1 + STEPS) % STEPS]
        first = first_ratio(ahead * STEP_S)
        return growth_bound(in_order[:, None].astype(np.float64), ahead, first)


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The histories of servers, from which follows how far ahead their plans are made.

    `interval` is the time between two measurements [s].
    """

    interval: float
    histories: dict[Key, LoadHistory] = field(default_factory=dict)

    def look_ahead(
        self, key: Key, server: Server, newest: Measured, before: Measured | None
    ) -> Ahead:
        """Take note of a measurement, and return how far ahead of it plans are made.

        Until there is enough history, the growth is what an operator before this one found.
        """
        history = self.histories.setdefault(key, LoadHistory())
        if newest.quality in MOVES and newest.arrival_rate is not None:
            history.add(newest.time.timestamp(), newest.arrival_rate)
        horizon = server.lead_seconds + self.interval
        growth = history.growth(newest.arrival_rate or 0.0, horizon)
        last = before.ahead if before else None
        if growth is None and last is not None and last.history_seconds:
            return last.model_copy(update={"seconds": horizon})
        seconds = 0.0 if growth is None else history.seconds
        least = first_ratio(horizon) if growth is None else max(growth, 1.0)
        return Ahead(seconds=horizon, growth=round(least, 3), history_seconds=seconds)

    def mean_rate(self, key: Key) -> float | None:
        """Return the mean of the rates of a server that are known; None without any."""
        history = self.histories.get(key)
        return history.mean if history else None

    def remember(self, key: Key, rates: Mapping[float, float]) -> None:
        """Take rates of the past by Unix time [s], such as an operator before this one measured."""
        history = self.histories.setdefault(key, LoadHistory())
        history.fill(rates)

    def forget(self, key: Key) -> None:
        """Forget a server."""
        self.histories.pop(key, None)


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PastRates:
    """Reads the rates of servers in the last day; `clock` tells the time of day, Unix time [s]."""

    prometheus: PrometheusPast
    catalogue: MetricSources
    clock: Callable[[], float]

    async def fill(self, lookahead: Lookahead, measures: Mapping[Key, Measure]) -> None:
        """Fill histories; of servers whose past cannot be read, they begin now."""
        end = self.clock() // STEP_S * STEP_S
        span = Span(end - HISTORY_S + 2 * STEP_S, end, STEP_S)
        for part in _group_by_query(measures):
            seconds = windows_of(next(iter(part.values()))).long
            try:
                loads, _ = await read_loads(
                    part, self.prometheus, self.catalogue, span, logger.debug, seconds
                )
            except InfernoError as error:
                logger.warning("the loads of the last day are not known: %s", error)
                continue
            for key, load in loads.items():
                lookahead.remember(key, _find_rates(load, span))
                await asyncio.sleep(0)  # a thousand histories take seconds


def _group_by_query(measures: Mapping[Key, Measure]) -> list[dict[Key, Measure]]:
    parts: defaultdict[object, dict[Key, Measure]] = defaultdict(dict)
    for key, measure in measures.items():
        own = key if measure.queries else None
        labels, windows = tuple(sorted(measure.labels)), windows_of(measure)
        parts[measure.source, labels, windows, own][key] = measure
    return list(parts.values())


def _find_rates(load: PastLoad, span: Span) -> dict[float, float]:
    rates = enumerate(load.rate.tolist(), start=1)
    return {span.start + n * span.step_s: 60 * rate for n, rate in rates if rate == rate}  # noqa: PLR0124
