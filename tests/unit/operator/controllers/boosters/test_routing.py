"""Whom a route leads to, as backends come and go."""

import pytest

from inferno_operator.controllers.boosters.changes import ChildWrites, decide
from inferno_operator.resources.dialects import KTHENA, MATRIXINFER, Dialect
from tests.unit.operator.controllers.boosters.making import (
    Manifest,
    backend,
    booster,
    convert,
    there,
)

SQL = {"name": "sql", "artifactURL": "hf://example/sql"}


def decided(
    *backends: Manifest,
    available: dict[str, int],
    before: dict[str, int] | None = None,
    dialect: Dialect = KTHENA,
) -> ChildWrites:
    """What is planned with these replicas, available and asked for before, by backend."""
    asked = booster(*backends, dialect=dialect)
    children = [there(child) for child in convert(asked, dialect)]
    for child in children:
        backend_name = child["metadata"]["name"].removeprefix("m-")
        if child["kind"] == dialect.serving.kind:
            child["status"] = {"availableReplicas": available.get(backend_name, 0)}
            child["spec"]["replicas"] = (before or {}).get(backend_name, child["spec"]["replicas"])
        if child["kind"] == dialect.route.kind:
            child["spec"] = {}
    return decide(asked, children, dialect)


def rules(decided: ChildWrites) -> dict[str, list[str]]:
    """Names of the backends that each rule of the route leads to."""
    (route,) = (a.manifest["spec"] for a in decided.applies if a.kind.kind == "ModelRoute")
    return {
        rule["name"]: [t["modelServerName"].removeprefix("m-") for t in rule["targetModels"]]
        for rule in route["rules"]
    }


@pytest.mark.parametrize("dialect", [KTHENA, MATRIXINFER], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("asked", "available", "led_to"),
    [
        ({"a": 2, "b": 2}, {"a": 2, "b": 1}, "ab"),
        ({"a": 2, "b": 2}, {"b": 1}, "b"),
        ({"a": 2, "b": 0}, {"a": 2, "b": 3}, "a"),
        ({"a": 0, "b": 2}, {"a": 2}, "a"),
        ({"a": 2, "b": 2}, {}, "ab"),
        ({"a": 2, "b": 0}, {}, "a"),
        ({"a": 0, "b": 0}, {"a": 1}, "a"),
        ({"a": 0, "b": 0}, {}, "ab"),
    ],
    ids=[
        "both serve",
        "one serves",
        "one serves, one goes",
        "one goes, one comes",
        "both come",
        "one comes",
        "the last one goes",
        "neither",
    ],
)
def test_requests_go_to_backends_that_can_serve(
    dialect: Dialect, asked: dict[str, int], available: dict[str, int], led_to: str
) -> None:
    backends = [backend(name, replicas) for name, replicas in asked.items()]

    assert rules(decided(*backends, available=available, dialect=dialect)) == {
        "default": list(led_to)
    }


def test_the_only_backend_keeps_its_requests() -> None:
    assert rules(decided(backend("a", 0), available={})) == {"default": ["a"]}


def test_each_rule_leads_to_those_of_its_backends_that_can_serve() -> None:
    backends = [backend("a"), backend("b", loraAdapters=[SQL]), backend("c", loraAdapters=[SQL])]

    assert rules(decided(*backends, available={"a": 1})) == {"default": ["a"], "sql": ["b", "c"]}
    assert rules(decided(*backends, available={"a": 1, "c": 1})) == {
        "default": ["a", "c"],
        "sql": ["c"],
    }


@pytest.mark.parametrize(
    ("available", "led_to"),
    [({"silent": 1}, ["a", "b"]), ({"silent": 1, "b": 1}, ["b"])],
    ids=["nobody else serves", "another serves"],
)
def test_a_backend_that_is_to_get_no_requests_gets_none_when_others_cannot_serve(
    available: dict[str, int], led_to: list[str]
) -> None:
    silent = backend("silent", routeWeight=0)

    planned = decided(silent, backend("a"), backend("b", routeWeight=7), available=available)

    assert rules(planned) == {"default": led_to}


def test_weights_stay_those_of_the_backends() -> None:
    backends = [backend("a", routeWeight=20), backend("b", routeWeight=80), backend("c")]

    (route,) = decided(*backends, available={"b": 1, "c": 1}).applies

    assert route.manifest["spec"]["rules"][0]["targetModels"] == [
        {"modelServerName": "m-b", "weight": 80},
        {"modelServerName": "m-c"},
    ]


def test_what_comes_and_goes_rolls_no_pods_and_is_written_once() -> None:
    asked = booster(backend("a"), backend("b"))
    children = [there(child) for child in convert(asked, KTHENA)]
    serving = next(child for child in children if child["kind"] == "ModelServing")
    serving["status"] = {"availableReplicas": 1}

    (route,) = decide(asked, children, KTHENA).applies

    assert route.kind == KTHENA.route
    written = there(dict(route.manifest))
    current = [written if child["kind"] == "ModelRoute" else child for child in children]
    assert decide(asked, current, KTHENA).applies == ()


def test_a_backend_loses_its_last_replica_after_its_requests() -> None:
    planned = decided(backend("a", 0), backend("b", 2), available={"a": 2, "b": 2}, before={"a": 2})

    assert rules(planned) == {"default": ["b"]}
    assert [idle.manifest["metadata"]["name"] for idle in planned.scale_downs] == ["m-a"]
    assert [apply.kind for apply in planned.applies] == [KTHENA.route]


def test_a_backend_that_loses_some_replicas_does_so_at_once() -> None:
    planned = decided(backend("a", 1), available={"a": 2}, before={"a": 2})

    assert [apply.kind for apply in planned.applies] == [KTHENA.serving, KTHENA.route]
    assert planned.scale_downs == ()


def test_a_backend_that_became_bad_keeps_its_requests_while_it_serves() -> None:
    before, other = backend("b"), backend("a")
    children = [there(child) for child in convert(booster(other, before), KTHENA)]
    for child in children:
        child["status"] = {"availableReplicas": 1}

    broken = booster(other, {**before, "minReplicas": 9, "maxReplicas": 4})

    assert decide(broken, children, KTHENA).applies == ()
