"""Which objects the names and options of a command line refer to."""

from dataclasses import replace
from unittest.mock import create_autospec

import pytest

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.choices import ServerFilter, choose_optimizer, choose_server
from inferno_operator.cli.tables.servers import Overview, build_overview, describe_overview
from inferno_optimizer.errors import InputError
from tests.unit.operator.objects import (
    NOW,
    condition,
    manifest,
    observed,
    optimizer,
    running,
    server,
)

BOTH = [observed(optimizer("a")), observed(optimizer("b"))]


def test_the_only_optimizer_needs_no_name() -> None:
    assert choose_optimizer(BOTH[:1], "llm", None).metadata.name == "a"
    assert choose_optimizer(BOTH, "llm", "b").metadata.name == "b"


def test_of_several_optimizers_one_has_to_be_named() -> None:
    with pytest.raises(
        InputError, match="namespace 'llm' has several Optimizers: name one of a, b"
    ):
        choose_optimizer(BOTH, "llm", None)
    with pytest.raises(InputError, match=r"Optimizer llm/c: there is none \(known: a, b\)"):
        choose_optimizer(BOTH, "llm", "c")
    with pytest.raises(InputError, match="namespace 'llm' has no Optimizer"):
        choose_optimizer([], "llm", None)


def test_an_optimizer_that_cannot_be_read_is_refused_with_the_field() -> None:
    broken = optimizer("a")
    broken["spec"]["data"] = {}

    with pytest.raises(InputError, match=r"Optimizer default/a: spec.data.optimizer is missing"):
        choose_optimizer([observed(broken)], "llm", None)


def test_the_name_of_an_object_wins_over_that_in_a_spec() -> None:
    servers = [observed(server("x", name="first")), observed(server("first", name="second"))]

    assert choose_server(servers, "llm", "first").metadata.name == "first"
    assert choose_server(servers, "llm", "x").metadata.name == "first"
    assert choose_server(servers[1:], "llm", "first").metadata.name == "second"


def test_a_server_that_is_not_there_or_unreadable_is_refused() -> None:
    broken = server("s")
    del broken["spec"]["model"]

    with pytest.raises(InputError, match=r"Server default/s: spec.model is missing"):
        choose_server([observed(broken)], "llm", "s")
    with pytest.raises(InputError, match=r"Server llm/t: there is none \(known: s\)"):
        choose_server([observed(broken)], "llm", "t")


def test_the_nearest_name_is_suggested_for_one_that_is_not_there() -> None:
    servers = [observed(server("premium-chat")), observed(server("batch"))]

    with pytest.raises(InputError, match=r"there is none; did you mean premium-chat\? \(known: "):
        choose_server(servers, "llm", "premium-caht")
    with pytest.raises(InputError, match=r"Optimizer llm/c: there is none \(known: a, b\)"):
        choose_optimizer(BOTH, "llm", "c")


def test_of_a_namespace_without_such_objects_that_is_said() -> None:
    with pytest.raises(InputError, match=r"^Server llm/t: namespace 'llm' has no Server$"):
        choose_server(BOTH, "llm", "t")


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
    return build_overview([observed(each) for each in (PROMISES, *found)])


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ServerFilter(), ["broken", "poor", "slow", "well"]),
        (ServerFilter(service_class="premium"), ["slow", "well"]),
        (ServerFilter(model="N"), ["poor"]),
        (ServerFilter(reason="allocated"), ["well"]),
        (ServerFilter(reason="MissesTarget"), ["slow"]),
        (ServerFilter(reason="InvalidSpec"), ["broken"]),
        (ServerFilter("Premium", "M", "NoCapacity"), []),
        (ServerFilter(reason="UnknownModel"), []),
    ],
)
def test_servers_have_all_that_is_asked_for(wanted: ServerFilter, names: list[str]) -> None:
    assert [view.name for view in wanted.of(fleet()).servers] == names


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (ServerFilter("premum"), "--class premum: no Server has .*; did you mean Premium?"),
        (ServerFilter(model="O"), r"--model O: no Server has the model 'O' \(known: M, N\)"),
        (ServerFilter(reason="NoCapcity"), "--reason NoCapcity: .*; did you mean NoCapacity?"),
    ],
)
def test_what_nothing_has_is_refused_with_the_nearest_name(wanted: ServerFilter, told: str) -> None:
    with pytest.raises(InputError, match=told):
        wanted.check(fleet())


async def test_it_goes_on_where_the_last_server_of_a_class_is_deleted_meanwhile() -> None:
    session = create_autospec(Session, instance=True)
    selection = ServerFilter("Free")
    seen = fleet()
    without = replace(seen, servers=tuple(v for v in seen.servers if v.name != "poor"))

    shown = [
        [view.name for view in (await selection.select(session, each)).servers]
        for each in (seen, without)
    ]

    assert shown == [["poor"], []]


def test_a_namespace_without_servers_has_nothing_to_choose_from() -> None:
    ServerFilter("Premium").check(build_overview([]))

    assert ServerFilter("Premium").of(build_overview([])) == build_overview([])


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (ServerFilter("Premium"), "2 of 4 Servers are shown; 1 of 2 servers miss a target now; "),
        (ServerFilter(reason="UnknownModel"), "none of the 4 Servers in this namespace"),
    ],
)
def test_it_is_told_how_many_there_are_in_all(wanted: ServerFilter, line: str) -> None:
    shown = [str(part) for part in describe_overview(wanted.of(fleet()), NOW)]

    assert any(part.startswith(line) for part in shown), shown
