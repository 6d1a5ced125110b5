"""How much faster or slower replicas are by the data of now than a decision says they are; pure.

A decision has the latency and the batch that were predicted for its load. The status of a Model
that says what is trusted is gone with a Model that was deleted, and is another one's where a Server
names another Model: what stands on the Server still tells, also to an operator that has just
started. Only decisions for one accelerator with whole requests are compared, at the load of the
decision: so neither a load that moves nor replicas that are more than enough count.
"""

from dataclasses import replace

import numpy as np

from inferno_operator.controllers.actuation.decision import UNDECIDED
from inferno_operator.controllers.optimization.allocations import allocation_of
from inferno_operator.resources import Server, ServerAllocation
from inferno_operator.resources.conditions import ALLOCATED
from inferno_optimizer.explain.load_curve import LoadCurve, load_curve
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import System, Target

WHOLE = {Reason.ALLOCATED, *UNDECIDED}
"""Reasons of the condition Allocated of a Server whose last decision serves its whole load.

While none is possible, as without its Model, the decision before that stands.
"""


def speedup(server: Server, system: System) -> float:
    """Return how many times as much a replica does as the decision of a Server says; 1 if unknown.

    A token may take less time, and a batch may be larger, but where the Server limits it.

    Parameters
    ----------
    server
        The Server, with its decision.
    system
        The system with the data of now.
    """
    decided = _comparable(server)
    if decided is None or decided.load is None:
        return 1.0
    small = _alone(server, decided, system)
    rate = decided.load.arrival_rate / decided.num_replicas
    curve = load_curve(small, server.spec.name, np.array([rate]))
    if curve is None:
        return 1.0
    before, itl = decided.itl_average or 0.0, float(curve.itl_ms[0])
    faster = before / itl if 0 < itl < np.inf else 1.0
    return faster * _larger_batch(server, decided, small, curve)


def slowdown(server: Server, system: System) -> float:
    """Return how many times as little a replica does as the decision of a Server says, at least.

    It is 1 if unknown, as where the decision served a part of the load only. A token may take more
    time, and what the decision gave to a replica may be more than it carries at all. Targets do not
    count: who asks for more gets it.

    Parameters
    ----------
    server
        The Server, with its decision.
    system
        The system with the data of now.
    """
    decided, allocated = _comparable(server), server.status.condition(ALLOCATED)
    if decided is None or allocated is None or allocated.reason not in WHOLE:
        return 1.0
    name, model = server.spec.name, server.spec.model
    small = _alone(server, decided, system)
    classes = tuple(replace(each, targets={model: Target()}) for each in small.classes)
    curve = load_curve(replace(small, classes=classes), name)
    if curve is None:
        return 1.0
    itl = float(curve.itl_ms[curve.now])
    least = itl if np.isfinite(itl) else float(curve.itl_ms[0])  # a small batch is the fastest
    return max(least / (decided.itl_average or least), curve.rate / curve.max_rate)


def _comparable(server: Server) -> ServerAllocation | None:
    """The decision of a Server, if it is for one accelerator and tells a latency for a load."""
    decided = server.spec.desired_alloc
    if decided is None or decided.mix or decided.roles or not decided.itl_average:
        return None
    if decided.load is None or decided.num_replicas <= 0 or decided.load.arrival_rate <= 0:
        return None
    return decided


def _alone(server: Server, decided: ServerAllocation, system: System) -> System:
    """The system of one server that runs what was decided, under the load of the decision."""
    runs, name = allocation_of(decided), server.spec.name
    return replace(
        system,
        servers=tuple(replace(s, current=runs) for s in system.servers if s.name == name),
        profiles=tuple(p for p in system.profiles if p.model == server.spec.model),
        roles=(),
    )


def _larger_batch(
    server: Server, decided: ServerAllocation, small: System, curve: LoadCurve
) -> float:
    """How many times as much a replica carries as with the batch of the decision, 1 at least."""
    if server.spec.max_batch_size or not decided.max_batch:
        return 1.0
    limited = (replace(each, max_batch_size=decided.max_batch) for each in small.servers)
    before = load_curve(replace(small, servers=tuple(limited)), server.spec.name)
    return max(curve.max_rate / before.max_rate, 1.0) if before else 1.0
