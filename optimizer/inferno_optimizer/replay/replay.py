"""Replays a load: the plant serves it step by step while a policy decides; keeps the account."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from inferno_optimizer.replay.account import Account, Recorder
from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plant import LeadTime, Plant, StepLoad, StepResult
from inferno_optimizer.replay.policy import NamedPolicy, Seen, Setting
from inferno_optimizer.replay.sized import SizedFleet
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import IntArray


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is replayed: the true fleet, its load, and how long replicas take to start.

    `believed` is the fleet as the policies know it.
    """

    fleet: ReplayFleet
    believed: ReplayFleet
    trace: Trace
    lead: LeadTime
    drain_s: float = 30.0
    seed: int = 0


def _silent(_: int) -> None:
    """Tell nothing."""


def replay(
    scenario: Scenario,
    policy: NamedPolicy,
    home: IntArray,
    *,
    tell: Callable[[int], None] = _silent,
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
    setting = Setting(scenario.believed, trace.step_s, scenario.lead.mean_s, home, trace)
    decide = policy.make(setting)
    lead = LeadTime(0.0) if policy.hindsight else scenario.lead
    random = np.random.default_rng(scenario.seed)
    plant = Plant(scenario.fleet, trace.step_s, lead, random, percentiles=policy.percentiles)
    plant.begin(_first(setting))
    recorder = Recorder.of(scenario.fleet, trace, 0.0 if policy.hindsight else scenario.drain_s)
    if policy.hindsight:
        first = next(loads_of(trace))
        plant.begin(_matrix(decide(_seen(plant, -1, trace, first, _nothing(plant))), setting))
    wanted = plant.present
    for step, load in enumerate(loads_of(trace)):
        plant.carry_out(wanted)
        plant.begin_step()
        served = plant.serve(load)
        recorder.record(step, plant, served)
        seen = _seen(plant, step, trace, load, served)
        wanted = _matrix(decide(seen), setting)
        tell(step)
    return recorder.account(plant)


def loads_of(trace: Trace) -> Iterator[StepLoad]:
    """The loads of the steps of a trace."""
    return map(StepLoad, trace.rate, trace.lengths)


def _first(setting: Setting) -> IntArray:
    """Replicas at home for the load of the first step."""
    load = next(loads_of(setting.trace))
    needed = SizedFleet(setting.fleet).at(load.lengths).replicas_for(load.rate)
    at_home = needed[np.arange(len(needed)), setting.home]
    return setting.fleet.at_home(np.maximum(at_home, 1), setting.home)


def _nothing(plant: Plant) -> StepResult:
    zeros = np.zeros(len(plant.fleet.servers))
    return StepResult(*(zeros for _ in fields(StepResult)))


def _seen(plant: Plant, step: int, trace: Trace, load: StepLoad, served: StepResult) -> Seen:
    return Seen((step + 1) * trace.step_s, load, served, plant.present, plant.ready.copy())


def _matrix(wanted: IntArray, setting: Setting) -> IntArray:
    """The wanted replicas as a matrix."""
    whole = np.maximum(wanted, 0)
    return whole if whole.ndim > 1 else setting.fleet.at_home(whole, setting.home)
