"""Every plan of a small fleet in which servers may be served in part, in plain Python."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from inferno_optimizer.capacity import cards_to_hand_out
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Solution
from inferno_optimizer.solvers.params import DEFAULTS
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.running import Running
from inferno_optimizer.system import Accelerator, Allocation, Options, SaturationPolicy, System
from tests.unit.optimizer.oracles import value
from tests.unit.optimizer.systems import Demand, system_of

UNITS = (
    Accelerator("W", "w", 11),
    Accelerator("X", "x", 23),
    Accelerator("2xX", "x", 44, 2),
    Accelerator("Z", "z", 60),
)
HOLDING = frozenset(SaturationPolicy) - {SaturationPolicy.NONE, SaturationPolicy.ROUND_ROBIN}


@dataclass(frozen=True)
class Part:
    """Replicas of a server on an accelerator: what it holds and serves, entirely or not, for what.

    `held` and `served` are shares of its load.
    """

    held: float = 0.0
    served: float = 0.0
    value: float = 0.0
    type: str = ""
    cards: int = 0


@dataclass(frozen=True)
class Fleet:
    """Servers that take what they say, and the cards that there are."""

    demands: tuple[Demand, ...]
    capacity: dict[str, int]

    def system(self, options: Options) -> System:
        """The fleet as a system."""
        return system_of(self.demands, UNITS, self.capacity, options)


def random_fleet(random: Random, servers: int, *, running: bool) -> Fleet:
    """A fleet that mostly has too few cards for all."""
    demands = tuple(_demand(random, place, running=running) for place in range(servers))
    capacity = {"w": random.randint(0, 5), "x": random.randint(0, 6), "z": random.randint(0, 3)}
    return Fleet(demands, capacity)


def _demand(random: Random, place: int, *, running: bool) -> Demand:
    units = random.sample([unit.name for unit in UNITS], random.randint(1, 3))
    current = Allocation()
    if running and random.random() < 0.7:
        unit, count = random.choice(UNITS), random.randint(1, 3)
        current = Allocation(unit.name, count, cost=unit.cost * count)
    return Demand(
        f"s{place}",
        {name: random.randint(1, 4) for name in units},
        priority=random.randint(1, 3),
        load=float(random.randint(1, 9) * 12),
        current=current,
    )


def reached_by(fleet: Fleet, options: Options) -> tuple[tuple[float, ...], float]:
    """The lexicographically largest goals of any plan that fits, and then the least value."""
    parts = [[*_parts(demand, options.saturation_policy)] for demand in fleet.demands]
    best = max(
        (*_goals(fleet, options, plan), -sum(part.value for part in plan))
        for plan in _plans(parts, fleet.capacity)
    )
    return best[:-1], -best[-1]


def _plans(parts: Sequence[Sequence[Part]], capacity: dict[str, int]) -> Iterator[tuple[Part, ...]]:
    if not parts:
        yield ()
        return
    for part in parts[0]:
        if part.cards <= capacity.get(part.type, 0):
            left = Counter(capacity)
            left[part.type] -= part.cards
            for others in _plans(parts[1:], left):
                yield (part, *others)


def _parts(demand: Demand, policy: SaturationPolicy) -> Iterator[Part]:
    """Nothing, or so many replicas of one accelerator; with Hold, what runs without data."""
    units, current = {unit.name: unit for unit in UNITS}, demand.current
    yield Part(value=-current.cost)
    runs = demand.needs.get(current.accelerator, 0)
    carried = min(1.0, current.replicas / runs) if runs else 0.0
    unknown = bool(current.replicas) and not runs and policy is SaturationPolicy.HOLD
    carried = 1.0 if unknown else carried if policy in HOLDING else 0.0
    for name, needed in demand.needs.items():
        unit = units[name]
        for replicas in range(1, needed + 1):
            share = replicas / needed
            cost = value(current, name, replicas, unit.cost * replicas)
            cards = replicas * unit.multiplicity
            yield Part(min(share, carried), share, cost, unit.type, cards)
    if unknown:
        unit = units[current.accelerator]
        for replicas in range(1, current.replicas + 1):
            share = replicas / current.replicas
            cost = unit.cost * replicas - current.cost
            yield Part(share, 0.0, cost, unit.type, replicas * unit.multiplicity)


def _goals(fleet: Fleet, options: Options, plan: Sequence[Part]) -> tuple[float, ...]:
    priorities = sorted({demand.priority for demand in fleet.demands})

    def load(priority: int, shares: Sequence[float]) -> float:
        rows = zip(fleet.demands, shares, strict=True)
        total = sum(d.load * share for d, share in rows if d.priority == priority)
        return round(total, 6)

    held, served = [part.held for part in plan], [part.served for part in plan]
    entire = [float(share == 1) for share in served]
    if options.delayed_best_effort:
        first = [load(p, shares) for p in priorities for shares in (held, entire)]
        return (*first, *(load(p, served) for p in priorities))
    return tuple(load(p, shares) for p in priorities for shares in (held, served))


def goals_of(fleet: Fleet, options: Options, solution: Solution) -> tuple[float, ...]:
    """What the decisions reach."""
    plan = [
        _part_of(demand, options.saturation_policy, decision.allocation or Allocation())
        for demand, decision in zip(fleet.demands, solution.decisions, strict=True)
    ]
    return _goals(fleet, options, plan)


def _part_of(demand: Demand, policy: SaturationPolicy, given: Allocation) -> Part:
    units = {unit.name: unit for unit in UNITS}
    unit = units.get(given.accelerator)
    cards = given.replicas * unit.multiplicity if unit else 0
    card_type = unit.type if unit and cards else ""
    known = given.accelerator in demand.needs
    share = given.replicas / demand.needs[given.accelerator] if known else 0.0
    return next(
        part
        for part in _parts(demand, policy)
        if (part.type, part.cards) == (card_type, cards)
        and (part.served == share or not known)
        and (known or part.served == 0)
    )


def served_by(fleet: Fleet, solution: Solution) -> tuple[float, ...]:
    """Load that the decisions serve, in part or entirely, by priority."""
    served = dict.fromkeys(sorted({demand.priority for demand in fleet.demands}), 0.0)
    for demand, decision in zip(fleet.demands, solution.decisions, strict=True):
        given = decision.allocation or Allocation()
        needed = demand.needs.get(given.accelerator, 0)
        share = given.replicas / needed if needed else 0.0
        served[demand.priority] += demand.load * share
    return tuple(round(load, 6) for load in served.values())


def with_policy(policy: SaturationPolicy, *, milp: bool = True, delayed: bool = False) -> Options:
    """Options of one of the solvers."""
    return replace(Options(), milp=milp, saturation_policy=policy, delayed_best_effort=delayed)


def problem_of(system: System) -> ReplicaProblem:
    """A system as the solver of partial service sees it."""
    catalogue = Catalogue(system.by_name())
    candidates, undecided = size_servers(catalogue, catalogue.system.servers)
    cards = cards_to_hand_out(catalogue, undecided)
    capacity = np.array([cards[name] for name in candidates.types], dtype=np.int64)
    return ReplicaProblem.of(candidates, capacity, Running.of(candidates))


def tuned(problem: ReplicaProblem, **changes: Any) -> ReplicaProblem:  # noqa: ANN401 - of any field
    """A problem that is searched with other numbers."""
    return replace(problem, params=replace(DEFAULTS, **changes))
