"""A HorizontalPodAutoscaler for each server, on one accelerator."""

import numpy as np

from inferno_optimizer.replay.behaviour import Behaviour, BehaviourRules
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.replay.sized import requests_held
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
