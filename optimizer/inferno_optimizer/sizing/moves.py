"""What speaks against a move to another accelerator: that both run, and that its saving passes.

Whole replicas make an accelerator cheaper at some loads and dearer at others close to them, so that
a load that wanders would have its server move again and again. See `docs/concepts/assignment.md`.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.cases import Case
from inferno_optimizer.sizing.demands import replicas_needed
from inferno_optimizer.sizing.pairs import Pairs, integers
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

PENALTY_SHARE = 0.1
"""Share of the old and the new cost that is added as a penalty for another accelerator."""

LASTING_SHARE = 0.05
"""The same where only what is saved at most loads to come counts: it has longer to pay."""

UNPAID_SHARE = 1.0
"""The same for a server that has not paid for its last move yet, at any but its destination."""

LOADS = 10
"""How many loads, all as likely, stand for those to come."""

DEVIATIONS = tuple(NormalDist().inv_cdf((k + 0.5) / LOADS) for k in range(LOADS))
"""Their logarithms, in standard deviations from that of the load of now; rising."""


def penalty_shares(cases: Sequence[Case]) -> FloatArray:
    """The share of the old and the new cost that a move of each case is charged; shape (cases,)."""
    return np.where(looks_ahead(cases), LASTING_SHARE, PENALTY_SHARE)


def passing_savings(
    cases: Sequence[Case], pairs: Pairs, able: FloatArray, unit_cost: FloatArray, here: IntArray
) -> FloatArray:
    """What each row saves at the load of now and not on average over the loads to come.

    Parameters
    ----------
    cases, pairs
        The servers, and their rows.
    able
        What one replica carries, 0 where it misses targets [requests/ms]; shape (rows,).
    unit_cost
        Of one replica [cents/hour]; shape (rows,).
    here
        The accelerator on which each case runs, by number; shape (cases,).

    Returns
    -------
    FloatArray
        At least 0 [cents/hour], shape (rows,). It is 0 for cases without a spread of loads, and
        where what runs does not meet the targets.
    """
    saved = np.zeros(len(pairs.case))
    rows = np.flatnonzero(looks_ahead(cases)[pairs.case] & (able > 0) & (pairs.demand > 0))
    if not rows.size:
        return saved
    case = pairs.case[rows]
    now, usual = _costs(cases, pairs, able, rows) * unit_cost[rows]
    runs = here[case] == pairs.accelerator[rows]
    change = np.full(len(cases), np.inf)
    change[case[runs]] = (now - usual)[runs]
    more = change[case] - (now - usual)
    saved[rows] = np.where(np.isfinite(more), np.maximum(more, 0.0), 0.0)
    return saved


def looks_ahead(cases: Sequence[Case]) -> npt.NDArray[np.bool_]:
    """Which moves are judged by the loads to come, shape (cases,)."""
    knows = (case.server.load_spread > 0 and _runs_alone(case) for case in cases)
    return np.fromiter(knows, np.bool_, len(cases))


def _runs_alone(case: Case) -> bool:
    """Whether a case runs on one accelerator, and is sized for whole replicas alone."""
    current = case.server.current
    return bool(current.accelerator and not (current.mix or current.roles or case.apart))


def demands_to_come(cases: Sequence[Case], case: IntArray, demand: FloatArray) -> FloatArray:
    """The demands that rows have at the loads to come [requests/ms]; shape (`LOADS`, rows).

    Parameters
    ----------
    cases
        The servers.
    case, demand
        The case of each row, and its demand at the load of now; shape (rows,).
    """
    spread = np.array([c.server.load_spread for c in cases], dtype=np.float64)[case]
    to_come: FloatArray = demand * np.exp(np.outer(DEVIATIONS, spread))
    return to_come


def outgrows(
    rate: FloatArray | float, moved_for: FloatArray | float, spread: float
) -> npt.NDArray[np.bool_]:
    """Whether loads are larger than all those by which moves were judged.

    What such a move was to save says nothing of them, and a server that grows starts replicas
    wherever it goes. One whose load falls starts none where it stays, so that it waits.

    Parameters
    ----------
    rate, moved_for
        The loads of now, and those for which the moves were decided, in the same unit; any shape.
        No load outgrows 0: that one is not known.
    spread
        The standard deviation of the logarithm of the loads to come; none outgrows 0.
    """
    largest = np.multiply(moved_for, np.exp(DEVIATIONS[-1] * spread))
    return np.asarray((spread > 0) & (largest > 0) & np.greater(rate, largest))


def _costs(cases: Sequence[Case], pairs: Pairs, able: FloatArray, rows: IntArray) -> FloatArray:
    """Replicas of rows now, and on average over the loads to come; shape (2, rows)."""
    case, demand = pairs.case[rows], pairs.demand[rows]
    fewest = integers(c.server.min_replicas for c in cases)[case]
    demands = np.vstack((demand, demands_to_come(cases, case, demand)))
    needed = np.maximum(replicas_needed(demands, able[rows]), fewest)
    return np.stack((needed[0], needed[1:].mean(axis=0)))
