"""What a proof tells while it runs and at its end, against every plan of small problems."""

from concurrent.futures import wait

import numpy as np
import pytest

from inferno_optimizer.solvers.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.program import MixProgram
from inferno_optimizer.solvers.heterogeneous.proof import Proof, concurrent
from tests.tiers import sampled
from tests.unit.optimizer.solvers.heterogeneous.tables import best_objective, random_problem

AMPLE = SearchLimits(60.0, 0.0)


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_the_objective_of_the_best_plan_is_proven(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    proof = Proof(MixProgram(problem, CoverInequalities.of(problem.table)), plan)

    proof.run(AMPLE)

    assert proof.bound == pytest.approx(best_objective(problem), abs=1e-6)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_a_better_plan_from_elsewhere_makes_no_bound_wrong(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    program = MixProgram(problem, CoverInequalities.of(problem.table))
    best, _ = program.solve(plan, AMPLE)
    assert best is not None
    proof = Proof(program, plan)
    proof.offer(best)

    proof.run(AMPLE)

    assert proof.bound == pytest.approx(best_objective(problem), abs=1e-6)


def test_a_proof_begins_before_its_time_where_it_is_told_to() -> None:
    problem, plan = random_problem(np.random.default_rng(1))
    proof = Proof(MixProgram(problem, CoverInequalities.of(problem.table)), plan)

    with concurrent(proof, AMPLE, after=1000.0) as run:
        proof.begin()
        wait([run])

    assert proof.bound == pytest.approx(best_objective(problem), abs=1e-6)


def test_a_proof_that_never_begins_proves_nothing_and_ends() -> None:
    problem, plan = random_problem(np.random.default_rng(1))
    proof = Proof(MixProgram(problem, CoverInequalities.of(problem.table)), plan)

    with concurrent(proof, AMPLE, after=1000.0) as run:
        pass

    assert wait([run], timeout=60.0).done
    assert proof.bound == -np.inf


def test_a_thread_proves_while_the_block_does_something_else() -> None:
    problem, plan = random_problem(np.random.default_rng(1))
    proof = Proof(MixProgram(problem, CoverInequalities.of(problem.table)), plan)

    with concurrent(proof, AMPLE) as run:
        wait([run])

    assert proof.bound == pytest.approx(best_objective(problem), abs=1e-6)


def test_what_a_thread_raises_is_raised_after_the_block() -> None:
    problem, plan = random_problem(np.random.default_rng(1))
    proof = Proof(MixProgram(problem, CoverInequalities.of(problem.table)), plan[:, :1])

    with pytest.raises(IndexError), concurrent(proof, AMPLE) as run:
        wait([run])
