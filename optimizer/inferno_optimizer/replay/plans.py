"""The plans of the optimizer for a fleet, load after load: what it has computed, it computes once.

A call of `optimize` checks, sizes and explains everything anew. A replay makes thousands of plans
of which only the numbers of replicas are asked for, and loads change from one to the next more
often than lengths do.
"""

import time
from dataclasses import replace

import numpy as np

from inferno_optimizer.capacity import cards_to_hand_out
from inferno_optimizer.replay.fleet import ReplayFleet, load_of
from inferno_optimizer.replay.sized import SizedFleet
from inferno_optimizer.sizing.candidates import Candidates, candidates_of
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.pairs import build_pairs, sorted_types
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.rates import Sizing
from inferno_optimizer.solvers import solve
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment
from inferno_optimizer.system import Allocation, Options
from inferno_optimizer.units import MS_PER_SECOND

NONE = -1
"""The accelerator of a server that has no replica, or no destination."""


class FleetPlans:
    """Plans of a fleet with a solver, each from what there is.

    A server gets at least `fewest` replicas; `load_spread` is that of each server.
    """

    def __init__(
        self, fleet: ReplayFleet, options: Options, fewest: int, load_spread: float = 0.0
    ) -> None:
        system = replace(fleet.system, options=options)
        self._fleet, self._catalogue = fleet, Catalogue(system)
        self._cases = [_looking_ahead(case, fewest, load_spread) for case in fleet.cases]
        self._known: list[tuple[float, ...]] = [()] * len(self._cases)
        self._pairs = build_pairs(self._catalogue, self._cases, sorted_types(system))
        cards = cards_to_hand_out(self._catalogue, [])
        self._cards = np.array([cards[kind] for kind in fleet.types], dtype=np.int64)
        self._sized = SizedFleet(fleet)

    def plan(
        self, rate: FloatArray, lengths: FloatArray, present: IntArray, destination: IntArray
    ) -> IntArray:
        """Replicas of each server on each accelerator.

        Parameters
        ----------
        rate, lengths
            The load to plan for [requests/s], and mean lengths of shape (2, servers).
        present
            What there is; shape (servers, accelerators).
        destination
            The accelerator of each server that has just moved there; -1 of others.
        """
        self._update(rate, lengths, present, destination)
        candidates = self._candidates(rate, lengths)
        served = np.bincount(candidates.pairs.case[candidates.usable], minlength=len(present)) > 0
        stays = np.where(served[:, None], 0, present)
        left = np.maximum(self._cards - self._fleet.used_cards(stays).astype(np.int64), 0)
        answer = solve(candidates, left, time.perf_counter, time.perf_counter())
        return stays + self._matrix(candidates, answer.assignment)

    def rates(self, lengths: FloatArray) -> FloatArray:
        """What one replica carries within its targets on each accelerator [requests/s].

        0 where it keeps none, or takes no request; lengths have the shape (2, servers).
        """
        able: FloatArray = self._sized.at(lengths).max_rate
        return able

    def highest_rate(self, lengths: FloatArray, replicas: IntArray) -> FloatArray:
        """The rate up to which replicas keep their targets, by the Models [requests/s].

        Parameters
        ----------
        lengths
            Mean lengths of shape (2, servers).
        replicas
            Replicas of each server on each accelerator.
        """
        able = np.where(replicas > 0, self.rates(lengths), 0.0)
        rates: FloatArray = (replicas * able).sum(axis=1)
        return rates

    def _update(
        self, rate: FloatArray, lengths: FloatArray, present: IntArray, destination: IntArray
    ) -> None:
        """Bring the cases up to date that have another load, replicas or destination."""
        place = present.argmax(axis=1)
        count = present[np.arange(len(place)), place]
        columns = (rate, *lengths, place, count, destination)
        for row, now in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            if now != self._known[row]:
                self._known[row] = now
                self._cases[row] = self._as_it_is(row, *now)

    def _as_it_is(
        self, row: int, rate: float, prompt: float, answer: float, place: int, count: int, goal: int
    ) -> Case:
        """A case with its load, what it has, and where it has just moved to."""
        case, names = self._cases[row], self._fleet.accelerators
        current = Allocation(load=load_of(case.server.load, rate, prompt, answer))
        if count:
            cost = float(count * self._fleet.unit_cost[row, place])
            current = replace(current, accelerator=names[place], replicas=count, cost=cost)
        destination = names[goal] if goal != NONE else ""
        return replace(case, server=replace(case.server, current=current, destination=destination))

    def _candidates(self, rate: FloatArray, lengths: FloatArray) -> Candidates:
        pairs, sized = self._pairs, self._sized.at(lengths)
        demand = sized.demand(rate)[pairs.case, pairs.accelerator] / MS_PER_SECOND
        able = sized.max_rate[pairs.case, pairs.accelerator] / MS_PER_SECOND
        nothing = np.zeros(len(demand))
        rates = np.where((demand > 0) | (able <= 0), able, np.inf)
        sizing = Sizing(rates, nothing, nothing, nothing)
        pairs = replace(pairs, demand=demand)
        return candidates_of(self._catalogue, self._cases, pairs, sizing)

    def _matrix(self, candidates: Candidates, assignment: Assignment) -> IntArray:
        matrix, accelerator = np.zeros(self._fleet.shape, dtype=np.int64), self._pairs.accelerator
        chosen = np.flatnonzero(assignment.rows != NO_ROW)
        rows = assignment.rows[chosen]
        matrix[chosen, accelerator[rows]] = assignment.replicas[chosen]
        for case, mix in assignment.mixes.items():
            matrix[case, accelerator[[*mix.rows]]] = mix.replicas
        for case, parts in assignment.kept.items():
            place = self._fleet.accelerators.index(
                candidates.cases[case].server.current.accelerator
            )
            matrix[case, place] = sum(part.replicas for part in parts)
        return matrix


def _looking_ahead(case: Case, fewest: int, load_spread: float) -> Case:
    least = max(case.server.min_replicas, fewest)
    server = replace(case.server, min_replicas=least, load_spread=load_spread)
    return replace(case, server=server)
