"""The results of policies in a replay, as rows, JSON and CSV; pure."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from pydantic.alias_generators import to_camel

from inferno_operator.cli.replay import Replayed
from inferno_optimizer.replay.account import Incident, divide_sums, find_worst_incidents
from inferno_optimizer.replay.hindsight import FloorOfTrace
from inferno_optimizer.replay.replay import Scenario
from inferno_optimizer.units import SECONDS_PER_HOUR

WORST_TOLD = 10
"""Most times at which targets were missed that are shown for each policy."""


def replay_document(scenario: Scenario, replays: Sequence[Replayed]) -> Mapping[str, object]:
    """The result as JSON; costs in cents, with all servers and each of them."""
    trace = scenario.trace
    return {
        "hours": trace.seconds / SECONDS_PER_HOUR,
        "stepSeconds": trace.step_s,
        "policies": [_policy_document(scenario, replayed) for replayed in replays],
    }


def _policy_document(scenario: Scenario, replayed: Replayed) -> Mapping[str, object]:
    account = replayed.account
    everything = Row.of(replayed, "", slice(None))
    return {
        **everything.document(),
        "regret": replayed.regret,
        "shareOfOptimum": replayed.share_of_optimum,
        "cardHours": account.card_hours,
        "classes": [row.of_class() for row in class_rows(replayed)],
        "servers": [row.document() for row in server_rows(replayed)],
        "worst": [
            incident_document(incident, scenario.trace.step_s)
            for incident in find_worst_incidents(
                account, scenario.trace, scenario.fleet.accelerators, WORST_TOLD
            )
        ],
    }


def incident_document(incident: Incident, step_s: float) -> Mapping[str, object]:
    """A time at which targets were missed as JSON; times in seconds from the start of the trace."""
    return {
        "server": incident.server,
        "class": incident.service_class,
        "accelerator": incident.accelerator,
        "startSeconds": incident.first * step_s,
        "endSeconds": (incident.last + 1) * step_s,
        "worstSeconds": incident.worst * step_s,
        "outside": incident.outside,
        "within": incident.within,
        "rate": incident.rate,
        "able": incident.able,
        "waiting": incident.waiting,
        "replicas": incident.replicas,
        "ready": incident.ready,
        "refused": incident.refused,
        "before": incident.before,
        "changedSeconds": incident.changed * step_s,
        "cause": incident.cause.value,
    }


@dataclass(frozen=True, slots=True)
class Row:
    """What a policy came to with one server, or with all of them."""

    policy: str
    server: str
    cost: float
    requests: float
    within: float
    delay_within: float
    itl_within: float
    missed_minutes: float
    replicas: float
    started: int
    moves: int

    @classmethod
    def of(
        cls,
        replayed: Replayed,
        server: str,
        which: slice | np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> "Row":
        """The sums over some servers."""
        account = replayed.account
        requests = account.requests[which]
        return cls(
            policy=replayed.policy,
            server=server,
            cost=float(account.cost[which].sum()),
            requests=float(requests.sum()),
            within=divide_sums(account.within[which], requests),
            delay_within=divide_sums(account.delay_within[which], requests),
            itl_within=divide_sums(account.itl_within[which], requests),
            missed_minutes=float(account.missed_minutes[which].sum()),
            replicas=float(account.replicas[which].sum()),
            started=int(account.started[which].sum()),
            moves=int(account.moves[which].sum()),
        )

    def document(self) -> dict[str, object]:
        """The row as JSON."""
        names = ("policy", *(["server"] if self.server else []), *COLUMNS)
        return {to_camel(name): getattr(self, name) for name in names}

    def of_class(self) -> dict[str, object]:
        """The row of a class as JSON."""
        return {"class": self.server} | {to_camel(n): getattr(self, n) for n in COLUMNS}


COLUMNS = tuple(column.name for column in fields(Row) if column.name not in ("policy", "server"))


def server_rows(replayed: Replayed) -> list[Row]:
    """A row for each server."""
    names = enumerate(replayed.account.servers)
    return [Row.of(replayed, name, slice(place, place + 1)) for place, name in names]


def class_rows(replayed: Replayed) -> list[Row]:
    """A row for the servers of each class, by its name."""
    classes = np.array(replayed.account.classes)
    return [
        Row.of(replayed, name, classes == name) for name in sorted(set(replayed.account.classes))
    ]


def replay_csv(replays: Sequence[Replayed]) -> str:
    """A line for each policy and server, and one for all servers of a policy."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("policy", "server", *COLUMNS)
    writer.writerow(to_camel(name) for name in names)
    for replayed in replays:
        for row in (Row.of(replayed, "", slice(None)), *server_rows(replayed)):
            writer.writerow(getattr(row, name) for name in names)
    return text.getvalue().rstrip("\n")


def floor_document(floor: FloorOfTrace) -> Mapping[str, object]:
    """The floor as JSON; costs in cents."""
    servers = zip(
        floor.servers,
        floor.cost,
        floor.replicas,
        floor.most_replicas,
        floor.accelerators,
        strict=True,
    )
    cards = zip(floor.types, floor.cards, floor.most_cards, floor.capacity, strict=True)
    return {
        "hours": floor.hours,
        "cost": float(floor.cost.sum()),
        "servers": [
            {
                "server": name,
                "cost": float(cost),
                "replicas": float(replicas),
                "mostReplicas": int(most),
                "accelerators": dict(accelerators),
            }
            for name, cost, replicas, most, accelerators in servers
        ],
        "cards": {
            name: {"mean": float(mean), "most": int(most), "available": int(available)}
            for name, mean, most, available in cards
        },
    }
