"""Replays a load: the plant serves it step by step while a policy decides; keeps the account."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from inferno_optimizer.replay.account import Account, Recorder
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
    """Replay a load with a policy.

    Parameters
    ----------
    scenario
        What is replayed.
    policy
        Who decides.
    home
        The accelerator of each server, for a policy that does not choose it. Replicas for the
        load of the first step run there at the beginning.
    tell
        Called with the number of each step that is done.
    """
    trace = scenario.trace
    episode = Episode.of(scenario, policy, home)
    recorder = Recorder.of(scenario.fleet, trace, 0.0 if policy.hindsight else scenario.drain_s)
    for step, load in enumerate(iterate_loads(trace)):
        recorder.record(step, episode.plant, episode.step(load))
        tell(step)
    return recorder.account(episode.plant)


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
        plant.begin(_size_first_step(setting))
        decide = policy.make(setting)
        if policy.hindsight:
            before = cls(plant, decide, setting)
            plant.begin(before.decide(next(iterate_loads(trace)), _make_empty_result(plant)))
        counter = np.random.default_rng((scenario.seed, COUNTS)) if scenario.poisson else None
        return cls(plant, decide, setting, counter)

    def step(self, load: StepLoad) -> StepResult:
        """Let a step pass, and return how the servers did."""
        self.plant.begin_step()
        self.plant.carry_out(self._wanted)
        served = self.plant.serve(load)
        self._steps += 1
        self._wanted = self.decide(self._count_arrivals(load), served)
        return served

    def _count_arrivals(self, load: StepLoad) -> StepLoad:
        """The load of a step, as a policy sees it."""
        if self._counter is None:
            return load
        step_s = self._setting.step_s
        return replace(load, rate=self._counter.poisson(load.rate * step_s) / step_s)

    def decide(self, load: StepLoad, served: StepResult) -> IntArray:
        """The replicas that the policy wants, from what it sees now."""
        plant, passed_s = self.plant, self._steps * self._setting.step_s
        seen = Seen(passed_s, load, served, plant.present, plant.ready.copy())
        return _build_wanted_matrix(self._decide(seen), self._setting)


def iterate_loads(trace: Trace) -> Iterator[StepLoad]:
    """The loads of the steps of a trace."""
    return map(StepLoad, trace.rate, trace.lengths)


def _size_first_step(setting: Setting) -> IntArray:
    """Replicas at home for the load of the first step."""
    load = next(iterate_loads(setting.trace))
    needed = SizedFleet(setting.fleet).at(load.lengths).replicas_for(load.rate)
    at_home = needed[np.arange(len(needed)), setting.home]
    return setting.fleet.at_home(np.maximum(at_home, 1), setting.home)


def _make_empty_result(plant: Plant) -> StepResult:
    zeros = np.zeros(len(plant.fleet.servers))
    return StepResult(*(zeros for _ in fields(StepResult)))


def _build_wanted_matrix(wanted: IntArray, setting: Setting) -> IntArray:
    """The wanted replicas as a matrix."""
    whole = np.maximum(wanted, 0)
    return whole if whole.ndim > 1 else setting.fleet.at_home(whole, setting.home)
