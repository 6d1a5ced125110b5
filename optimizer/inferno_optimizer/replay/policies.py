"""The policies by their names, and a HorizontalPodAutoscaler for each server."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet, count_requests_held
from inferno_optimizer.replay.hindsight import Clairvoyant, StaticPeak
from inferno_optimizer.replay.planning import Planner, PlanningRules
from inferno_optimizer.replay.policy import NamedPolicy, RecentValues, Seen, Setting
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


def find_worst_ratio(fleet: ReplayFleet, seen: Seen) -> FloatArray:
    """The largest ratio of a latency to its target; 0 where nothing arrives.

    The P90 of TTFT and wait, and the mean ITL: tokens of all requests take about as long.
    """
    served = seen.served
    ratios = (
        _divide_by_limit(served.ttft_p90_ms, fleet.ttft_limit),
        _divide_by_limit(served.wait_p90_ms, fleet.wait_limit),
        _divide_by_limit(served.itl_ms, fleet.itl_limit),
    )
    return np.where(seen.load.rate > 0, np.max(ratios, axis=0), 0.0)


def _divide_by_limit(latency: FloatArray, limit: FloatArray) -> FloatArray:
    """The ratio of a latency to its limit; 0 without a limit."""
    return np.divide(latency, limit, out=np.zeros_like(latency), where=np.isfinite(limit))


class Hpa:
    """A HorizontalPodAutoscaler on the requests that run and wait, with its default behaviour.

    replicas = ceil(requests / target) outside of a tolerance of 10 %, and down to the largest
    number of the last 300 s. The target of a replica are the requests that it holds at the
    highest rate at which it meets its targets: the best that somebody who tunes it can find.
    """

    TOLERANCE = 0.1

    def __init__(self, setting: Setting) -> None:
        typical = setting.trace.lengths.mean(axis=0)
        held = count_requests_held(setting.fleet, typical)
        self._target = np.maximum(held[np.arange(len(held)), setting.home], 1.0)
        self._behaviour = Behaviour(setting, BehaviourRules())

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present = seen.present.sum(axis=1).astype(np.float64)
        requests = seen.served.running + seen.served.waiting
        ratio = requests / (self._target * np.maximum(present, 1.0))
        inside = np.abs(ratio - 1.0) <= self.TOLERANCE
        wanted = np.where(inside, present, np.ceil(requests / self._target))
        return self._behaviour.follow(wanted, present)


BOUND = NamedPolicy("clairvoyant", Clairvoyant, hindsight=True, percentiles=False)
"""What the others are measured against."""

REACTIVE = PlanningRules(ahead=False, short_s=30.0)

CALIBRATED = PlanningRules(calibrates=True)

UNCORRECTED = PlanningRules(corrects=False)

POLICIES: Mapping[str, NamedPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            NamedPolicy("inferno", partial(Planner, PlanningRules()), percentiles=False),
            NamedPolicy("inferno-calibrated", partial(Planner, CALIBRATED), percentiles=False),
            NamedPolicy(
                "inferno-exact", partial(Planner, PlanningRules(exact=True)), percentiles=False
            ),
            NamedPolicy("inferno-reactive", partial(Planner, REACTIVE), percentiles=False),
            NamedPolicy("inferno-uncorrected", partial(Planner, UNCORRECTED), percentiles=False),
            NamedPolicy("hpa", Hpa, percentiles=False),
            NamedPolicy("static-peak", StaticPeak, hindsight=True, percentiles=False),
            BOUND,
        )
    }
)
