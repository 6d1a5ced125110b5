"""How much faster replicas are by the data of now than the decision says that they run by; pure.

A decision has the latency that was predicted for its load. The status of a Model that says what is
trusted is gone with a Model that was deleted, and is another one's where a Server names another
Model: what stands on the Server still tells, also to an operator that has just started.
"""

from dataclasses import replace

import numpy as np

from inferno_operator.controllers.optimization.allocations import allocation_of
from inferno_operator.resources import Server
from inferno_optimizer.explain.load_curve import load_curve
from inferno_optimizer.system import System


def speedup(server: Server, system: System) -> float:
    """Return how many times as fast a token is as the decision of a Server says; 1 if unknown.

    Parameters
    ----------
    server
        The Server, with its decision.
    system
        The system with the data of now.

    Notes
    -----
    Both are of the load of the decision, so neither a load that moves nor replicas that are more
    than enough count. Only decisions for one accelerator with whole requests are compared.
    """
    decided, name = server.spec.desired_alloc, server.spec.name
    if decided is None or decided.mix or decided.roles or not decided.itl_average:
        return 1.0
    if decided.load is None or decided.num_replicas <= 0 or decided.load.arrival_rate <= 0:
        return 1.0
    runs = allocation_of(decided)
    small = replace(
        system,
        servers=tuple(replace(s, current=runs) for s in system.servers if s.name == name),
        profiles=tuple(p for p in system.profiles if p.model == server.spec.model),
        roles=(),
    )
    rate = decided.load.arrival_rate / decided.num_replicas
    curve = load_curve(small, name, np.array([rate]))
    if curve is None or not 0 < curve.itl_ms[0] < np.inf:
        return 1.0
    return decided.itl_average / float(curve.itl_ms[0])
