"""Whether an idle server keeps a replica: what that costs against the waits of a cold start; pure.

A server that sleeps saves the cost of its replica. The next request pays for it: a replica starts
for the lead time L without serving, and requests wait, the first one for L, others that arrive
meanwhile for half of it on average. With a mean rate of arrivals r they wait for L (1 + r L / 2).
A waiting request costs v = w * `WAITING_COST`, with w = (101 - priority) / 100 of its class. With
the cost c of a replica, a cold start is worth as much as an idle time of

    T = L + (v / c) * L * (1 + r L / 2)

Nobody knows when the next request comes. A server sleeps when it has been idle for T: so it never
pays more than twice of what it would have paid with that knowledge, as who rents skis until they
could have been bought [Karlin et al., Competitive snoopy caching, Algorithmica 3, 1988].
"""

from datetime import timedelta
from math import inf

from inferno_operator.resources import Measured, Server
from inferno_optimizer.system import LOWEST_PRIORITY

WAITING_COST = 3000.0
"""What a waiting request of the most important class costs [cents/hour]: an hour of a person."""


def break_even_seconds(lead_s: float, rate: float, cost: float, priority: int) -> float:
    """Return the idle time that costs as much as a cold start [s].

    Parameters
    ----------
    lead_s
        Time until a new replica serves [s].
    rate
        Mean rate of arrivals [requests/s].
    cost
        Of a replica [cents/hour].
    priority
        Of the class, 1 to 100; 1 is the most important.
    """
    if cost <= 0:
        return inf
    waiting = lead_s * (1 + rate * lead_s / 2)
    weight = (LOWEST_PRIORITY + 1 - priority) / LOWEST_PRIORITY
    return lead_s + WAITING_COST * weight / cost * waiting


def may_sleep(server: Server, cost: float, priority: int) -> bool:
    """Return whether a measured Server may have no replica now; one that sleeps may go on.

    Parameters
    ----------
    server
        The Server, with what was measured last.
    cost
        Of a replica [cents/hour].
    priority
        Of its class, 1 to 100.
    """
    measured = server.status.measured
    seen = measured.demand if measured else None
    if server.sleeps:
        return seen is None or not seen.requests
    if server.spec.measure is None or server.spec.measure.demand is None:
        return False
    if measured is None or seen is None or seen.idle_since is None or not _is_small(server):
        return False
    rate = (seen.mean_rate or 0.0) / 60
    needed = break_even_seconds(server.lead_seconds, rate, cost, priority)
    return needed < inf and _idle(measured) >= timedelta(seconds=needed)


def _is_small(server: Server) -> bool:
    """Whether one replica is all that was decided: others go first, one after the other."""
    desired = server.spec.desired_alloc
    return desired is not None and desired.num_replicas <= 1


def _idle(measured: Measured) -> timedelta:
    since = measured.demand.idle_since if measured.demand else None
    return measured.time - since if since else timedelta()
