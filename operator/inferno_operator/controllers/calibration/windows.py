"""The windows to calibrate with: what tells them, and which of the past are still to be read."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inferno_optimizer.calibration.windows import Window


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A model on an accelerator, by their spec.name, in a namespace."""

    namespace: str
    model: str
    accelerator: str


class WindowSource(Protocol):
    """Tells what replicas did within a minute."""

    async def read(self, at: float | None = None) -> Mapping[Pair, Sequence[Window]]:
        """Return the newest window of each replica that ends at a Unix time [s], or now.

        Raises `InfernoError` if what measures cannot be asked.
        """


PAST_S = 2 * 3600.0
"""How far back windows are read [s]."""

STEP_S = 60.0
"""Time between the ends of two windows [s]."""

AT_A_TIME = 2
"""Past windows of a replica that one cycle reads: each takes two queries, as the newest does."""


@dataclass(slots=True)
class UnreadPast:
    """The ends of the windows that are not read yet, the oldest first."""

    _ends: deque[float] = field(default_factory=deque)
    _begun: bool = False

    def take(self, now: float) -> list[float]:
        """Return the ends of the windows to read in this cycle, Unix time [s]."""
        if not self._begun:
            self._begun = True
            self._ends.extend(list_past_ends(now, PAST_S))
        return [self._ends.popleft() for _ in range(min(AT_A_TIME, len(self._ends)))]


def list_past_ends(now: float, past_s: float) -> list[float]:
    """Return the ends of the windows of the last `past_s` [s], the oldest first, Unix time [s]."""
    return [now - STEP_S * number for number in range(int(past_s // STEP_S), 0, -1)]
