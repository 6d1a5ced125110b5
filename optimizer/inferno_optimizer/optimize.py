"""The entry point of the library: `optimize` takes a System and returns a Solution."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from inferno_optimizer.capacity import capacity_use, cards_to_hand_out, held_cost
from inferno_optimizer.caveats import warned
from inferno_optimizer.decisions import decide, size_servers
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import Certificate, Decision, Solution
from inferno_optimizer.solvers import solve
from inferno_optimizer.solvers.assignment import SolverResult
from inferno_optimizer.solvers.formulation import formulate_least_value
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.system import System

Clock = Callable[[], float]


def optimize(
    system: System, clock: Clock = time.perf_counter, params: SolveParams = DEFAULTS
) -> Solution:
    """Decide the accelerator, the number of replicas and the batch size of every server.

    Parameters
    ----------
    system
        The servers, their loads and targets, and the capacity; it is not changed.
    clock
        A monotonic clock [s].
    params
        Of the search.

    Raises
    ------
    UnsupportedError
        The options need a feature that this version does not have.
    """
    start = clock()
    catalogue = Catalogue(system.by_name())
    candidates, undecided, capacity = _sized(catalogue)
    sized = clock()
    answer = solve(candidates, capacity, clock, start, params)
    assigned = clock()
    used = answer.assignment.used(candidates)
    decided = decide(candidates, answer.assignment, np.maximum(capacity - used, 0))
    by_server = {decision.server: decision for decision in (*undecided, *decided)}
    decisions = warned(catalogue, (by_server[server.name] for server in system.servers))
    end = clock()
    phases = (
        ("sizing", sized - start),
        ("assignment", assigned - sized),
        ("decisions", end - assigned),
    )
    return Solution(
        decisions=decisions,
        certificate=_certificate(candidates, answer, phases),
        capacity=capacity_use(
            catalogue,
            decisions,
            dict(zip(candidates.types, used.tolist(), strict=True)),
            dict(zip(candidates.types, answer.marginal, strict=False)),
        ),
        held_cost=held_cost(system, decisions),
    )


def formulate_lp(system: System, solution: Solution) -> str:
    """Return a program for any solver (LP format): the least value that serves as much.

    It has no mixes of accelerators.
    """
    candidates, _, capacity = _sized(Catalogue(system.by_name()))
    served = {level.priority: level.served for level in solution.certificate.levels}
    program = formulate_least_value(candidates, capacity, served)
    with TemporaryDirectory() as folder:  # PuLP writes files only
        file = Path(folder) / "program.lp"
        program.writeLP(str(file))
        return file.read_text()


def _sized(catalogue: Catalogue) -> tuple[Candidates, Sequence[Decision], IntArray]:
    """The candidates of all servers, those without any, and the cards of each type."""
    candidates, undecided = size_servers(
        catalogue, catalogue.system.servers, rates=catalogue.system.options.heterogeneous
    )
    cards = cards_to_hand_out(catalogue, undecided)
    return candidates, undecided, np.array([cards[t] for t in candidates.types], dtype=np.int64)


def _certificate(
    candidates: Candidates, answer: SolverResult, phases: tuple[tuple[str, float], ...]
) -> Certificate:
    return Certificate(
        solver=answer.solver,
        status=answer.status,
        objective=answer.value(candidates),
        bound=answer.bound,
        seconds=sum(seconds for _, seconds in phases),
        levels=answer.levels,
        phases=phases,
        curve=answer.curve,
        failures=answer.failures,
    )
