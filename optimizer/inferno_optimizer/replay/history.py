"""The history of a replay: what there was in each step, and how the servers did."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plant import Plant, StepResult
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

Counts = npt.NDArray[np.int32]
"""Half as long as the integers of a plant: weeks of many servers are kept for each policy."""

Amounts = npt.NDArray[np.float32]
"""Half as long as the numbers of a plant."""

NO_PLACE = -1
"""The accelerator of a server of which no replica serves yet."""


@dataclass(frozen=True, slots=True)
class History:
    """What happened, step by step; arrays have the shape (steps, servers), if nothing else is said.

    Attributes
    ----------
    cost
        Cost of all replicas, with those that start [cents/hour]; shape (steps,).
    on_accelerator
        Replicas on each accelerator; shape (steps, accelerators).
    replicas, ready, refused
        Replicas that there were, those of them that served, and those for which there was no card.
    place
        The accelerator on which most of them served, or the last one on which any did.
    able
        The highest rate at which those that served can work [requests/s].
    waiting
        Requests in line at the end of the step.
    delay_within, itl_within
        Shares of the requests within the targets of wait and TTFT, and within that of the ITL.
    """

    cost: FloatArray
    on_accelerator: IntArray
    replicas: Counts
    ready: Counts
    refused: Counts
    place: Counts
    able: Amounts
    waiting: Amounts
    delay_within: Amounts
    itl_within: Amounts

    @classmethod
    def empty(cls, fleet: ReplayFleet, steps: int) -> "History":
        """A history to be written, in which nothing has happened yet."""
        servers, accelerators = fleet.shape

        def counts(value: int = 0) -> Counts:
            return np.full((steps, servers), value, dtype=np.int32)

        def amounts() -> Amounts:
            return np.zeros((steps, servers), dtype=np.float32)

        return cls(
            cost=np.zeros(steps),
            on_accelerator=np.zeros((steps, accelerators), dtype=np.int64),
            replicas=counts(),
            ready=counts(),
            refused=counts(),
            place=counts(NO_PLACE),
            able=amounts(),
            waiting=amounts(),
            delay_within=amounts(),
            itl_within=amounts(),
        )

    @property
    def within(self) -> Amounts:
        """Shares of the requests within both targets."""
        return self.delay_within * self.itl_within

    @property
    def moves(self) -> IntArray:
        """How often each server changed its accelerator; shape (servers,)."""
        before, after = self.place[:-1], self.place[1:]
        changed: IntArray = ((after != before) & (before != NO_PLACE)).sum(axis=0)
        return changed

    def record(self, step: int, plant: Plant, served: StepResult) -> None:
        """Write down a step, after the plant has served it."""
        present, ready = plant.present, plant.ready
        self.cost[step] = plant.fleet.cost(present).sum()
        self.on_accelerator[step] = present.sum(axis=0)
        self.replicas[step], self.ready[step] = present.sum(axis=1), ready.sum(axis=1)
        self.refused[step] = plant.refused
        most = ready.argmax(axis=1)
        before = self.place[step - 1] if step else NO_PLACE
        self.place[step] = np.where(ready[np.arange(len(most)), most] > 0, most, before)
        self.able[step], self.waiting[step] = served.able, served.waiting
        self.delay_within[step], self.itl_within[step] = served.delay_within, served.itl_within
