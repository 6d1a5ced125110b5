"""How the latencies of one replica of a server grow with the load that it gets."""

import math
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.candidates import NO_PAIR, Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.system import System
from inferno_optimizer.units import MS_PER_MINUTE

POINTS = 40
"""Rates of a curve."""

BEYOND = 1.15
"""Where it ends, as a share of the highest rate at which the targets hold."""


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Mean latencies [ms] of one replica at growing rates [requests/min].

    Arrays have a value for each rate. `rate`, which is one of them unless they were given, is the
    demand of the server divided by its replicas; all targets hold up to `max_rate`.
    """

    accelerator: str
    rates: FloatArray
    itl_ms: FloatArray
    wait_ms: FloatArray
    ttft_ms: FloatArray
    max_rate: float
    rate: float

    @property
    def now(self) -> int:
        """Position of `rate`."""
        return int(np.searchsorted(self.rates, self.rate))


def load_curve(
    system: System, server_name: str, rates: FloatArray | None = None
) -> LoadCurve | None:
    """The curve of a replica of a server as it runs now; None where there is none to draw.

    Without `rates` [requests/min], it has `POINTS` of them, up to `BEYOND` what keeps the targets.
    There is none for a server that is idle, or runs on several accelerators, on none, or on one on
    which no rate meets its targets.

    Notes
    -----
    A replica gets the demand divided by the number of replicas, so a rate is that of a number of
    replicas, which may be a fraction; see `Candidates.latencies`.
    """
    catalogue = Catalogue(system.by_name())
    server = next((s for s in catalogue.system.servers if s.name == server_name), None)
    case = catalogue.case(server) if server else None
    if not isinstance(case, Case) or len(case.server.current.parts) != 1:
        return None
    candidates = build_candidates(catalogue, [case])
    row = _row_of(candidates, case.server.current.accelerator)
    return None if row is None else _curve(candidates, row, case.server.current.replicas, rates)


def _row_of(candidates: Candidates, accelerator: str) -> int | None:
    """The row of an accelerator on which replicas serve whole requests."""
    whole = np.flatnonzero(candidates.pair == NO_PAIR).tolist()
    return next((row for row in whole if candidates.placement(row) == accelerator), None)


def _curve(
    candidates: Candidates, row: int, replicas: int, given: FloatArray | None
) -> LoadCurve | None:
    demand, most = float(candidates.pairs.demand[row]), float(candidates.sizing.max_rate[row])
    if min(demand, most, replicas) <= 0 or math.isinf(most):
        return None
    now = demand / replicas
    rates = _choose_rates(now, most) if given is None else given / MS_PER_MINUTE
    latencies = candidates.latencies(np.full(len(rates), row), demand / rates)
    return LoadCurve(
        accelerator=candidates.placement(row),
        rates=rates * MS_PER_MINUTE,
        itl_ms=latencies.itl_ms,
        wait_ms=latencies.wait_ms,
        ttft_ms=latencies.ttft_ms,
        max_rate=most * MS_PER_MINUTE,
        rate=now * MS_PER_MINUTE,
    )


def _choose_rates(now: float, most: float) -> FloatArray:
    """Rates with that of now among them, to a little beyond the highest that keeps the targets."""
    end = max(most * BEYOND, now)
    return np.sort(np.append(np.linspace(end / POINTS, end, POINTS - 1), now))
