"""The live ledger: what other policies would have cost under a load, while it is measured.

Each of the policies runs a simulated fleet beside the real one. What is counted of a server are
plain numbers, which somebody may keep and give back, so that the count outlives the process; the
simulated fleet then begins anew with the replicas for the present load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from inferno_optimizer.replay.account import ENOUGH
from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plant import LeadTime, StepLoad
from inferno_optimizer.replay.policies import POLICIES
from inferno_optimizer.replay.replay import Episode, Scenario
from inferno_optimizer.replay.sized import SizedFleet
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.units import SECONDS_PER_HOUR

STATIC_PEAK = "static-peak"
SIMULATED = ("hpa", "keda-slo")
COMPARED = (STATIC_PEAK, *SIMULATED)
"""The policies of the ledger."""

DRAIN_S = 30.0
"""Time for which a replica costs that is taken away [s]."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What was counted of one server, or in one step.

    Attributes
    ----------
    seconds
        Time that was counted [s].
    requests, kept
        Requests that arrived, and those of them in steps that kept the targets.
    paid, planned
        What ran, and what was decided [cents].
    home
        The accelerator that the other policies use.
    peak
        The most replicas that a step needed there.
    cost, kept_by
        What each simulated policy would have cost [cents], and the requests in steps in which it
        would have kept the targets.
    """

    seconds: float = 0.0
    requests: float = 0.0
    kept: float = 0.0
    paid: float = 0.0
    planned: float = 0.0
    home: str = ""
    peak: int = 0
    cost: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    kept_by: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def plus(self, step: "LedgerEntry") -> "LedgerEntry":
        """The sum; the static peak of the whole time is the highest one."""
        return LedgerEntry(
            seconds=self.seconds + step.seconds,
            requests=self.requests + step.requests,
            kept=self.kept + step.kept,
            paid=self.paid + step.paid,
            planned=self.planned + step.planned,
            home=step.home,
            peak=max(self.peak, step.peak),
            cost=_sums(self.cost, step.cost),
            kept_by=_sums(self.kept_by, step.kept_by),
        )


def _sums(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {*one, *other}}


class SimulatedPolicies:
    """The policies that run beside a fleet, with the same cards and the same load.

    Parameters
    ----------
    fleet
        The servers; each policy keeps them at home.
    home
        The accelerator of each server.
    load
        That of the first step, for which each policy has replicas at the beginning.
    step_s, lead_s
        Time between two steps, and until a new replica serves [s].
    """

    def __init__(
        self, fleet: ReplayFleet, home: IntArray, load: StepLoad, step_s: float, lead_s: float
    ) -> None:
        self._fleet, self._home, self._step_s = fleet, home, step_s
        self._sized = SizedFleet(fleet)
        trace = Trace(
            tuple(server.name for server in fleet.servers),
            step_s,
            load.rate[None],
            *(lengths[None] for lengths in load.lengths),
        )
        scenario = Scenario(fleet, fleet, trace, LeadTime(lead_s))
        self._episodes = {name: Episode.of(scenario, POLICIES[name], home) for name in SIMULATED}

    def step(self, load: StepLoad) -> list[LedgerEntry]:
        """Let a step pass, and return what is to be counted of each server besides itself."""
        hours = self._step_s / SECONDS_PER_HOUR
        requests = load.rate * self._step_s
        cost, kept = {}, {}
        for name, episode in self._episodes.items():
            drained = episode.plant.drained.copy()
            served = episode.step(load)
            ended = self._fleet.cost(episode.plant.drained - drained)
            present = self._fleet.cost(episode.plant.present)
            cost[name] = present * hours + ended * DRAIN_S / SECONDS_PER_HOUR
            within = served.delay_within * served.itl_within >= ENOUGH
            kept[name] = np.where(within, requests, 0.0)
        needed = self._sized.at(load.lengths).replicas_for(load.rate)
        return [
            LedgerEntry(
                seconds=self._step_s,
                requests=float(requests[row]),
                home=self._fleet.accelerators[place],
                peak=max(int(needed[row, place]), 1),
                cost={name: float(own[row]) for name, own in cost.items()},
                kept_by={name: float(own[row]) for name, own in kept.items()},
            )
            for row, place in enumerate(self._home.tolist())
        ]


def homes(fleet: ReplayFleet, names: Mapping[str, str]) -> IntArray:
    """The accelerator of each server: the one that is known and on which it can run, else home."""
    places = {name: place for place, name in enumerate(fleet.accelerators)}
    home = fleet.home.copy()
    for row, server in enumerate(fleet.servers):
        place = places.get(names.get(server.name, ""))
        if place is not None and fleet.cards[row, place]:
            home[row] = place
    return home


def counted(before: LedgerEntry, step: LedgerEntry, own: LedgerEntry) -> LedgerEntry:
    """What is counted of a server after a step, with `own`: what it paid, planned and kept."""
    whole = replace(step, paid=own.paid, planned=own.planned, kept=own.kept)
    return before.plus(whole)
