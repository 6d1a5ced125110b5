"""What a replica did in a short time, and whether that may be used for a calibration.

A `Window` is one replica in 30 to 60 seconds. A `WindowTable` has the windows of many groups as
columns, because a calibration handles thousands of groups at once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import chain
from math import isfinite, log2, nan
from operator import attrgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.units import MS_PER_SECOND

BoolArray = npt.NDArray[np.bool_]

BURST = 0.25
"""Squared coefficient of variation of the batch that a window may have beyond Poisson's."""


PLAUSIBLE = 1e-6, 1e9
"""Smallest and largest plausible latency, batch and number of tokens."""


HARMLESS = 2.0
"""Stands in for a number of a window that is not used."""

NEWEST = 180
PER_BIN = 10
BINS_PER_OCTAVE = 2
"""Windows that are remembered: the newest, and so many at each size of the batch."""


@dataclass(frozen=True, slots=True)
class Window:
    """One replica in one window.

    Attributes
    ----------
    replica, workload, shape
        The name of the replica, that of its workload, and the hash of the pod template, which
        differs between workloads; "" if unknown.
    end
        The end of the window, Unix time [s].
    itl_ms, intervals
        Mean inter-token latency as measured, for each token, and the number of intervals.
    batch
        Mean batch of a decode step, as a token sees it [requests]; see `batch_at_poisson_arrivals`.
    prefill_ms, prefills
        Mean time from the start of service to the first token, and the number of prefills.
    prefill_batch
        Mean batch of these prefills [requests]; NaN if it is that of the decode steps. An engine
        counts a prefill when the request ends, so the prefills may be older; see `lagged`.
    input_tokens, output_tokens
        Mean tokens of a request: input tokens that were not in a cache, and output tokens.
    preemptions, restarts
        Number of preempted requests, and of counter resets.
    kv_usage
        Largest share of the KV cache in use, 0 to 1; NaN if unknown.
    batch_cov
        Coefficient of variation of the number of running requests; NaN if unknown.
    age_s, served
        Time since the replica became ready, and the requests that it has served.
    cached_tokens
        Mean input tokens of a request that were in a cache, besides `input_tokens`.
    tokens_per_step
        Mean output tokens that a step makes of an answer, more than 1 with speculative decoding.
    """

    end: float
    itl_ms: float
    intervals: float
    batch: float
    prefill_ms: float
    prefills: float
    input_tokens: float
    output_tokens: float
    preemptions: float = 0.0
    restarts: float = 0.0
    kv_usage: float = nan
    batch_cov: float = nan
    age_s: float = float("inf")
    served: float = float("inf")
    prefill_batch: float = nan
    cached_tokens: float = 0.0
    tokens_per_step: float = 1.0
    replica: str = ""
    workload: str = ""
    shape: str = ""

    @property
    def prompt_tokens(self) -> float:
        """Mean tokens of a prompt, cached or not."""
        return self.input_tokens + self.cached_tokens


def batch_at_poisson_arrivals(mean_running: float) -> float:
    """Mean batch that a token sees, from the time average of the running requests.

    A request meets the time average of the others and is one more itself, if arrivals are
    Poisson [Wolff, Poisson arrivals see time averages, Operations Research 30, 1982].
    """
    return mean_running + 1.0


def in_time(windows: Iterable[Window]) -> list[Window]:
    """The windows in order of time."""
    return sorted(windows, key=attrgetter("end"))


def lagged(window: Window, before: Window) -> Window:
    """A window with the batch of its prefills, of which some were in the window before.

    Requests that ended in this window began one service time earlier. So of those that began in
    the window before, a share ended in this one; how many, goes with its running requests.
    """
    length_s = window.end - before.end
    service_s = (window.output_tokens - 1.0) * window.itl_ms / MS_PER_SECOND
    share = min(max(service_s / length_s, 0.0), 1.0)
    earlier, now = share * (before.batch - 1.0), (1.0 - share) * (window.batch - 1.0)
    if not earlier + now > 0:
        return window
    batch = (earlier * before.batch + now * window.batch) / (earlier + now)
    return replace(window, prefill_batch=batch)


class Rejection(StrEnum):
    """Why a window is not used."""

    INVALID = "Invalid"
    """A number is missing, not positive, or implausible."""
    OTHER_SHAPE = "OtherShape"
    """The replica has another pod template than the newest window of its workload."""
    COLD = "Cold"
    """The replica has been ready for too short a time, or has served too few requests."""
    RESTARTED = "Restarted"
    """A counter was reset within the window."""
    PREEMPTED = "Preempted"
    """Requests were preempted: they compute their prefill twice."""
    CACHE_FULL = "CacheFull"
    """The KV cache was full: requests waited for memory, not for the computation."""
    UNSTEADY = "Unsteady"
    """The number of running requests varied much more than random arrivals explain."""
    FEW_TOKENS = "FewTokens"
    """Too few intervals between tokens."""
    FEW_PREFILLS = "FewPrefills"
    """Too few prefills."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a window must have, and how many windows a calibration needs.

    Attributes
    ----------
    rows
        Windows that are needed, weighted by their age.
    steady_rows
        Windows that are enough if they are all close to the lines.
    age_s, served, intervals, prefills
        Least values of a window.
    kv_usage
        Largest share of the KV cache in use.
    """

    rows: float = 30.0
    steady_rows: float = 12.0
    age_s: float = 120.0
    served: float = 20.0
    intervals: float = 500.0
    prefills: float = 10.0
    kv_usage: float = 0.95


LIVE = Requirements()
"""What is asked of windows of replicas that serve users."""

RUNS = Requirements(rows=3, age_s=0, served=0, intervals=0, prefills=0)
"""What is asked of benchmark runs, which are few and chosen."""


def retained(windows: Iterable[Window]) -> list[Window]:
    """The windows to remember, in order of time: the newest, and some at each size of the batch.

    So windows at batches that the replicas have only at times are not forgotten because of many
    at the usual batch. Of windows with too little traffic only the newest few are remembered:
    a quiet night must not displace the day.
    """
    newest_first = sorted(windows, key=attrgetter("end", "replica"), reverse=True)
    sizes: Counter[int | None] = Counter()
    kept, busy = [], 0
    for window in newest_first:
        size = _size(window)
        sizes[size] += 1
        busy += size is not None
        if sizes[size] <= PER_BIN or (size is not None and busy <= NEWEST):
            kept.append(window)
    return kept[::-1]


def _size(window: Window) -> int | None:
    """The bin of a window by its batch; None if it has too little traffic."""
    enough = window.intervals >= LIVE.intervals and window.prefills >= LIVE.prefills
    if not (enough and isfinite(window.batch) and window.batch >= 1.0):
        return None
    return round(BINS_PER_OCTAVE * log2(window.batch))


_NUMBERS = tuple(field.name for field in fields(Window) if field.type is float)
_of = attrgetter(*_NUMBERS)


@dataclass(frozen=True, slots=True)
class WindowTable:
    """Windows of many groups, in order of time; every array has the shape (groups, windows).

    Groups have different lengths: `present` is False beyond the end of a group, where numbers
    are NaN. `is_newest_shape` says whether a window has the pod template of the newest window of
    its workload.
    """

    end: FloatArray
    itl_ms: FloatArray
    intervals: FloatArray
    batch: FloatArray
    prefill_ms: FloatArray
    prefills: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    preemptions: FloatArray
    restarts: FloatArray
    kv_usage: FloatArray
    batch_cov: FloatArray
    age_s: FloatArray
    served: FloatArray
    prefill_batch: FloatArray
    cached_tokens: FloatArray
    tokens_per_step: FloatArray
    is_newest_shape: BoolArray
    present: BoolArray

    @classmethod
    def of(cls, groups: Sequence[Iterable[Window]]) -> Self:
        """The windows of each group, sorted by time."""
        listed = [in_time(group) for group in groups]
        lengths = np.array([len(group) for group in listed], dtype=np.int64)
        flat = list(chain.from_iterable(listed))
        present = np.arange(max(lengths, default=0)) < lengths[:, None]
        numbers = np.fromiter(chain.from_iterable(map(_of, flat)), np.float64)
        newest = list(chain.from_iterable(map(_has_newest_shape, listed)))
        columns = zip(_NUMBERS, numbers.reshape(-1, len(_NUMBERS)).T, strict=True)
        padded = {name: _padded(column, present) for name, column in columns}
        padded["is_newest_shape"] = _padded(
            np.array(newest, dtype=np.bool_), present, missing=False
        )
        return cls(**padded, present=present)

    def only(self, used: BoolArray) -> Self:
        """The table with harmless numbers in the windows that are not used."""
        columns = {name: np.where(used, getattr(self, name), HARMLESS) for name in _NUMBERS}
        return replace(self, **columns)

    def batch_of_prefills(self) -> FloatArray:
        """Mean batch of the prefills; that of the decode steps if nothing else is known."""
        plausible = (self.prefill_batch >= 1.0) & (self.prefill_batch <= PLAUSIBLE[1])
        return np.where(plausible, self.prefill_batch, self.batch)

    def take(self, groups: IntArray) -> Self:
        """The table of some of the groups."""
        return type(self)(*(getattr(self, field.name)[groups] for field in fields(self)))


def _has_newest_shape(windows: Sequence[Window]) -> Iterator[bool]:
    """Whether each of some windows in order of time has the newest template of its workload."""
    newest = {window.workload: window.shape for window in windows}
    return (window.shape == newest[window.workload] for window in windows)


def _padded(column: npt.NDArray[Any], present: BoolArray, missing: float = nan) -> npt.NDArray[Any]:
    padded = np.full(present.shape, missing, dtype=column.dtype)
    padded[present] = column
    return padded


def rejections(table: WindowTable, requirements: Requirements) -> IntArray:
    """The first rule that each window breaks: its number in `Rejection`, or -1 if none.

    Returns
    -------
    IntArray
        Shape (groups, windows); -1 also where no window is present.
    """
    broken = _broken(table, requirements)
    first = np.full(table.present.shape, -1, dtype=np.int64)
    for number, rejection in reversed(list(enumerate(Rejection))):
        first[broken[rejection] & table.present] = number
    return first


def _broken(table: WindowTable, needed: Requirements) -> dict[Rejection, BoolArray]:
    needs = (table.itl_ms, table.batch, table.prefill_ms, table.input_tokens)
    numbers = np.stack([*needs, table.output_tokens - 1.0])
    plausible = (numbers >= PLAUSIBLE[0]) & (numbers <= PLAUSIBLE[1])
    steady = np.sqrt(1.0 / np.maximum(table.batch - 1.0, 1.0) + BURST)
    return {
        Rejection.INVALID: ~(plausible.all(axis=0) & (table.batch >= 1.0)),
        Rejection.OTHER_SHAPE: ~table.is_newest_shape,
        Rejection.COLD: (table.age_s < needed.age_s) | (table.served < needed.served),
        Rejection.RESTARTED: table.restarts > 0,
        Rejection.PREEMPTED: table.preemptions > 0,
        Rejection.CACHE_FULL: table.kv_usage >= needed.kv_usage,
        Rejection.UNSTEADY: table.batch_cov > steady,
        Rejection.FEW_TOKENS: table.intervals < needed.intervals,
        Rejection.FEW_PREFILLS: table.prefills < needed.prefills,
    }


def judged(
    windows: Iterable[Window], requirements: Requirements
) -> list[tuple[Window, Rejection | None]]:
    """Each window of one group in order of time, and why it is not used, if so."""
    in_order = in_time(windows)
    reasons = list(Rejection)
    codes = rejections(WindowTable.of([in_order]), requirements)[0].tolist()
    return [
        (window, None if code < 0 else reasons[code])
        for window, code in zip(in_order, codes, strict=True)
    ]
