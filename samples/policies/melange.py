"""Melange's mixes: for each server the cheapest replicas of several accelerators, as if alone.

Requests are counted in buckets of their size. The rate of each bucket is cut into slices; an
integer program puts each slice on an accelerator, and buys as many replicas of it as its slices
load [Griggs et al., Mélange: Cost Efficient Large Language Model Serving by Exploiting GPU
Heterogeneity, arXiv:2404.14527, 2024, section 5].
"""

import math
from collections.abc import Sequence

import highspy
import numpy as np

from inferno_optimizer.errors import SolverError
from inferno_optimizer.replay.fleet import SizedFleet
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

SLICES = 8
"""Slices of the rate of a bucket, as in the paper."""

HISTORY_S = 3600.0
"""Time of which the sizes of requests are counted; their rate is that of now [s]."""

ROUNDING = 1e-9
"""Relative excess of a load over whole replicas that is rounding."""


def cheapest_mix(load: FloatArray, cost: FloatArray, fewest: int) -> IntArray:
    """Return the replicas of each accelerator that carry all slices at the least cost.

    Parameters
    ----------
    load
        Replicas that a whole bucket would load on each accelerator, infinite where they cannot
        serve it; shape (buckets, accelerators).
    cost
        That of a replica of each accelerator; shape (accelerators,).
    fewest
        Replicas of all accelerators together at least.

    Returns
    -------
    IntArray
        Shape (accelerators,). A bucket that no accelerator can serve is left out.

    Raises
    ------
    SolverError
        When HiGHS fails.
    """
    load = load[np.isfinite(load).any(axis=1)]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.passModel(_program(load, cost, fewest))
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS finds a mix {solver.getModelStatus().name}")
    bought = np.rint(solver.getSolution().col_value[-len(cost) :])
    return np.asarray(bought, dtype=np.int64)


def _program(load: FloatArray, cost: FloatArray, fewest: int) -> highspy.HighsLp:
    """The program; its columns are the slices by bucket and accelerator, and then the replicas."""
    buckets, accelerators = load.shape
    slices = buckets * accelerators
    able = np.isfinite(load)
    each = np.where(able, load, 0.0) / SLICES * (1.0 - ROUNDING)
    placed = np.kron(np.eye(buckets), np.ones(accelerators))
    loaded = -(each[:, :, None] * np.eye(accelerators)).reshape(slices, accelerators).T
    nothing = np.zeros((buckets, accelerators))
    rows = np.block(
        [
            [placed, nothing],
            [loaded, np.eye(accelerators)],
            [np.zeros((1, slices)), np.ones((1, accelerators))],
        ]
    )
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = rows.shape
    program.col_cost_ = np.concatenate((np.zeros(slices), cost))
    program.col_lower_ = np.zeros(rows.shape[1])
    most = np.where(able, float(SLICES), 0.0).ravel()
    program.col_upper_ = np.concatenate((most, np.full(accelerators, np.inf)))
    whole = np.full(buckets, float(SLICES))
    program.row_lower_ = np.concatenate((whole, np.zeros(accelerators), [float(fewest)]))
    program.row_upper_ = np.concatenate((whole, np.full(accelerators + 1, np.inf)))
    program.integrality_ = [highspy.HighsVarType.kInteger] * rows.shape[1]
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    row, column = np.nonzero(rows)
    matrix.start_ = np.searchsorted(row, np.arange(len(rows) + 1))
    matrix.index_, matrix.value_ = column, rows[row, column]
    return program


def buckets_of(rate: FloatArray, lengths: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Count requests in buckets, whose bounds are powers of two.

    Parameters
    ----------
    rate
        Requests/s in each step; shape (steps,).
    lengths
        Their mean input and output tokens; shape (2, steps).

    Returns
    -------
    tuple[FloatArray, FloatArray]
        The share of the requests in each bucket, and their mean lengths, of shape (2, buckets).
        Where nothing arrives, the newest lengths are all.
    """
    if not rate.any():
        return np.ones(1), lengths[:, -1:]
    lengths, rate = lengths[:, rate > 0], rate[rate > 0]
    _, bucket = np.unique(np.floor(np.log2(1.0 + lengths)), axis=1, return_inverse=True)
    total = np.bincount(bucket, rate)
    sums = np.array([np.bincount(bucket, rate * tokens) for tokens in lengths])
    return total / total.sum(), sums / total


class Melange:
    """The cheapest mix for each server, for the load of now and without any limit of cards.

    Nobody waits with reductions, and servers know nothing of each other, as in the paper. Where no
    accelerator can serve a server, it keeps what it has.
    """

    percentiles = False

    def __init__(self, setting: Setting) -> None:
        self._fleet = setting.fleet
        self._sized = SizedFleet(setting.fleet)
        self._kept = max(1, math.ceil(HISTORY_S / setting.step_s))
        servers = len(setting.fleet.servers)
        self._history = np.zeros((0, 3, servers))
        self._known: list[bytes] = [b""] * servers
        self._wanted = np.zeros(setting.fleet.shape, dtype=np.int64)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas of each server on each accelerator."""
        newest = np.vstack((seen.load.rate, seen.load.lengths))[None]
        self._history = np.concatenate((self._history, newest))[-self._kept :]
        loads = self._loads(seen.load.rate)
        for server, load in enumerate(loads):
            if load.tobytes() != self._known[server]:
                self._known[server] = load.tobytes()
                self._wanted[server] = self._mix(server, load)
        served = np.isfinite(loads.min(axis=(1, 2)))
        return np.where(served[:, None], self._wanted, seen.present)

    def _mix(self, server: int, load: FloatArray) -> IntArray:
        fewest = max(int(self._fleet.least[server]), 1)
        cost = np.where(self._fleet.cards[server] > 0, self._fleet.unit_cost[server], np.inf)
        possible = np.flatnonzero(np.isfinite(cost) & np.isfinite(load).any(axis=0))
        mix = np.zeros(len(cost), dtype=np.int64)
        if possible.size:
            mix[possible] = cheapest_mix(load[:, possible], cost[possible], fewest)
        return mix

    def _loads(self, rate: FloatArray) -> FloatArray:
        """Replicas that each bucket loads; shape (servers, buckets, accelerators).

        Servers with fewer buckets than others have some that load nothing.
        """
        buckets = [buckets_of(own[0], own[1:]) for own in self._history.transpose(2, 1, 0)]
        return np.stack([self._load_of(buckets, place, rate) for place in range(_most(buckets))], 1)

    def _load_of(
        self, found: Sequence[tuple[FloatArray, FloatArray]], place: int, rate: FloatArray
    ) -> FloatArray:
        """What the bucket at a place loads of each server; shape (servers, accelerators)."""
        there = [min(place, len(share) - 1) for share, _ in found]
        lengths = np.array([own[:, at] for (_, own), at in zip(found, there, strict=True)]).T
        share = np.array([own[place] if place < len(own) else 0.0 for own, _ in found])
        sized = self._sized.at(lengths)
        able = sized.max_rate > 0
        replicas = sized.demand(rate) * share[:, None] / np.where(able, sized.max_rate, 1.0)
        return np.where(able, replicas, np.inf)


def _most(found: Sequence[tuple[FloatArray, FloatArray]]) -> int:
    """The number of buckets of the server that has most of them."""
    return max(len(share) for share, _ in found)
