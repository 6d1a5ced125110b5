"""How an autoscaler follows its formula: windows of stabilization, and limits of the change."""

import math
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.replay.recent import RecentValues
from inferno_optimizer.sizing.queueing import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class BehaviourRules:
    """The behaviour of a HorizontalPodAutoscaler; times in seconds.

    Attributes
    ----------
    up_s, down_s
        Windows: up to the least, down to the most that was wanted in them.
    rise, rise_share, rise_s
        The most replicas that are added in a period: a number, or a share if that is more.
    fall, fall_s
        The most replicas that are taken away in a period.
    """

    up_s: float = 0.0
    down_s: float = 300.0
    rise: float = 4.0
    rise_share: float = 1.0
    rise_s: float = 15.0
    fall: float = math.inf
    fall_s: float = 15.0


class Behaviour:
    """Follows what a formula wants for each server, at home."""

    def __init__(self, setting: Setting, rules: BehaviourRules) -> None:
        self._rules = rules
        self._least = np.maximum(setting.fleet.least, 1)
        step_s = setting.step_s
        self._up = RecentValues(rules.up_s, step_s)
        self._down = RecentValues(rules.down_s, step_s)
        self._before_rise = RecentValues(rules.rise_s, step_s)
        self._before_fall = RecentValues(rules.fall_s, step_s)

    def follow(self, wanted: FloatArray, present: FloatArray) -> IntArray:
        """The replicas after a step, from those that are wanted and those that there are."""
        for recent in (self._up, self._down):
            recent.add(wanted)
        for recent in (self._before_rise, self._before_fall):
            recent.add(present)
        before, rules = self._before_rise.oldest(), self._rules
        most = before + np.maximum(before * rules.rise_share, rules.rise)
        fewest = self._before_fall.highest() - rules.fall
        up = np.minimum(self._up.lowest(), most)
        down = np.maximum(self._down.highest(), fewest)
        followed = np.where(up > present, up, np.minimum(present, down))
        return np.maximum(followed, self._least).astype(np.int64)


def worst_ratio(fleet: ReplayFleet, seen: Seen) -> FloatArray:
    """The largest ratio of a latency to its target; 0 where nothing arrives.

    The P90 of TTFT and wait, and the mean ITL: tokens of all requests take about as long.
    """
    served = seen.served
    ratios = (
        _of_limit(served.ttft_p90_ms, fleet.ttft_limit),
        _of_limit(served.wait_p90_ms, fleet.wait_limit),
        _of_limit(served.itl_ms, fleet.itl_limit),
    )
    return np.where(seen.load.rate > 0, np.max(ratios, axis=0), 0.0)


def _of_limit(latency: FloatArray, limit: FloatArray) -> FloatArray:
    """The ratio of a latency to its limit; 0 without a limit."""
    return np.divide(latency, limit, out=np.zeros_like(latency), where=np.isfinite(limit))
