"""What is kept of an account on its Server, and how it is read again; pure."""

from datetime import datetime

from inferno_operator.controllers.savings.counting import ServerAccount
from inferno_operator.resources import DIGITS, PolicySpending, Savings, ServerStatus
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.updates import FieldUpdate
from inferno_optimizer.replay.ledger import SIMULATED, LedgerEntry


def kept_account(observation: Observation, now: datetime) -> ServerAccount:
    """Return the account that the status of a Server has; a new one if it has none."""
    uid, spent = observation.reference.uid, _kept(observation)
    if spent is None:
        return ServerAccount(uid, now, LedgerEntry())
    entry = LedgerEntry(
        seconds=spent.counted_seconds,
        requests=spent.requests,
        kept=spent.kept_requests,
        paid=spent.paid,
        planned=spent.planned,
        home=spent.accelerator,
        peak=spent.peak_replicas,
        cost={policy.policy: policy.cost for policy in spent.policies},
        kept_by={policy.policy: policy.kept_requests for policy in spent.policies},
    )
    return ServerAccount(uid, spent.since, entry)


def savings(account: ServerAccount, now: datetime) -> Savings:
    """Return what is kept of an account."""
    entry = account.entry
    return Savings(
        since=account.since,
        time=now,
        counted_seconds=round(entry.seconds, DIGITS),
        requests=round(entry.requests, DIGITS),
        kept_requests=round(entry.kept, DIGITS),
        paid=round(entry.paid, DIGITS),
        planned=round(entry.planned, DIGITS),
        accelerator=entry.home,
        peak_replicas=entry.peak,
        static_peak=round(account.static_peak, DIGITS),
        policies=tuple(
            PolicySpending(
                policy=name,
                cost=round(entry.cost[name], DIGITS),
                kept_requests=round(entry.kept_by[name], DIGITS),
            )
            for name in SIMULATED
        ),
    )


def update(observation: Observation, account: ServerAccount, now: datetime) -> FieldUpdate:
    """Return what to write on a Server."""
    return FieldUpdate(observation.reference, {"savings": savings(account, now).to_json()})


def cleared(observation: Observation) -> FieldUpdate | None:
    """Return what to write on a Server that is not measured any more; None if nothing is."""
    return None if _kept(observation) is None else FieldUpdate(observation.reference, {})


def _kept(observation: Observation) -> Savings | None:
    status = observation.status
    return status.savings if isinstance(status, ServerStatus) else None
