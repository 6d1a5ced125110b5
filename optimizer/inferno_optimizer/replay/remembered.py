"""Results that are remembered, because replays ask for the same ones again and again."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray

Key = tuple[int, ...]


class Remembered:
    """Results by key; when there are more than `most` of them, all are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Key, FloatArray] = {}

    def of(
        self, keys: Sequence[Key], compute: Callable[[IntArray], Iterable[FloatArray]]
    ) -> FloatArray:
        """The results of some keys; `compute` returns those of the keys at some places."""
        if len(self._known) > self._most:
            self._known.clear()
        new = np.flatnonzero([key not in self._known for key in keys])
        if new.size:
            names = [keys[place] for place in new.tolist()]
            self._known.update(zip(names, compute(new), strict=True))
        return np.stack([self._known[key] for key in keys])


def rounded(lengths: FloatArray) -> list[list[int]]:
    """Lengths as the integers that a load has, in the same order."""
    whole: list[list[int]] = np.rint(lengths).astype(np.int64).tolist()
    return whole
