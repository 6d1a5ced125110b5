"""The formulas that llm-d scales with since its own autoscaler is deprecated (September 2026).

Each scales one server by metrics of the endpoint picker and of the engines, which KEDA reads. See
llm-d, guides/workload-autoscaling: README.slo-aware.md, keda-epp, keda-epp-token-aware. Windows and
periods shorter than a step of the replay last one step.
"""

import numpy as np

from inferno_optimizer.replay.plant import FIRST, Curves
from inferno_optimizer.replay.policies import Behaviour, BehaviourRules, find_worst_ratio
from inferno_optimizer.replay.policy import RecentValues, Seen, Setting
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.units import MS_PER_SECOND


class KedaSlo:
    """The P90 of TTFT and TPOT against their targets.

    The signal is the mean over 45 s of the larger ratio, at most 2. Above .55 the replicas grow
    with it, less what already starts, by at most 100 % or 4 a minute, if it has been so for 30 s;
    below .40 they fall by one in 120 s to the largest number of the last 180 s.
    """

    UP, DOWN, CLAMP, SIGNAL_S = 0.55, 0.40, 2.0, 45.0
    RULES = BehaviourRules(up_s=30.0, down_s=180.0, rise_s=60.0, fall=1.0, fall_s=120.0)

    def __init__(self, setting: Setting) -> None:
        self._fleet = setting.fleet
        self._signal = RecentValues(self.SIGNAL_S, setting.step_s)
        self._behaviour = Behaviour(setting, self.RULES)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        self._signal.add(np.minimum(find_worst_ratio(self._fleet, seen), self.CLAMP))
        signal, present, ready = self._signal.mean(), *counts(seen)
        starts = (ready > 0) & (ready < present)
        credit = np.where(starts, ready / np.maximum(present, 1.0), 1.0)
        up = present + np.ceil(present * (signal * credit / self.UP - 1.0))
        down = present - np.floor(present * (1.0 - signal / self.DOWN))
        wanted = np.where(signal > self.UP, up, np.where(signal < self.DOWN, down, present))
        return self._behaviour.follow(np.maximum(wanted, self._fleet.least), present)


def counts(seen: Seen) -> tuple[FloatArray, FloatArray]:
    """Replicas of each server: those that there are, and those that serve."""
    return seen.present.sum(axis=1).astype(np.float64), seen.ready.sum(axis=1).astype(np.float64)


class KedaQueue:
    """The larger of waiting requests, and of running requests divided by 16.

    Up and down after 300 s in which it was so.
    """

    percentiles = False
    RUNNING = 16.0
    RULES = BehaviourRules(up_s=300.0, rise=0.0)
    GUARDED = False

    def __init__(self, setting: Setting) -> None:
        self._behaviour = Behaviour(setting, self.RULES)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present, ready = counts(seen)
        demand = np.maximum(seen.served.waiting, seen.served.running / self.RUNNING)
        rest = np.maximum(demand - (present - ready), present)
        less = self.GUARDED & (demand > present)
        return self._behaviour.follow(np.ceil(np.where(less, rest, demand)), present)


class KedaQueueGuard(KedaQueue):
    """The same, up at once but less what already starts; down after 300 s."""

    RULES = BehaviourRules(rise=0.0)
    GUARDED = True


class KedaSaturation:
    """One replica more or less by what the replicas have to spare.

    More where less than .10 of the KV cache below .80, or fewer than 3 requests of the queue below
    5 are left on average, and none starts; less where both would be left without one.
    """

    percentiles = False
    CACHE, QUEUE, SPARE_CACHE, SPARE_QUEUE = 0.80, 5.0, 0.10, 3.0

    def __init__(self, setting: Setting) -> None:
        self._behaviour = Behaviour(setting, BehaviourRules())

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present, ready = counts(seen)
        served, starts = seen.served, present > ready
        tight = self._tight(served.batch_use, served.waiting, ready)
        tighter = self._tight(served.batch_use, served.waiting, ready - 1.0)
        change = np.where(tight & ~starts, 1.0, np.where(tighter | starts, 0.0, -1.0))
        return self._behaviour.follow(present + change, present)

    def _tight(
        self, batch_use: FloatArray, waiting: FloatArray, ready: FloatArray
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether so many replicas have too little to spare."""
        some = np.maximum(ready, 1.0)
        cache = self.CACHE - batch_use / some < self.SPARE_CACHE
        queue = self.QUEUE - waiting / some < self.SPARE_QUEUE
        return np.asarray(cache | queue | (ready < 1.0), dtype=np.bool_)


class KedaToken:
    """The larger of the prefill that waits [1.5 s of a replica], and of KV caches in use [.8].

    At most one replica more in 180 s, and one less in 300 s after 300 s in which it was so. A
    prefill takes as long as that of a request alone.
    """

    percentiles = False
    PREFILL_S, CACHE = 1.5, 0.8
    RULES = BehaviourRules(rise=1.0, rise_share=0.0, rise_s=180.0, fall=1.0, fall_s=300.0)

    def __init__(self, setting: Setting) -> None:
        self._home = setting.home
        self._curves = Curves(setting.fleet)
        self._behaviour = Behaviour(setting, self.RULES)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        servers = np.arange(len(self._home))
        self._curves.ask(seen.load.lengths, servers, self._home)
        alone_s = self._curves.table[servers, self._home, FIRST, 0] / MS_PER_SECOND
        in_prefill = seen.load.rate * alone_s
        prefill = (seen.served.waiting + in_prefill) * alone_s / self.PREFILL_S
        wanted = np.ceil(np.maximum(prefill, seen.served.batch_use / self.CACHE))
        return self._behaviour.follow(wanted, seen.present.sum(axis=1).astype(np.float64))
