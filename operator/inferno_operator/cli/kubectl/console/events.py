"""Events about an object as the API server has them -> a table, the newest first; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.cli.tables.solution import Part, TextTable
from inferno_operator.cli.tables.top import age
from inferno_operator.resources.objects import Manifest

SHOWN = 20
"""Events that are shown."""


@dataclass(frozen=True, slots=True)
class SeenEvents:
    """The events that a person may see, or why there are none to be seen."""

    events: Sequence[Manifest] = ()
    refusal: str = ""


NO_EVENTS = SeenEvents()


def events_document(seen: SeenEvents) -> list[dict[str, str]]:
    """Return the newest events as JSON."""
    newest = sorted(seen.events, key=_time, reverse=True)[:SHOWN]
    return [
        {
            "time": _time(event),
            **{name: event.get(name) or "" for name in ("type", "reason", "message")},
        }
        for event in newest
    ]


def event_parts(seen: SeenEvents, now: datetime) -> Iterator[Part]:
    """Yield a table of the newest events, or why they are not shown; nothing if there are none."""
    if seen.refusal:
        yield f"events are not shown: {seen.refusal}"
    events = events_document(seen)
    if events:
        rows = [
            (event["reason"], event["type"], _age(event["time"], now), event["message"])
            for event in events
        ]
        yield TextTable(("EVENT", "TYPE", ">AGE", "WHAT HAPPENED"), rows)


def _time(event: Manifest) -> str:
    """When an event happened last; a newer time sorts behind an older one."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")


def _age(time: str, now: datetime) -> str:
    return age(datetime.fromisoformat(time), now) if time else "-"
