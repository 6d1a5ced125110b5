"""The metrics of the last optimization of a namespace, and their rows."""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping

from inferno_operator.adapters.http.series import Row, replaced
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import LOWEST_PRIORITY, System

LAST_TIME = replaced(
    "last_optimization_timestamp_seconds", (), "When the last optimization ended, Unix time."
)
SERVERS = replaced("servers", (), "Servers in the last optimization.")
UNSERVED = replaced(
    "unserved_servers",
    ("service_class", "priority", "reason"),
    "Servers without an allocation after the last optimization.",
)
COST = replaced(
    "cost_cents_per_hour",
    (),
    "Cost of the last optimization: all allocations, and what runs without a possible decision.",
)
GAP = replaced(
    "optimality_gap_ratio",
    (),
    "Proven relative distance from the optimum; absent if the solver proves nothing.",
)
DESIRED = replaced(
    "server_desired_replicas", ("server", "accelerator"), "Replicas that were decided for a server."
)
CURRENT = replaced(
    "server_current_replicas",
    ("server", "accelerator"),
    "Replicas that a server had when the last optimization read it.",
)
RUNNING_COST = replaced(
    "server_cost_cents_per_hour",
    ("server",),
    "What the replicas of a server cost that ran when the last optimization read it.",
)
STATIC_PEAK = replaced(
    "server_static_peak_cents_per_hour",
    ("server",),
    "What a server would cost if the replicas of its dearest plan of the last 24 hours ran all the"
    " time.",
)
USED = replaced("capacity_used_cards", ("type",), "Cards that the allocations use.")
AVAILABLE = replaced(
    "capacity_available_cards", ("type",), "Cards that exist; absent if capacity is unlimited."
)
HELD = replaced(
    "capacity_held_cards",
    ("type",),
    "Cards that servers hold for which no decision is possible.",
)
PRICE = replaced(
    "capacity_price_cents_per_hour",
    ("type",),
    "What one more card would save at the served load, estimated if the plan is not proven to be"
    " the best; absent where it serves more load.",
)
GAIN = replaced(
    "capacity_gain_requests_per_minute",
    ("type", "priority"),
    "Load that one more card would serve, of the most important priority that gains; estimated if"
    " the plan is not proven to be the best.",
)

RESULT_METRICS = (
    LAST_TIME,
    SERVERS,
    UNSERVED,
    COST,
    GAP,
    DESIRED,
    CURRENT,
    RUNNING_COST,
    STATIC_PEAK,
    USED,
    AVAILABLE,
    HELD,
    PRICE,
    GAIN,
)
"""Metrics whose series the next optimization of the namespace replaces."""


DAY_HOURS = 24
"""Hours in which a static number of replicas must be enough for the peak."""

DearestPlans = Mapping[str, Mapping[int, float]]
"""The cost of the dearest plan for each server in an hour [cents/hour], for each hour that no
later one exceeds."""


def dearest_plans(
    before: DearestPlans, system: System, solution: Solution, hour: int
) -> DearestPlans:
    """Return the dearest plans for the servers of a solution in the last day."""
    running = {server.name: server.current.cost for server in system.servers}
    dearest = {}
    for decision in solution.decisions:
        name, allocation = decision.server, decision.allocation
        held = 0.0 if decision.reason.decided else running.get(name, 0.0)
        cost = allocation.cost if allocation else held
        dearer = {
            when: most
            for when, most in before.get(name, {}).items()
            if when > hour - DAY_HOURS and most > cost
        }
        dearest[name] = {hour: cost, **dearer}
    return dearest


def result_rows(
    system: System, solution: Solution, now: float, dearest: DearestPlans
) -> Iterator[Row]:
    """Yield the rows of an optimization that ended now, Unix time [s]."""
    yield LAST_TIME, (), now
    yield SERVERS, (), len(solution.decisions)
    yield COST, (), solution.cost
    if solution.certificate.gap is not None:
        yield GAP, (), solution.certificate.gap
    for labels, count in _unserved(system, solution).items():
        yield UNSERVED, labels, count
    yield from _server_rows(system, solution)
    for name, costs in dearest.items():
        yield STATIC_PEAK, (name,), max(costs.values())
    yield from _capacity_rows(system, solution)


def _unserved(system: System, solution: Solution) -> Tally[tuple[str, ...]]:
    """Count the servers without an allocation by service class, priority and reason."""
    classes = {server.name: server.service_class for server in system.servers}
    priorities = {item.name: item.effective_priority for item in system.classes}
    return Tally(
        (
            classes[decision.server],
            str(priorities.get(classes[decision.server], LOWEST_PRIORITY)),
            decision.reason.value,
        )
        for decision in solution.unserved
    )


def _server_rows(system: System, solution: Solution) -> Iterator[Row]:
    allocations = solution.allocations
    for server in system.servers:
        current, desired = server.current, allocations.get(server.name)
        if current.accelerator:
            yield CURRENT, (server.name, current.accelerator), current.replicas
        yield RUNNING_COST, (server.name,), current.cost
        if desired is None:
            yield DESIRED, (server.name, ""), 0
        else:
            for part in desired.parts:
                yield DESIRED, (server.name, part.accelerator), part.replicas


def _capacity_rows(system: System, solution: Solution) -> Iterator[Row]:
    for use in solution.capacity:
        yield USED, (use.type,), use.used
        yield HELD, (use.type,), use.held
        if not system.options.unlimited:
            yield AVAILABLE, (use.type,), use.available
        if use.price is not None:
            yield PRICE, (use.type,), use.price
        if use.gain is not None:
            yield GAIN, (use.type, str(use.gain.priority)), use.gain.load
