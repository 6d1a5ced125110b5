"""What runs now, as rows of the candidate table, or as it is where no usable row tells.

What runs on an accelerator without a usable row carries an unknown part of the load. To be safe it
counts as carrying all of it, and as serving nothing: its server gives it up for all that its
targets take elsewhere, or for a more important server, and for nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, KeptReplicas


@dataclass(frozen=True, slots=True)
class Running:
    """What runs of each case.

    Attributes
    ----------
    rows, replicas
        The usable row of the accelerator that a case runs on, and how many of the replicas that
        the row takes run already; arrays of shape (cases,), -1 and 0 where there is none.
    parts
        What runs of the cases that run without a usable row: on an accelerator that they may not
        use or that misses their targets, or on several ones.
    """

    rows: IntArray
    replicas: IntArray
    parts: Mapping[int, tuple[KeptReplicas, ...]]

    @classmethod
    def of(cls, candidates: Candidates) -> "Running":
        """What runs of the cases of a table."""
        rows = _rows(candidates)
        now = np.array([c.server.current.replicas for c in candidates.cases], dtype=np.int64)
        known = rows != NO_ROW
        replicas, mine = np.zeros_like(now), rows[known]
        replicas[known] = np.clip(candidates.running()[mine], 0, candidates.replicas[mine])
        others = np.flatnonzero((now > 0) & ~known).tolist()
        return cls(rows, replicas, dict(_parts(candidates, others)))


def _rows(candidates: Candidates) -> IntArray:
    """The usable row of the accelerator that each case runs on; -1 where it runs on no such."""
    catalogue, current = Catalogue(candidates.system), [c.server.current for c in candidates.cases]
    runs_on = np.array([NO_ROW if a.mix else catalogue.place(a) for a in current], np.int64)
    pairs, rows = candidates.pairs, np.full(len(current), NO_ROW)
    running = np.flatnonzero(candidates.usable & (runs_on[pairs.case] == pairs.accelerator))
    rows[pairs.case[running]] = running
    return rows


def _parts(
    candidates: Candidates, cases: Iterable[int]
) -> Iterable[tuple[int, tuple[KeptReplicas, ...]]]:
    """The parts of the current allocations of some cases; an unknown accelerator has no type."""
    catalogue, types = Catalogue(candidates.system), candidates.types
    for case in cases:
        server = candidates.cases[case].server
        parts = []
        for part in server.current.parts:
            card_type, cards = catalogue.cards_per_replica(
                server.model, part.accelerator, part.role
            )
            if card_type in types:
                parts.append(KeptReplicas(types.index(card_type), cards, max(part.replicas, 0)))
            else:
                parts.append(KeptReplicas(NO_ROW, 0, part.replicas))
        yield case, tuple(parts)
