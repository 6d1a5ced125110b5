"""What runs now, as rows of the candidate table, or as it is where no usable row tells.

What runs on an accelerator without a usable row carries an unknown part of the load. To be safe it
counts as carrying all of it, and as serving nothing: its server gives it up for all that its
targets take elsewhere, or for a more important server, and for nothing else.

What runs on several accelerators with usable rows carries the sum of their shares. Its server also
gives it up for one of them that serves as much, so that no move stays half done if the load grows.
Replicas beyond what the server needs are no part of what runs: cold ones, which start or have just
started, are given up first, and warm ones where the others carry all of the need.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, lcm
from operator import mul

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, KeptReplicas, share_kept
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.system import Allocation, SaturationPolicy


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
        use or that misses their targets, or on several ones; each part of the current allocation,
        without the replicas that are known not to be needed.
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
        rows = rows_that_run(candidates)
        now = np.array([c.server.current.replicas for c in candidates.cases], dtype=np.int64)
        known = rows != NO_ROW
        replicas, known_rows = np.zeros_like(now), rows[known]
        replicas[known] = np.clip(
            candidates.running()[known_rows], 0, candidates.replicas[known_rows]
        )
        others = np.flatnonzero((now > 0) & ~known)
        carried = np.zeros(len(now))
        carried[known] = replicas[known] / np.maximum(candidates.replicas[known_rows], 1)
        parts, catalogue = dict[int, tuple[KeptReplicas, ...]](), Catalogue(candidates.system)
        for case, needed in _needed(candidates, catalogue, others):
            parts[case] = tuple(_kept(candidates, catalogue, case, needed))
            carried[case] = share_kept(parts[case])
        return cls(rows, replicas, parts, carried)

    def held(self, policy: SaturationPolicy) -> FloatArray:
        """Share of what a case needs that nobody takes from it with a policy; shape (cases,).

        What runs without a usable row is held with Hold alone.
        """
        if policy is SaturationPolicy.HOLD:
            return self.carried
        holds = (self.rows != NO_ROW) & policy.protects_what_runs
        return np.where(holds, self.carried, 0.0)

    def held_first(self, policy: SaturationPolicy) -> FloatArray:
        """Share of what a case needs that is held before any of its level holds more; (cases,).

        With Hold that is what one replica carries, on average where they differ; else nothing.
        """
        if policy is not SaturationPolicy.HOLD:
            return np.zeros_like(self.carried)
        replicas = self.replicas.copy()
        for case, parts in self.parts.items():
            replicas[case] = sum(part.replicas for part in parts)
        return self.carried / np.maximum(replicas, 1)


def rows_that_run(candidates: Candidates) -> IntArray:
    """The usable row of the accelerator that each case runs on; -1 where it runs on no such."""
    catalogue, current = Catalogue(candidates.system), [c.server.current for c in candidates.cases]
    runs_on = np.array([NO_ROW if a.mix else catalogue.place(a) for a in current], np.int64)
    pairs, rows = candidates.pairs, np.full(len(current), NO_ROW)
    running = np.flatnonzero(candidates.usable & (runs_on[pairs.case] == pairs.accelerator))
    rows[pairs.case[running]] = running
    return rows


@dataclass(frozen=True, slots=True)
class Lot:
    """Replicas that run and stay together, and how often there are as many."""

    parts: tuple[KeptReplicas, ...]
    most: int = 1

    def times(self, count: int) -> tuple[KeptReplicas, ...]:
        """The replicas of so many lots."""
        return tuple(replace(part, replicas=count * part.replicas) for part in self.parts)


def lots_of(parts: tuple[KeptReplicas, ...], params: SolveParams = DEFAULTS) -> list[Lot]:
    """What may stay of what runs: each replica of one part, or a number of each of several.

    The first has all of several parts. Of many replicas only some numbers are tried.
    """
    if len(parts) == 1:
        return [Lot((replace(parts[0], replicas=1),), parts[0].replicas)]
    steps = int(params.lots ** (1 / len(parts))) - 1
    numbers = (
        sorted({ceil(part.replicas * step / steps) for step in range(steps + 1)}, reverse=True)
        for part in parts
    )
    some = (
        tuple(replace(part, replicas=count) for part, count in zip(parts, counts, strict=True))
        for counts in product(*numbers)
    )
    return [Lot(each) for each in some if share_kept(each) > 0]


def _needed(
    candidates: Candidates, catalogue: Catalogue, cases: IntArray
) -> Iterator[tuple[int, list[tuple[int, float]]]]:
    """Cases, and the replicas of each part that they need, with the share that each carries.

    All replicas are needed, and carry all together, where a part has no usable row.
    """
    takes = _replicas_of_mixes(candidates, cases)
    for case in cases.tolist():
        current = candidates.cases[case].server.current
        full = [takes.get((case, catalogue.place(part)), 0) for part in current.mix]
        if full and all(full):
            need = lcm(*full)
            shares = [need // each for each in full]
            counts = _up_to_the_need(current.mix, shares, need)
            yield case, [(n, 1 / each) for n, each in zip(counts, full, strict=True)]
        else:
            replicas = [max(part.replicas, 0) for part in current.parts]
            all_of = [sum(replicas)] * len(replicas) if current.mix else replicas
            yield case, [(n, 1 / max(n_all, 1)) for n, n_all in zip(replicas, all_of, strict=True)]


def _replicas_of_mixes(candidates: Candidates, cases: IntArray) -> Mapping[tuple[int, int], int]:
    """Replicas that the usable rows of cases that run on several accelerators take.

    The keys are the case and the number of the accelerator.
    """
    pairs = candidates.pairs
    mixes = [case for case in cases.tolist() if candidates.cases[case].server.current.mix]
    of_mixes = np.flatnonzero(candidates.usable & np.isin(pairs.case, mixes))
    keys = zip(pairs.case[of_mixes].tolist(), pairs.accelerator[of_mixes].tolist(), strict=True)
    return dict(zip(keys, candidates.replicas[of_mixes].tolist(), strict=True))


def _up_to_the_need(parts: Sequence[Allocation], shares: Sequence[int], need: int) -> list[int]:
    """Replicas of each part, without the cold ones and then the warm ones that are not needed.

    A replica of a part carries its share of the need.
    """
    warm = [part.warm_replicas for part in parts]
    cold = [max(part.replicas, 0) - count for part, count in zip(parts, warm, strict=True)]
    warm = _up_to(need, warm, shares)
    cold = _up_to(need - _load(warm, shares), cold, shares)
    return [sum(both) for both in zip(warm, cold, strict=True)]


def _up_to(need: int, replicas: Sequence[int], shares: Sequence[int]) -> list[int]:
    """Replicas of each part without those beyond the need; the last part gives first."""
    excess, counts = _load(replicas, shares) - need, list(replicas)
    for part in reversed(range(len(counts))):
        freed = min(max(excess // shares[part], 0), counts[part])
        counts[part] -= freed
        excess -= freed * shares[part]
    return counts


def _load(replicas: Sequence[int], shares: Sequence[int]) -> int:
    """What replicas carry together."""
    return sum(map(mul, replicas, shares))


def _kept(
    candidates: Candidates, catalogue: Catalogue, case: int, needed: Sequence[tuple[int, float]]
) -> Iterator[KeptReplicas]:
    """Replicas of the parts of a current allocation; an unknown accelerator has no type."""
    server, types = candidates.cases[case].server, candidates.types
    for part, (replicas, share) in zip(server.current.parts, needed, strict=True):
        name, cards = catalogue.cards_per_replica(server.model, part.accelerator, part.role)
        card_type, cards = (types.index(name), cards) if name in types else (NO_ROW, 0)
        cost = part.cost / max(part.replicas, 1)
        yield KeptReplicas(card_type, cards, replicas, share, cost, part.role)
