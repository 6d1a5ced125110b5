"""The search for a better plan of mixes towards one goal, in steps that share the time.

The MILP solver has the whole program first, where loads are to be served: it proves soon most of
what it can. Prices of the cards then prove a bound. Next the solver has only the mixes that cost
little more than the cheapest ones, to find a plan. In the time that remains it has a few cases
again and again, while the others keep what they have: a large neighbourhood search [Pisinger and
Ropke, Handbook of Metaheuristics, 2019, ch. 4]. Meanwhile a second thread proves more, of the whole
program with these prices.
"""

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.branch_and_bound import SearchLimits, Watch
from inferno_optimizer.solvers.heterogeneous.column_generation import MixPrices, best_prices
from inferno_optimizer.solvers.heterogeneous.near import NearMixes
from inferno_optimizer.solvers.heterogeneous.problem import MixProblem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram, Relaxed
from inferno_optimizer.solvers.heterogeneous.proof import Proof, concurrent
from inferno_optimizer.solvers.heterogeneous.settings import DEFAULTS, MixSettings
from inferno_optimizer.solvers.incumbent import Incumbent


class MixSearch:
    """The search, with what it needs.

    Parameters
    ----------
    program
        The program of all cases.
    incumbent
        The plan to improve.
    gap
        Distance from the bound at which a plan is good enough.
    seconds_left
        Time that remains for the stage; finite.
    settings
        Of the search.
    """

    def __init__(
        self,
        program: MixProgram,
        incumbent: Incumbent[IntArray],
        gap: float,
        seconds_left: Callable[[], float],
        settings: MixSettings = DEFAULTS,
    ) -> None:
        self._settings, self._time = settings, settings.time
        self._program, self._problem = program, program.problem
        self._incumbent, self._gap, self._seconds_left = incumbent, gap, seconds_left

    def solve(self, share: float = 1.0) -> None:
        """Let the MILP solver have all for a share of the time."""
        self._solve(self._program, share, known=self._incumbent.plan)

    def improve(self, relaxed: Relaxed) -> None:
        """Search, where the program is too large for the MILP solver alone.

        Parameters
        ----------
        relaxed
            The solved relaxation; the search for prices begins with its prices.

        Raises
        ------
        SolverError
            When HiGHS fails.
        """
        if self._problem.goal.level is not None:
            self.solve(self._time.whole_program)
        if not self._is_open():
            return
        start = MixPrices(relaxed.cards, relaxed.loads, np.zeros(0), -np.inf)
        reserved = (1 - self._time.prices) * self._seconds_left()
        prices = best_prices(
            self._problem,
            self._incumbent.plan,
            start,
            lambda: self._seconds_left() - reserved,
            self._settings.prices,
        )
        self._incumbent.prove(prices.bound)
        whole = replace(self._program, prices=prices)
        if not prices.scarce:
            self._solve(whole, self._time.ample)
        if self._is_open():
            self._search(whole, prices)

    def _search(self, whole: MixProgram, prices: MixPrices) -> None:
        """Search for a plan among what is near, and for a bound in the whole program."""
        known, time = self._incumbent, self._time
        reserved = (1 - time.lists) * self._seconds_left()
        near = NearMixes.of(
            self._problem,
            prices,
            known.value - prices.bound,
            lambda: self._seconds_left() - reserved,
            self._settings,
        )
        if self._problem.goal.level is not None:
            self._solve_parts(near, time.first_parts)
        everything = np.arange(len(self._problem.table.case))
        self._solve(near.program(everything, self._problem, known.plan), time.near, bound=False)
        least_time = self._settings.seconds_per_column * len(whole.objective)
        if time.proof * self._seconds_left() < least_time:
            self._solve_parts(near, 1.0)
        else:
            self._search_and_prove(near, whole)

    def _search_and_prove(self, near: NearMixes, whole: MixProgram) -> None:
        """Solve parts of the plan again, while another thread proves a bound."""
        known, seconds, time = self._incumbent, self._seconds_left(), self._time
        proof = Proof(whole, known.plan)

        def exchange(failures: int) -> None:
            proof.offer(known.plan)
            known.prove(proof.bound)
            if failures == time.proof_after_parts:
                proof.begin()

        after = time.proof_after * seconds if self._problem.goal.level is None else 0.0
        with concurrent(proof, SearchLimits(seconds - after, self._gap), after) as run:
            self._solve_parts(near, 1.0, exchange)
            if self._is_open():
                wait([run], max(0.0, self._seconds_left() - (1 - time.proof) * seconds))
        known.prove(proof.bound)

    def _is_open(self) -> bool:
        """Whether there is something to find, and time."""
        known = self._incumbent
        return known.value - known.bound > self._gap and self._seconds_left() > 0

    def _solve(
        self,
        program: MixProgram,
        share: float,
        *,
        known: IntArray | None = None,
        bound: bool = True,
    ) -> None:
        """Let the MILP solver have a program of all cases for a share of the time.

        With `bound`, the program has all plans, so that what the solver proves holds for all. The
        solver begins without a plan, unless it is told one that is `known`: near a plan it spends
        time on a search that it does not spend on the proof.
        """
        seconds = share * self._seconds_left()
        least_time = self._settings.seconds_per_column * len(program.objective)
        if not self._is_open() or seconds < least_time:
            return
        incumbent = self._incumbent
        gap = self._gap if bound else self._gap / 2  # what is proven of some is more than of all
        limits = SearchLimits(seconds, gap)
        watch = Watch(
            lambda values: self._offer(program.counts(values)),
            incumbent.prove if bound else lambda _: None,
        )
        found, proven = program.solve(known, limits, watch if incumbent.observed else None)
        if found is not None:
            self._offer(found)
        if bound:
            incumbent.prove(proven)

    def _solve_parts(
        self, near: NearMixes, share: float, between: Callable[[int], None] = lambda _: None
    ) -> None:
        """Solve parts of the plan again for a share of the time, while that is of use.

        What is called between two parts may raise the bound of the incumbent; it is told how many
        of the last ones were without any improvement.
        """
        random = np.random.default_rng(0)  # always the same parts: plans are to be repeatable
        parts, reserved = self._settings.parts, (1 - share) * self._seconds_left()
        failures, size = 0, float(parts.cases)
        while failures < parts.patience and self._is_open():
            seconds = min(self._seconds_left() - reserved, parts.seconds)
            if seconds <= 0:
                break
            known = self._incumbent.plan
            cases = _some(near.beyond(known), int(size), parts.basic_chance, random)
            limits = SearchLimits(seconds, 0.0, parts.nodes)
            found = self._part(near, cases).solve(None, limits)[0]
            changed = known.copy()
            changed[cases] = known[cases] if found is None else found
            failures = 0 if self._offer(changed) else failures + 1
            if failures % parts.growth_after == 0 < failures:
                size *= parts.growth
            between(failures)

    def _part(self, near: NearMixes, cases: IntArray) -> MixProgram:
        """The program of some cases with what all others leave them: cards, and loads to serve."""
        problem, known, goal = self._problem, self._incumbent.plan, self._problem.goal
        others = problem.table.take(np.delete(np.arange(len(known)), cases))
        counts = np.delete(known, cases, axis=0)
        loads = others.loads(counts, len(goal.floors))
        part = MixProblem(
            problem.table.take(cases),
            problem.capacity - others.used(counts, len(problem.capacity)),
            replace(goal, floors=np.maximum(goal.floors - loads, 0.0)),
        )
        return near.program(cases, part, known[cases])

    def _offer(self, found: IntArray) -> bool:
        """Offer a plan, if it keeps the floors; return whether it is accepted."""
        table, floors = self._problem.table, self._problem.goal.floors
        found = table.trimmed(found)
        keeps = np.all(table.loads(found, len(floors)) >= floors)
        return bool(keeps) and self._incumbent.offer(found)


def _some(
    beyond: FloatArray, number: int, basic_chance: float, random: np.random.Generator
) -> IntArray:
    """Some cases at random, rather those whose mix is not the cheapest."""
    chance = np.maximum(beyond, 0.0)
    chance += max(basic_chance * float(chance.max()), 1e-9)
    chosen = random.choice(
        len(chance), min(number, len(chance)), replace=False, p=chance / chance.sum()
    )
    return np.sort(chosen)
