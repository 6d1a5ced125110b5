"""The interface of the calibration controller to what replicas do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        """Return the newest window of each replica.

        Parameters
        ----------
        at
            The time at which the windows end, Unix time [s]; None: now.

        Raises
        ------
        InfernoError
            What measures cannot be asked.
        """
