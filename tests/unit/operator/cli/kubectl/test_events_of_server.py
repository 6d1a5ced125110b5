"""Events about a Server: the newest first, with their ages."""

from typing import Any

from inferno_operator.cli.kubectl.console.server import (
    EVENTS_SHOWN,
    SeenEvents,
    describe_events,
    encode_events,
)
from inferno_operator.cli.tables.table import TextTable
from tests.past import NOW


def event(reason: str, **times: object) -> dict[str, Any]:
    return {"reason": reason, "type": "Normal", "message": f"{reason}!", **times}


def test_events_are_shown_with_the_newest_first_whatever_tells_their_time() -> None:
    seen = SeenEvents(
        [
            event("Older", eventTime="2026-11-24T11:00:00.000000Z", lastTimestamp=None),
            event("Newest", series={"lastObservedTime": "2026-11-24T11:59:00.000000Z"}),
            event("Middle", lastTimestamp="2026-11-24T11:30:00Z"),
            event("Timeless"),
        ]
    )

    (table,) = describe_events(seen, NOW)

    assert isinstance(table, TextTable)
    assert [(row[0], row[2]) for row in table.rows] == [
        ("Newest", "1m"), ("Middle", "30m"), ("Older", "1h"), ("Timeless", "-"),
    ]  # fmt: skip


def test_only_the_newest_events_are_shown() -> None:
    events = [
        event(f"E{n}", eventTime=f"2026-11-24T11:{n:02}:00Z") for n in range(EVENTS_SHOWN + 5)
    ]

    shown = encode_events(SeenEvents(events))

    assert [item["reason"] for item in shown] == [f"E{n}" for n in range(EVENTS_SHOWN + 4, 4, -1)]


def test_who_may_not_see_events_is_told_so() -> None:
    refusal = "HTTP 403: cannot list resource events"

    assert list(describe_events(SeenEvents(refusal=refusal), NOW)) == [
        f"events are not shown: {refusal}"
    ]
    assert list(describe_events(SeenEvents(), NOW)) == []
