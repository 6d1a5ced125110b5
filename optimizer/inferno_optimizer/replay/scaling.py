"""Policies that scale each server on one accelerator by its load, or by its requests."""

import numpy as np

from inferno_optimizer.replay.behaviour import Behaviour, BehaviourRules, worst_ratio
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.replay.recent import RecentValues
from inferno_optimizer.replay.sized import SizedFleet, requests_held
from inferno_optimizer.sizing.queueing import FloatArray, IntArray


class Hpa:
    """A HorizontalPodAutoscaler on the requests that run and wait, with its default behaviour.

    replicas = ceil(requests / target) outside of a tolerance of 10 %, and down to the largest
    number of the last 300 s. The target of a replica are the requests that it holds at the
    highest rate at which it meets its targets: the best that somebody who tunes it can find.
    """

    TOLERANCE = 0.1

    def __init__(self, setting: Setting) -> None:
        self._target = requests_per_replica(setting)
        self._behaviour = Behaviour(setting, BehaviourRules())

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present = seen.present.sum(axis=1).astype(np.float64)
        requests = seen.served.running + seen.served.waiting
        ratio = requests / (self._target * np.maximum(present, 1.0))
        inside = np.abs(ratio - 1.0) <= self.TOLERANCE
        wanted = np.where(inside, present, np.ceil(requests / self._target))
        return self._behaviour.follow(wanted, present)


def requests_per_replica(setting: Setting) -> FloatArray:
    """Requests in a replica at home at the highest rate at which it meets the targets."""
    typical = setting.trace.lengths.mean(axis=0)
    held = requests_held(setting.fleet, typical)
    return np.maximum(held[np.arange(len(held)), setting.home], 1.0)


class DynamoSla:
    """Dynamo's planner: replicas for the throughput, and by what is above it.

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
        use = worst_ratio(self._setting.fleet, seen)
        step = np.where(use > 1.0, 1, np.where(use < self.DOWN, -1, 0))
        changed = present + np.where(present > ready, 0, step)
        bounded: IntArray = np.clip(changed, self._base, self._base + self.MOST)
        return bounded
