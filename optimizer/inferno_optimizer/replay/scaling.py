"""Policies that scale each server on one accelerator, by formulas that are in use today.

Each sees what its formula reads, and nothing of the other servers. Windows and intervals shorter
than a step of the replay last one step.
"""

import numpy as np

from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.replay.recent import RecentValues
from inferno_optimizer.replay.sized import SizedFleet
from inferno_optimizer.sizing.queueing import FloatArray, IntArray


class Hpa:
    """A HorizontalPodAutoscaler on the requests that run and wait, with its default behaviour.

    replicas = ceil(requests / target) outside of a tolerance of 10 %, and down to the largest
    number of the last 300 s. The target of a replica are the requests that it holds at the
    highest rate at which it meets its targets: the best that somebody who tunes it can find.
    """

    TOLERANCE = 0.1
    WINDOW_S = 300.0

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._target = requests_per_replica(setting)
        self._wanted = RecentValues(self.WINDOW_S, setting.step_s)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present = seen.present.sum(axis=1)
        requests = seen.served.running + seen.served.waiting
        ratio = requests / (self._target * np.maximum(present, 1))
        inside = np.abs(ratio - 1.0) <= self.TOLERANCE
        wanted = np.where(inside, present, np.ceil(requests / self._target))
        self._wanted.add(np.maximum(wanted, np.maximum(self._setting.fleet.least, 1)))
        return np.where(wanted > present, wanted, self._wanted.highest()).astype(np.int64)


def requests_per_replica(setting: Setting) -> FloatArray:
    """Requests in a replica at home at the highest rate at which it meets the targets."""
    typical = setting.trace.lengths.mean(axis=0)
    found = SizedFleet(setting.fleet).at(typical).requests
    return np.maximum(found[np.arange(len(found)), setting.home], 1.0)


class KedaSlo:
    """llm-d's SLO-aware scaling with KEDA: the P90 of TTFT and TPOT against their targets.

    The signal is the mean over 45 s of the larger ratio, at most 2. Above .55 the replicas grow
    with it, less what already starts, by at most 100 % or 4 a minute, if it has been so for 30 s;
    below .40 they fall by one in 120 s to the largest number of the last 180 s.
    See llm-d, guides/workload-autoscaling, README.slo-aware.md (2026-09).
    """

    UP, DOWN, CLAMP = 0.55, 0.40, 2.0
    SIGNAL_S, UP_S, DOWN_S = 45.0, 30.0, 180.0
    BURST, BURST_S, FALL_S = 4, 60.0, 120.0

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        step_s = setting.step_s
        self._signal = RecentValues(self.SIGNAL_S, step_s)
        self._up = RecentValues(self.UP_S, step_s)
        self._down = RecentValues(self.DOWN_S, step_s)
        self._minute = RecentValues(self.BURST_S, step_s)
        self._fall = RecentValues(self.FALL_S, step_s)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present = seen.present.sum(axis=1).astype(np.float64)
        wanted = self._formula(seen, present)
        for memory in (self._up, self._down):
            memory.add(wanted)
        for memory in (self._minute, self._fall):
            memory.add(present)
        before = self._minute.oldest()
        most = before + np.maximum(before, self.BURST)
        least = np.maximum(self._fall.highest() - 1, self._setting.fleet.least)
        up, down = np.minimum(self._up.lowest(), most), np.maximum(self._down.highest(), least)
        grown = np.where(up > present, up, np.minimum(present, down))
        return np.maximum(grown, 1).astype(np.int64)

    def _formula(self, seen: Seen, present: FloatArray) -> FloatArray:
        self._signal.add(self._ratio(seen))
        signal = self._signal.mean()
        ready = seen.ready.sum(axis=1)
        credit = np.where((ready > 0) & (ready < present), ready / np.maximum(present, 1), 1.0)
        up = present + np.ceil(present * (signal * credit / self.UP - 1.0))
        down = present - np.floor(present * (1.0 - signal / self.DOWN))
        wanted = np.where(signal > self.UP, up, np.where(signal < self.DOWN, down, present))
        return np.maximum(wanted, self._setting.fleet.least)

    def _ratio(self, seen: Seen) -> FloatArray:
        """The largest ratio to a target; a target of the wait stands for one of the TTFT."""
        fleet, served = self._setting.fleet, seen.served
        ratios = (
            _of_limit(served.ttft_p90_ms, fleet.ttft_limit),
            _of_limit(served.wait_p90_ms, fleet.wait_limit),
            _of_limit(served.itl_ms, fleet.itl_limit),
        )
        worst = np.minimum(np.max(ratios, axis=0), self.CLAMP)
        return np.where(seen.load.rate > 0, worst, 0.0)


def _of_limit(latency: FloatArray, limit: FloatArray) -> FloatArray:
    """The ratio of a latency to its limit; 0 without a limit."""
    return np.divide(latency, limit, out=np.zeros_like(latency), where=np.isfinite(limit))
