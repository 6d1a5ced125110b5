"""What runs now, as rows of the candidate table, or as it is where no usable row tells.

What runs on an accelerator without a usable row carries an unknown part of the load. To be safe it
counts as carrying all of it, and as serving nothing: its server gives it up for all that its
targets take elsewhere, or for a more important server, and for nothing else.

What runs on several accelerators with usable rows carries the sum of their shares. Its server also
gives it up for one of them that serves as much, so that no move stays half done if the load grows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, KeptReplicas
from inferno_optimizer.system import SaturationPolicy


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
    carried
        Share of what a case needs that what runs carries, at most 1, and 1 where that is unknown;
        shape (cases,).
    """

    rows: IntArray
    replicas: IntArray
    parts: Mapping[int, tuple[KeptReplicas, ...]]
    carried: FloatArray

    @classmethod
    def of(cls, candidates: Candidates) -> "Running":
        """What runs of the cases of a table."""
        rows = _rows(candidates)
        now = np.array([c.server.current.replicas for c in candidates.cases], dtype=np.int64)
        known = rows != NO_ROW
        replicas, mine = np.zeros_like(now), rows[known]
        replicas[known] = np.clip(candidates.running()[mine], 0, candidates.replicas[mine])
        others = np.flatnonzero((now > 0) & ~known)
        carried = np.zeros(len(now))
        carried[known] = replicas[known] / np.maximum(candidates.replicas[mine], 1)
        carried[others] = _carried(candidates, others)
        return cls(rows, replicas, dict(_parts(candidates, others.tolist())), carried)

    def held(self, policy: SaturationPolicy) -> FloatArray:
        """Share of what a case needs that nobody takes from it with a policy; shape (cases,).

        What runs without a usable row is held with Hold alone.
        """
        if policy is SaturationPolicy.HOLD:
            return self.carried
        holds = (self.rows != NO_ROW) & policy.protects_what_runs
        return np.where(holds, self.carried, 0.0)


def _rows(candidates: Candidates) -> IntArray:
    """The usable row of the accelerator that each case runs on; -1 where it runs on no such."""
    catalogue, current = Catalogue(candidates.system), [c.server.current for c in candidates.cases]
    runs_on = np.array([NO_ROW if a.mix else catalogue.place(a) for a in current], np.int64)
    pairs, rows = candidates.pairs, np.full(len(current), NO_ROW)
    running = np.flatnonzero(candidates.usable & (runs_on[pairs.case] == pairs.accelerator))
    rows[pairs.case[running]] = running
    return rows


def _carried(candidates: Candidates, cases: IntArray) -> FloatArray:
    """Share of what cases need that what they run on several accelerators carries.

    It is 1 where one of these has no usable row, and for whatever else runs.
    """
    pairs, place = candidates.pairs, Catalogue(candidates.system).place
    mixes = {
        case: mix for case in cases.tolist() if (mix := candidates.cases[case].server.current.mix)
    }
    mine = np.flatnonzero(candidates.usable & np.isin(pairs.case, [*mixes]))
    keys = zip(pairs.case[mine].tolist(), pairs.accelerator[mine].tolist(), strict=True)
    wanted = dict(zip(keys, candidates.replicas[mine].tolist(), strict=True))
    carried = np.ones(len(cases))
    for index, case in enumerate(cases.tolist()):
        needs = [
            (part.replicas, wanted.get((case, place(part)), 0)) for part in mixes.get(case, ())
        ]
        if needs and all(full for _, full in needs):
            carried[index] = min(sum(replicas / full for replicas, full in needs), 1.0)
    return carried


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
