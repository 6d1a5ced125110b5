"""The Lease of the operators -> who leads, since when, and whether it is renewed; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.cli.tables.top import age
from inferno_operator.runtime.leader_election import Lease

LATE = 3.0
"""After so many times its duration a Lease that was not renewed is overdue: clocks differ."""

OVERDUE = "Overdue"
"""The state of what did not happen when it was due."""


@dataclass(frozen=True, slots=True)
class SeenLeader:
    """The Lease that a person may see, or why it is not known."""

    lease: Lease | None = None
    unknown: str = ""


def leader_row(seen: SeenLeader, now: datetime) -> Sequence[str]:
    """Return who leads as a row of the table of health."""
    lease = seen.lease
    if lease is None:
        return ("Leader", "not known", "-", seen.unknown)
    renewed = age(lease.renewed, now)
    if not lease.holder:
        return ("Leader", "none", renewed, "no operator holds the Lease")
    late = (now - lease.renewed).total_seconds() > LATE * lease.duration
    pod, since = _pod(lease), f"{lease.acquired:%Y-%m-%d %H:%M} UTC"
    words = f"{pod} leads since {since}; leaders before it: {lease.transitions}"
    return ("Leader", OVERDUE if late else "leads", renewed, words)


def leader_document(seen: SeenLeader) -> Mapping[str, object]:
    """Return who leads as JSON."""
    lease = seen.lease
    if lease is None:
        return {"unknown": seen.unknown}
    return {
        "holder": lease.holder,
        "since": lease.acquired.isoformat(),
        "renewed": lease.renewed.isoformat(),
        "transitions": lease.transitions,
    }


def _pod(lease: Lease) -> str:
    """The name of the pod, which is followed by what is unique of its process."""
    return lease.holder.partition("_")[0]
