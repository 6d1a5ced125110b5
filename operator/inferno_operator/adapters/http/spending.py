"""The metrics of what servers cost, and their rows."""

from collections.abc import Iterable, Iterator

from inferno_operator.adapters.http.series import Row, replaced
from inferno_operator.runtime.observer import ServerSpending

RUNNING_COST = replaced(
    "server_cost_cents_per_hour",
    ("server", "workload", "accelerator"),
    "What the replicas of a server that run now cost, by workload (empty if none is named).",
)
SPENT = replaced(
    "server_spent_cents",
    ("server", "policy"),
    "What a server has cost since it is counted; policy is paid, planned, or the name of a policy"
    " that would have cost this with the same load.",
)
REQUESTS = replaced(
    "server_counted_requests", ("server",), "Requests of a server since it is counted."
)
KEPT = replaced(
    "server_kept_requests",
    ("server", "policy"),
    "Of these, those in steps that kept the targets; policy is paid for what was measured.",
)

SPENDING_METRICS = (RUNNING_COST, SPENT, REQUESTS, KEPT)
"""Metrics whose series the next step of the accounts of the namespace replaces."""


def spending_rows(servers: Iterable[ServerSpending]) -> Iterator[Row]:
    """Yield the rows of servers."""
    for server in sorted(servers, key=lambda server: server.server):
        name = server.server
        for (accelerator, workload), cost in server.running.items():
            yield RUNNING_COST, (name, workload, accelerator), cost
        for policy, cents in server.cents.items():
            yield SPENT, (name, policy), cents
        yield REQUESTS, (name,), server.requests
        for policy, requests in server.kept.items():
            yield KEPT, (name, policy), requests
