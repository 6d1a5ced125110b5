"""Replays a load: the plant serves it step by step while a policy decides; keeps the account."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from inferno_optimizer.replay.account import Account, History, build_account
from inferno_optimizer.replay.fleet import ReplayFleet, SizedFleet
from inferno_optimizer.replay.plant import LeadTime, Plant, StepLoad, StepResult
from inferno_optimizer.replay.policy import Decide, NamedPolicy, OwnWindows, Seen, Setting
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import IntArray

COUNTS = 1
"""Keeps the random counts apart from the random lead times of the same seed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is replayed: the true fleet, its load, and how long replicas take to start.

    `believed` is the fleet as the policies know it; `windows` are those over which its servers are
    measured, None for the usual ones. With `poisson`, policies see counts of random arrivals, as an
    operator does, and not the rates of the trace.
    """

    fleet: ReplayFleet
    believed: ReplayFleet
    trace: Trace
    lead: LeadTime
    drain_s: float = 30.0
    seed: int = 0
    windows: OwnWindows | None = None
    poisson: bool = False


def _ignore_step(_: int) -> None:
    """Tell nothing."""


def replay(
    scenario: Scenario,
    policy: NamedPolicy,
    home: IntArray,
    *,
    tell: Callable[[int], None] = _ignore_step,
) -> Account:
    """Replay a load with a policy, and tell the number of each step that is done.

    `home` is the accelerator of each server, for a policy that does not choose it. Replicas for the
    load of the first step run there at the beginning.
    """
    trace = scenario.trace
    episode = Episode.of(scenario, policy, home)
    history = History.empty(scenario.fleet, trace.steps)
    present = np.zeros(scenario.fleet.shape, dtype=np.int64)
    for step, load in enumerate(iterate_loads(trace)):
        history.record(step, episode.plant, episode.step(load))
        present += episode.plant.present
        tell(step)
    drain_s = 0.0 if policy.hindsight else scenario.drain_s
    return build_account(episode.plant, trace, history, present, drain_s)


class Episode:
    """A plant that serves loads step by step, while a policy decides.

    With a `counter` of random numbers, the policy sees counts of random arrivals.
    """

    def __init__(
        self,
        plant: Plant,
        decide: Decide,
        setting: Setting,
        counter: np.random.Generator | None = None,
    ) -> None:
        self.plant = plant
        self._decide, self._setting, self._counter = decide, setting, counter
        self._wanted = plant.present
        self._steps = 0

    @classmethod
    def of(cls, scenario: Scenario, policy: NamedPolicy, home: IntArray) -> "Episode":
        """The beginning of a scenario, with replicas for its first load.

        A policy of hindsight chooses them, and its replicas serve at once.
        """
        trace = scenario.trace
        setting = Setting(
            scenario.believed, trace.step_s, scenario.lead.mean_s, home, trace, scenario.windows
        )
        lead = LeadTime(0.0) if policy.hindsight else scenario.lead
        random = np.random.default_rng(scenario.seed)
        plant = Plant(scenario.fleet, trace.step_s, lead, random, percentiles=policy.percentiles)
        load, servers = next(iterate_loads(trace)), np.arange(len(home))
        needed = SizedFleet(setting.fleet).at(load.lengths).replicas_for(load.rate)
        plant.begin(setting.fleet.at_home(np.maximum(needed[servers, home], 1), home))
        decide = policy.make(setting)
        if policy.hindsight:
            nothing = StepResult(*(np.zeros(len(home)) for _ in fields(StepResult)))
            plant.begin(cls(plant, decide, setting).decide(load, nothing))
        counter = np.random.default_rng((scenario.seed, COUNTS)) if scenario.poisson else None
        return cls(plant, decide, setting, counter)

    def step(self, load: StepLoad) -> StepResult:
        """Let a step pass, and return how the servers did."""
        self.plant.begin_step()
        self.plant.carry_out(self._wanted)
        served = self.plant.serve(load)
        self._steps += 1
        if self._counter is not None:
            step_s = self._setting.step_s
            load = replace(load, rate=self._counter.poisson(load.rate * step_s) / step_s)
        self._wanted = self.decide(load, served)
        return served

    def decide(self, load: StepLoad, served: StepResult) -> IntArray:
        """The replicas that the policy wants, from what it sees now."""
        plant, passed_s = self.plant, self._steps * self._setting.step_s
        seen = Seen(passed_s, load, served, plant.present, plant.ready.copy())
        wanted = np.maximum(self._decide(seen), 0)
        return wanted if wanted.ndim > 1 else plant.fleet.at_home(wanted, self._setting.home)


def iterate_loads(trace: Trace) -> Iterator[StepLoad]:
    """The loads of the steps of a trace."""
    return map(StepLoad, trace.rate, trace.lengths)
