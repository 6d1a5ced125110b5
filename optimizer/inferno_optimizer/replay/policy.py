"""What a policy is: a function from what it may see to the replicas that it wants."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plant import StepLoad, StepResult
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Seen:
    """What a policy may see at the end of a step, `time_s` after the beginning [s].

    `load` is what arrived in the step, and `served` how the servers did. `present` are the replicas
    that there are, and `ready` those of them that serve, of shape (servers, accelerators).
    """

    time_s: float
    load: StepLoad
    served: StepResult
    present: IntArray
    ready: IntArray


@dataclass(frozen=True, slots=True)
class OwnWindows:
    """The windows of rates that servers name [s]; NaN where one names none, shape (servers,)."""

    short_s: FloatArray
    long_s: FloatArray


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy knows beforehand.

    The `fleet` has the performance that it believes in. It decides every `step_s`, and a new
    replica serves after `lead_s` in the mean [s]. `home` is the accelerator of each server, for a
    policy that does not choose it; `trace` is the whole load, for policies of hindsight only.
    Servers are measured over `windows`, None for the usual ones.
    """

    fleet: ReplayFleet
    step_s: float
    lead_s: float
    home: IntArray
    trace: Trace
    windows: OwnWindows | None = None


Decide = Callable[[Seen], IntArray]
"""Returns the replicas that are wanted: of shape (servers, accelerators), or (servers,) at home."""

Policy = Callable[[Setting], Decide]
"""Makes the function that decides; it is made anew for each replay and may remember."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, and what it needs.

    A policy with `hindsight` knows the whole load: it also decides how a replay begins, and its
    replicas serve at once. Without `percentiles` it sees none, and the replay is faster.
    """

    name: str
    make: Policy
    hindsight: bool = False
    percentiles: bool = True


class RecentValues:
    """The newest values over a window of time, in a ring; all have the same shape."""

    def __init__(self, window_s: float, step_s: float) -> None:
        self._size = max(1, math.ceil(window_s / step_s))
        self._added = 0
        self._ring = np.zeros((self._size, 0))

    def add(self, value: FloatArray) -> None:
        """Remember a value, and forget what is too old."""
        if not self._added:
            self._ring = np.zeros((self._size, *value.shape))
        self._ring[self._added % self._size] = value
        self._added += 1

    @property
    def _known(self) -> FloatArray:
        return self._ring[: self._added] if self._added < self._size else self._ring

    def newest(self) -> FloatArray:
        """The value that was added last."""
        newest: FloatArray = self._ring[(self._added - 1) % self._size].copy()
        return newest

    def mean(self) -> FloatArray:
        """Mean of the values."""
        result: FloatArray = self._known.mean(axis=0)
        return result

    def highest(self) -> FloatArray:
        """Largest of the values."""
        result: FloatArray = self._known.max(axis=0)
        return result

    def lowest(self) -> FloatArray:
        """Smallest of the values."""
        result: FloatArray = self._known.min(axis=0)
        return result

    def oldest(self) -> FloatArray:
        """The value at the beginning of the window."""
        first = 0 if self._added < self._size else self._added % self._size
        oldest: FloatArray = self._ring[first].copy()
        return oldest


class RecentMeans:
    """The means of the values that come every `step_s`, each of the last axis over its own window.

    All times in seconds.
    """

    def __init__(self, window_s: FloatArray, step_s: float) -> None:
        self._window_s = window_s
        self._recent = {each: RecentValues(each, step_s) for each in sorted(set(window_s.tolist()))}

    def add(self, value: FloatArray) -> None:
        """Remember a value, and forget what is too old."""
        for recent in self._recent.values():
            recent.add(value)

    def mean(self) -> FloatArray:
        """Means of the values."""
        (_, means), *others = ((each, recent.mean()) for each, recent in self._recent.items())
        for each, other in others:
            means = np.where(self._window_s == each, other, means)
        return means
