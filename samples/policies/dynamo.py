"""Dynamo's planner: replicas for the throughput, and by what is above it."""

import numpy as np

from inferno_optimizer.replay.fleet import SizedFleet
from inferno_optimizer.replay.policies import find_worst_ratio
from inferno_optimizer.replay.policy import RecentValues, Seen, Setting
from inferno_optimizer.sizing.queueing import IntArray


class DynamoSla:
    """The replicas for the forecast load, and one more or less by the latencies.

    Every 180 s as many as carry the mean load of the last 180 s within the targets (its constant
    forecast). In between one more where a latency is above its target, up to 8 above that number,
    and one less where all are below .8 of theirs, while none starts.
    """

    INTERVAL_S, MOST, DOWN = 180.0, 8, 0.8

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._sized = SizedFleet(setting.fleet)
        self._load = RecentValues(self.INTERVAL_S, setting.step_s)
        self._base = np.maximum(setting.fleet.least, 1)
        self._due_s = 0.0

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        self._load.add(seen.load.rate)
        present, ready = seen.present.sum(axis=1), seen.ready.sum(axis=1)
        if seen.time_s >= self._due_s:
            self._due_s = seen.time_s + self.INTERVAL_S
            needed = self._sized.at(seen.load.lengths).replicas_for(self._load.mean())
            at_home = needed[np.arange(len(needed)), self._setting.home]
            self._base = np.maximum(at_home, np.maximum(self._setting.fleet.least, 1))
        use = find_worst_ratio(self._setting.fleet, seen)
        step = np.where(use > 1.0, 1, np.where(use < self.DOWN, -1, 0))
        changed = present + np.where(present > ready, 0, step)
        bounded: IntArray = np.clip(changed, self._base, self._base + self.MOST)
        return bounded
