"""What the day came to, and what other policies would have made of the same requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from inferno_operator.cli.replay import Replayed, Row, replay_policies
from inferno_optimizer.replay.fleet import build_fleet
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.replay import Scenario
from inferno_optimizer.replay.trace import Trace, build_trace
from inferno_optimizer.system import System
from tests.cluster.motion import COSTS, ITL_MS, TTFT_MS, Motion, PodTimes
from tests.day.objects import FASTER, POD_TIMES

POLICIES = ("inferno", "hpa", "keda-slo", "static-peak")
STEP_S = 2.0
"""Time between two decisions of the policies [s]."""

COUNTED_STEPS = 24
"""Steps of the counted load: in shorter ones there would be more chance than load."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one server, or all of them, came to; `cost` is in cents/hour."""

    name: str
    requests: int
    within: int
    cost: float
    replicas: float
    started: int
    changes: int
    moves: int

    @property
    def share(self) -> float:
        """Share of the requests within their targets."""
        return self.within / self.requests if self.requests else 1.0


class Bill:
    """Counts what a motion costs and serves from now on."""

    def __init__(self, motion: Motion) -> None:
        self._motion = motion
        self._before = {name: dict(seen.pod_seconds) for name, seen in motion.seen.items()}
        self._pods = {name: len(seen.pods) for name, seen in motion.seen.items()}

    def outcome(self, name: str) -> Outcome:
        """What a server came to, from its requests that are completed."""
        motion, seen = self._motion, self._motion.seen[name]
        elapsed = motion.elapsed
        good, total = motion.servers[name].within_targets(
            motion.began, motion.began + elapsed, ttft_ms=TTFT_MS, itl_ms=ITL_MS
        )
        before = self._before[name]
        spent = {a: s - before.get(a, 0.0) for a, s in seen.pod_seconds.items()}
        placements = [set(placed) for time, placed in seen.placements if time < elapsed]
        return Outcome(
            name,
            requests=total,
            within=good,
            cost=_cost(spent) / elapsed,
            replicas=sum(spent.values()) / elapsed,
            started=len(seen.pods) - self._pods[name],
            changes=seen.changes(0.0, elapsed),
            moves=sum(a != b for a, b in pairwise(placements)),
        )

    def outcomes(self) -> list[Outcome]:
        own = [self.outcome(name) for name in self._motion.seen]
        return [*own, total_of(own)]


def total_of(own: list[Outcome]) -> Outcome:
    return Outcome(
        "all",
        requests=sum(one.requests for one in own),
        within=sum(one.within for one in own),
        cost=sum(one.cost for one in own),
        replicas=sum(one.replicas for one in own),
        started=sum(one.started for one in own),
        changes=sum(one.changes for one in own),
        moves=sum(one.moves for one in own),
    )


def _cost(seconds: Mapping[str, float]) -> float:
    return sum(COSTS[accelerator] * passed for accelerator, passed in seconds.items())


def counted(motion: Motion, seconds: float, faster: float = FASTER) -> Trace:
    """The load as the engines counted it, on the clock of the policies, which is so much faster."""
    length = seconds / COUNTED_STEPS
    moments = [motion.began + length * step for step in range(COUNTED_STEPS)]
    truths = [
        [server.truth(moment, moment + length) for server in motion.servers.values()]
        for moment in moments
    ]
    rate, told, generated = (
        np.array([[getattr(truth, column) for truth in row] for row in truths])
        for column in ("arrival_rate", "input_tokens", "output_tokens")
    )
    load = build_trace(tuple(motion.servers), length * faster, rate, (told, generated))
    return load.every(load.step_s / round(length / STEP_S))


def compared(
    system: System,
    load: Trace,
    pods: PodTimes = POD_TIMES,
    policies: Sequence[str] = POLICIES,
    faster: float = FASTER,
) -> list[Outcome]:
    """What policies would have made of this load, and with replicas that start as fast."""
    fleet, refused = build_fleet(system)
    assert not refused
    lead = LeadTime(faster * pods.cold_start_s)
    scenario = Scenario(fleet, fleet, load, lead, drain_s=faster * pods.ending_s)
    return [_outcome_of(one, faster) for one in replay_policies(scenario, policies, lambda _: None)]


def _outcome_of(one: Replayed, faster: float) -> Outcome:
    row, hours = Row.of(one, "", slice(None)), one.account.hours
    over_time = one.account.history.replicas
    return Outcome(
        one.policy,
        requests=round(row.requests / faster),
        within=round(row.requests * row.within / faster),
        cost=row.cost / hours,
        replicas=row.replicas,
        started=row.started,
        changes=int(np.count_nonzero(np.diff(over_time, axis=0))),
        moves=row.moves,
    )
