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


class Windows(Protocol):
    """Tells what replicas did in the last minute."""

    async def read(self) -> Mapping[Pair, Sequence[Window]]:
        """Return the newest window of each replica.

        Raises
        ------
        InfernoError
            What measures cannot be asked.
        """
