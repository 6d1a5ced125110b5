"""Tables of a cluster in another currency: the same but for costs, which are a hundredth."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache

import pytest

from inferno_operator.cli.kubectl.choices import decide
from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.plans import (
    PlanPreview,
    describe_plan,
    describe_plans,
    describe_preview,
    preview_plan,
)
from inferno_operator.cli.tables.servers import Screen, build_overview, describe_overview
from inferno_operator.cli.tables.table import Part, RowOrder
from inferno_optimizer.solution import Solution
from tests.unit.operator.cli.kubectl.test_answer import CLEAR, MOVE, plan
from tests.unit.operator.objects import (
    accelerator,
    capacity,
    model,
    observed,
    optimizer,
    running,
    server,
    service_class,
)

EUROS = Money("EUR", 100.0)
NOW = datetime(2026, 3, 1, 13, tzinfo=UTC)
NUMBER = re.compile(r"[+-]?\d+\.\d\d\b")

LAST = {
    "time": "2026-03-01T12:00:00Z",
    "requestedGeneration": 1,
    "servers": 1,
    "allocated": 1,
    "cost": 300,
    "capacity": [{"type": "T", "used": 1, "available": 5, "price": 750}],
}

OBJECTS = [
    observed(found)
    for found in (
        accelerator(),
        model(),
        service_class(),
        capacity(4),
        {**optimizer(), "status": {"lastOptimization": LAST}},
        server(spec={"currentAlloc": running(2, 2), "desiredAlloc": running(3, 2)}),
    )
]


def top(money: Money) -> Iterator[Part]:
    return describe_overview(build_overview(OBJECTS), NOW, money)


def screen(money: Money) -> list[Part]:
    return [str(Screen(200, 5, money).draw(build_overview(OBJECTS), NOW, RowOrder.parse("", "")))]


def planned(money: Money) -> Iterator[Part]:
    return describe_preview(*outcome(), money)


@cache
def outcome() -> tuple[PlanPreview, Solution]:
    """What would change; each time it takes another time."""
    found = decide(OBJECTS, "default", None)
    return preview_plan(OBJECTS, found.snapshot, found.solution), found.solution


def listed(money: Money) -> Iterator[Part]:
    return describe_plans([plan("fleet-1", "Proposed")], NOW, money)


def difference(money: Money) -> Iterator[Part]:
    return describe_plan(plan("fleet-1", "Proposed", steps=[MOVE, CLEAR]), money)


SHOWN: dict[Callable[[Money], Iterable[Part]], int] = {
    top: 5,
    screen: 3,
    planned: 6,
    listed: 2,
    difference: 5,
}
"""Costs of each."""


def words(parts: Callable[[Money], Iterable[Part]], money: Money) -> list[str]:
    return "\n".join(map(str, parts(money))).replace("costs in EUR/hour", "").split()


@pytest.mark.parametrize("parts", SHOWN)
def test_costs_are_a_hundredth_and_nothing_else_changes(
    parts: Callable[[Money], Iterable[Part]],
) -> None:
    changed = [
        pair
        for pair in zip(words(parts, CENTS), words(parts, EUROS), strict=True)
        if pair[0] != pair[1]
    ]
    units = [pair for pair in changed if "cents" in pair[0]]
    costs = [pair for pair in changed if pair not in units]
    numbers = [[float(NUMBER.findall(word)[0]) for word in pair] for pair in costs]

    assert len(numbers) == SHOWN[parts]
    assert all(after == pytest.approx(before / 100, abs=0.0051) for before, after in numbers)
    assert all(after == before.replace("cents", "EUR") for before, after in units)
