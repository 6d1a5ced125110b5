"""The accounts of Servers, and their sum: for tables, and as documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic.alias_generators import to_camel

from inferno_operator.resources import Savings, Server
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.ledger import COMPARED, STATIC_PEAK
from inferno_optimizer.units import SECONDS_PER_HOUR

PAID, PLANNED = "paid", "planned"

TOTAL = "all"


@dataclass(frozen=True, slots=True)
class SpendingRow:
    """What a server, or all of them, came to; `cents` and `kept_requests` are by policy."""

    server: str
    accelerator: str
    since: str
    hours: float
    requests: float
    cents: Mapping[str, float]
    kept_requests: Mapping[str, float]

    def share(self, policy: str) -> float | None:
        """Share of the requests in steps that kept the targets; None if it is not known."""
        if policy not in self.kept_requests or not self.requests:
            return None
        return self.kept_requests[policy] / self.requests


def accounts(observations: Iterable[Observation], namespace: str) -> list[SpendingRow]:
    """Return the accounts of the Servers in the order of their names, and their sum at the end.

    Raises
    ------
    InputError
        No Server has an account.
    """
    servers = [r for r in readable(observations) if isinstance(r, Server)]
    rows = [_row(s.spec.name, s.status.savings) for s in servers if s.status.savings is not None]
    if not rows:
        raise InputError(
            f"namespace {namespace}: no savings data yet: only Servers with spec.measure and known"
            " replicas (workloads or currentAlloc) are tracked"
        )
    in_order = sorted(rows, key=lambda row: row.server)
    return [*in_order, _total(in_order)] if len(in_order) > 1 else in_order


def _row(name: str, savings: Savings) -> SpendingRow:
    policies = {own.policy: own for own in savings.policies}
    own = {PAID: savings.paid, PLANNED: savings.planned, STATIC_PEAK: savings.static_peak}
    return SpendingRow(
        server=name,
        accelerator=savings.accelerator,
        since=f"{savings.since:%Y-%m-%dT%H:%M:%SZ}",
        hours=savings.counted_seconds / SECONDS_PER_HOUR,
        requests=savings.requests,
        cents=own | {name: policy.cost for name, policy in policies.items()},
        kept_requests={PAID: savings.kept_requests}
        | {name: policy.kept_requests for name, policy in policies.items()},
    )


def _total(rows: Sequence[SpendingRow]) -> SpendingRow:
    def total(column: str) -> dict[str, float]:
        parts = [getattr(row, column) for row in rows]
        return {name: sum(part.get(name, 0.0) for part in parts) for name in parts[0]}

    return SpendingRow(
        server=TOTAL,
        accelerator="",
        since=min(row.since for row in rows),
        hours=max(row.hours for row in rows),
        requests=sum(row.requests for row in rows),
        cents=total("cents"),
        kept_requests=total("kept_requests"),
    )


def saved(row: SpendingRow) -> list[tuple[str, float, float]]:
    """For each other policy, what it would have cost more [cents], as a share of its cost, too."""
    return [
        (name, row.cents[name] - row.cents[PAID], 1 - row.cents[PAID] / row.cents[name])
        for name in COMPARED
        if row.cents.get(name)
    ]


def savings_document(rows: Sequence[SpendingRow]) -> Mapping[str, object]:
    """The accounts as JSON; costs in cents."""
    return {"servers": [{to_camel(k): v for k, v in asdict(row).items()} for row in rows]}
