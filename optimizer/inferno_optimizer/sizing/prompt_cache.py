"""The input tokens that replicas compute, as the others are in their prefix caches.

A replica that is warm finds a part of each prompt in its cache; a replica that is new, or on
another accelerator, finds nothing yet. All replicas of a server share its load equally, so the
prompts of a replica are taken as those of the average one. See `sizing.md`, section "Cached
prompts".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from inferno_optimizer.sizing.cases import Case
from inferno_optimizer.sizing.queueing import ArrayTable, IntArray
from inferno_optimizer.system import Role


@dataclass(frozen=True, slots=True)
class PromptCaches(ArrayTable):
    """Input tokens of a request, those of them that a warm replica has cached, and warm replicas.

    One entry for each row of the pairs; `warm` counts the replicas on the accelerator of the row.
    """

    input_tokens: IntArray
    cached_tokens: IntArray
    warm: IntArray

    @classmethod
    def of(
        cls,
        cases: Sequence[Case],
        case: IntArray,
        accelerator: IntArray,
        positions: Mapping[str, int],
        roles: Sequence[Role],
    ) -> Self:
        """The caches of pairs of a case and an accelerator, given by their positions.

        Replicas of another role than that of the pair do not count: a prompt is computed where it
        is in the cache.
        """
        loads = [c.server.load for c in cases]
        inputs, reused = (
            np.fromiter((getattr(load, name) for load in loads), dtype=np.int64)[case]
            for name in ("input_tokens", "cached_tokens")
        )
        # An engine computes at least the last token of a prompt.
        cached = np.minimum(reused, np.maximum(inputs - 1, 0))
        warm = np.zeros_like(case)
        for row in np.flatnonzero(cached > 0).tolist():
            parts = cases[case[row]].server.current.parts
            warm[row] = sum(
                part.warm_replicas
                for part in parts
                if part.role is roles[row] and positions.get(part.accelerator) == accelerator[row]
            )
        return cls(inputs, cached, warm)

    def computed_tokens(self, replicas: IntArray) -> IntArray:
        """Mean input tokens that a request computes where replicas share the load, rounded up.

        Of more replicas than are warm, the others are cold; of fewer, the cold ones are stopped.
        """
        several = np.maximum(replicas, 1)
        cached: IntArray = self.cached_tokens * np.minimum(self.warm, several) // several
        return self.input_tokens - cached
