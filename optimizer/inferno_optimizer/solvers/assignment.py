"""What a solver answers: a row of the candidate table for each case, a mix of rows, or none."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solution import CurvePoint, Gain, Level, MarginalValue, SolverStatus
from inferno_optimizer.system import Role

NO_ROW = -1
NO_LEVEL = -1

SMALLEST_GAIN = 1e-6
"""Load below which a gain is rounding [requests/min]."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Replicas of several rows that serve a case together, and their value."""

    rows: tuple[int, ...]
    replicas: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class KeptReplicas:
    """Replicas that run and stay as they are, each on some cards of a type; -1 is no known type.

    A replica carries a `share` of what its case needs, or of the half of each request that its role
    does, and costs `cost` [cents/hour].
    """

    type: int
    cards: int
    replicas: int
    share: float
    cost: float
    role: Role = Role.BOTH


def share_kept(parts: Iterable[KeptReplicas]) -> float:
    """Share of what its case needs that parts carry together, at most 1."""
    shares = dict[Role, float]()
    for part in parts:
        shares[part.role] = shares.get(part.role, 0.0) + part.share * part.replicas
    least = min(shares.values(), default=0.0)
    return 1.0 if least >= 1 - ROUNDING else least


def cost_kept(parts: Iterable[KeptReplicas]) -> float:
    """What parts cost together [cents/hour]."""
    return sum(part.cost * part.replicas for part in parts)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Rows chosen and replicas given, arrays of shape (cases,).

    `rows` is -1 where a case gets nothing; `replicas` are fewer than the row's own where a
    case gets a part of them. A case that has one of the `mixes` has no other row, nor has one that
    keeps what runs as it is: `kept` has the parts of its current allocation that stay.
    """

    rows: IntArray
    replicas: IntArray
    mixes: Mapping[int, Mix] = field(default_factory=lambda: MappingProxyType({}))
    kept: Mapping[int, tuple[KeptReplicas, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @classmethod
    def of_rows(cls, candidates: Candidates, rows: IntArray) -> "Assignment":
        """Every chosen row with all the replicas that it needs."""
        chosen = rows != NO_ROW
        replicas = np.zeros(len(rows), dtype=np.int64)
        replicas[chosen] = candidates.replicas[rows[chosen]]
        return cls(rows, replicas)

    def objective(self, candidates: Candidates) -> float:
        """Total value of what is served entirely; shares are no part of it."""
        rows = self.rows[self._entire(candidates)]
        mixed = sum(mix.value for mix in self.mixes.values())
        return float(np.sum(candidates.value[rows])) + mixed

    def served(self, candidates: Candidates) -> IntArray:
        """Cases that have all that they need, ascending."""
        mixed = np.array([*self.mixes], dtype=np.int64)
        return np.union1d(np.flatnonzero(self._entire(candidates)), mixed)

    def without(self) -> npt.NDArray[np.bool_]:
        """Whether a case has nothing at all; shape (cases,)."""
        nothing: npt.NDArray[np.bool_] = self.rows == NO_ROW
        nothing[np.array([*self.mixes, *self.kept], dtype=np.int64)] = False
        return nothing

    def _entire(self, candidates: Candidates) -> npt.NDArray[np.bool_]:
        """Cases with all the replicas of a row."""
        chosen: npt.NDArray[np.bool_] = self.rows != NO_ROW
        chosen[chosen] = self.replicas[chosen] == candidates.replicas[self.rows[chosen]]
        return chosen

    def used(self, candidates: Candidates) -> IntArray:
        """Cards in use of each type; shape (types,)."""
        chosen, mixes = self.rows != NO_ROW, self.mixes.values()
        rows = np.array([*self.rows[chosen], *(r for mix in mixes for r in mix.rows)], np.int64)
        given = np.array(
            [*self.replicas[chosen], *(n for m in mixes for n in m.replicas)], np.int64
        )
        amounts = np.zeros(len(candidates.usable), dtype=np.int64)
        np.add.at(amounts, rows, given)
        used = candidates.needs.used(amounts, len(candidates.types))
        for part in (part for parts in self.kept.values() for part in parts):
            if part.cards:
                used[part.type] += part.cards * part.replicas
        return used


@dataclass(frozen=True, slots=True)
class OneMoreCard:
    """What one more card of each type is worth; arrays of shape (types,).

    It lets `gain` more load of a `level` be served [requests/min], or it saves `price`
    [cents/hour] where the level is -1. NaN where that is not known. `exact` is what solving again
    with the card shows; the others are of the linear relaxation.
    """

    level: IntArray
    gain: FloatArray
    price: FloatArray
    exact: npt.NDArray[np.bool_]

    @classmethod
    def unknown(cls, types: int) -> "OneMoreCard":
        """Nothing is known of any type."""
        nothing = np.full(types, np.nan)
        exact = np.zeros(types, dtype=np.bool_)
        return cls(np.full(types, NO_LEVEL), nothing, nothing.copy(), exact)

    def add_gain(self, level: int, gain: FloatArray) -> None:
        """Tell of the gain of a level where no more important one gains anything."""
        first_gain = (self.level == NO_LEVEL) & (gain > SMALLEST_GAIN)
        self.level[first_gain], self.gain[first_gain] = level, gain[first_gain]

    def add_price(self, price: FloatArray) -> None:
        """Tell of the price where no level gains anything."""
        without_gain = self.level == NO_LEVEL
        self.price[without_gain] = price[without_gain]

    def tell(self, card_type: int, level: int, worth: float) -> None:
        """Tell what solving again with a card of a type shows: a gain of a level, or a price."""
        self.level[card_type], self.exact[card_type] = level, True
        told, other = (self.price, self.gain) if level == NO_LEVEL else (self.gain, self.price)
        told[card_type], other[card_type] = worth, np.nan

    def described(self, priorities: Sequence[int]) -> tuple[MarginalValue, ...]:
        """The same for each type, with the priority of each level."""
        columns = self.level, self.gain, self.price, self.exact
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(
            MarginalValue(gain=Gain(priorities[level], gain), estimated=not exact)
            if level != NO_LEVEL
            else MarginalValue()
            if math.isnan(price)
            else MarginalValue(price, estimated=not exact)
            for level, gain, price, exact in rows
        )


@dataclass(frozen=True, slots=True)
class SolverResult:
    """An assignment with what its solver knows of it; see `solution.Certificate`.

    `levels` tell of the load of each priority in use. `marginal` tells what one more card of
    each type is worth; empty where the solver does not tell. `curve` tells how the solver improved
    the plan, if the options ask for it. `failures` are steps of the search that ended with an
    error. `objective` is that of the certificate; None where it is the total value of what is
    served entirely.
    """

    solver: str
    status: SolverStatus
    assignment: Assignment
    bound: float | None = None
    levels: tuple[Level, ...] = ()
    marginal: tuple[MarginalValue, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    failures: tuple[str, ...] = ()
    objective: float | None = None

    def value(self, candidates: Candidates) -> float:
        """The objective of the certificate."""
        if self.objective is None:
            return self.assignment.objective(candidates)
        return self.objective
