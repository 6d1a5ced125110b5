"""Which Servers `top` shows where a person asks for a class, a model or a reason."""

from dataclasses import replace
from unittest.mock import create_autospec

import pytest

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.servers import _Selection
from inferno_operator.cli.kubectl.wanted import WantedServers
from inferno_operator.cli.overview import Overview, overview
from inferno_operator.cli.tables.top import top_parts
from inferno_optimizer.errors import InputError
from tests.unit.operator.objects import NOW, condition, manifest, observed, running, server

PROMISES = manifest(
    "ServiceClass",
    {"name": "Premium", "priority": 1, "data": [{"model": "M", "slo-itl": 40}]},
    name="premium",
)


def fleet() -> Overview:
    """One within its target, one that misses it, one without cards, one that cannot be read."""
    found = []
    for name, service_class, model, reason, itl in (
        ("well", "Premium", "M", "Allocated", 30),
        ("slow", "Premium", "M", "Allocated", 50),
        ("poor", "Free", "N", "NoCapacity", 30),
    ):
        current = {**running(2, 2), "itlAverage": itl}
        spec = {"class": service_class, "model": model, "currentAlloc": current}
        status = {"conditions": [condition("Ready", reason)]}
        found.append({**server(name, spec=spec), "status": status})
    found.append(manifest("Server", {"name": 1}, name="broken"))
    return overview([observed(each) for each in (PROMISES, *found)])


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (WantedServers(), ["broken", "poor", "slow", "well"]),
        (WantedServers(service_class="premium"), ["slow", "well"]),
        (WantedServers(model="N"), ["poor"]),
        (WantedServers(reason="allocated"), ["well"]),
        (WantedServers(reason="MissesTarget"), ["slow"]),
        (WantedServers(reason="InvalidSpec"), ["broken"]),
        (WantedServers("Premium", "M", "NoCapacity"), []),
        (WantedServers(reason="UnknownModel"), []),
    ],
)
def test_servers_have_all_that_is_asked_for(wanted: WantedServers, names: list[str]) -> None:
    assert [view.name for view in wanted.of(fleet()).servers] == names


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (WantedServers("premum"), "--class premum: no Server has .*; did you mean Premium?"),
        (WantedServers(model="O"), r"--model O: no Server has the model 'O' \(known: M, N\)"),
        (WantedServers(reason="NoCapcity"), "--reason NoCapcity: .*; did you mean NoCapacity?"),
    ],
)
def test_what_nothing_has_is_refused_with_the_nearest_name(
    wanted: WantedServers, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        wanted.check(fleet())


async def test_it_goes_on_where_the_last_server_of_a_class_is_deleted_meanwhile() -> None:
    session = create_autospec(Session, instance=True)
    selection = _Selection(session, WantedServers("Free"), selector="")
    seen = fleet()
    without = replace(seen, servers=tuple(v for v in seen.servers if v.name != "poor"))

    shown = [[view.name for view in (await selection.of(each)).servers] for each in (seen, without)]

    assert shown == [["poor"], []]


def test_a_namespace_without_servers_has_nothing_to_choose_from() -> None:
    WantedServers("Premium").check(overview([]))

    assert WantedServers("Premium").of(overview([])) == overview([])


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (WantedServers("Premium"), "2 of 4 Servers are shown; 1 of 2 servers miss a target now; "),
        (WantedServers(reason="UnknownModel"), "none of the 4 Servers in this namespace"),
    ],
)
def test_it_is_told_how_many_there_are_in_all(wanted: WantedServers, line: str) -> None:
    shown = [str(part) for part in top_parts(wanted.of(fleet()), NOW)]

    assert any(part.startswith(line) for part in shown), shown
