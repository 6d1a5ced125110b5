"""A bound that is proven on a second core, while plans are looked for on the first."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Protocol

import highspy
import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.heterogeneous.program import MixProgram

QUESTION = highspy.cb.HighsCallbackType.kCallbackMipUserSolution
MOMENT = highspy.cb.HighsCallbackType.kCallbackMipInterrupt
"""When HiGHS asks for a better solution, and whether to go on."""

OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "mip_rel_gap": 0.0,
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}
"""Of HiGHS: it looks for no solutions, which take it most of the time."""


class Proof:
    """A bound of a program, by branch and bound.

    It may run on a thread of its own: HiGHS releases the interpreter's lock. It is asked and told
    by another one meanwhile.

    Parameters
    ----------
    program
        Of all plans of which something is to be proven.
    known
        A plan, which tells what need not be looked at; shape (cases, items).
    """

    def __init__(self, program: MixProgram, known: IntArray) -> None:
        self._program, self._best, self._used = program, known, known
        self._bound, self._begun, self._ended = -np.inf, Event(), Event()

    @property
    def bound(self) -> float:
        """No plan has a lower objective; -inf where nothing is proven yet."""
        return self._bound

    def offer(self, plan: IntArray) -> None:
        """Tell of a better plan, or once more of the same."""
        self._best = plan

    def begin(self) -> None:
        """Let it begin now."""
        self._begun.set()

    def end(self) -> None:
        """Let it come to an end soon."""
        self._ended.set()
        self._begun.set()

    def run(self, limits: SearchLimits, after: float = 0.0) -> None:
        """Prove what there is time for, after some seconds, with the best plan of then."""
        self._begun.wait(after)
        if self._ended.is_set():
            return
        self._used = self._best
        solver = highspy.Highs()
        for name, value in OPTIONS.items():
            solver.setOptionValue(name, value)
        solver.setOptionValue("mip_abs_gap", limits.gap)
        solver.setOptionValue("time_limit", limits.seconds)
        solver.passModel(self._program.model())
        start = highspy.HighsSolution()
        start.col_value = self._program.values(self._used)
        solver.setSolution(start)
        solver.setCallback(self._answer, None)
        solver.startCallback(QUESTION)
        solver.startCallback(MOMENT)
        if solver.run() != highspy.HighsStatus.kError:
            self._improve(float(solver.getInfo().mip_dual_bound))

    def _answer(
        self, kind: object, _text: str, known: "_Known", reply: "_Reply", _: object
    ) -> None:
        """What HiGHS calls."""
        if kind == MOMENT:
            self._improve(known.mip_dual_bound)
            reply.user_interrupt = self._ended.is_set()
        elif self._best is not self._used:
            self._used = self._best
            reply.setSolution(self._program.values(self._used))

    def _improve(self, bound: float) -> None:
        self._bound = max(self._bound, bound)


class _Known(Protocol):
    """What HiGHS tells in a callback."""

    mip_dual_bound: float


class _Reply(Protocol):
    """What it is told."""

    user_interrupt: bool

    def setSolution(self, values: FloatArray) -> object:  # noqa: N802 - HiGHS's name
        """Give the values of all columns in a solution."""


@contextmanager
def concurrent(proof: Proof, limits: SearchLimits, after: float = 0.0) -> Iterator[Future[None]]:
    """Let a thread prove something until the block ends; it begins after some seconds.

    HiGHS takes a second now and then to notice that it is to end; nobody waits for that.
    """
    pool = ThreadPoolExecutor(1)
    run = pool.submit(proof.run, limits, after)
    try:
        yield run
    finally:
        proof.end()
        pool.shutdown(wait=False)
    if run.done():
        run.result()  # raises what it raised
