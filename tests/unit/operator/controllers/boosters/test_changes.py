"""What is written and deleted for a booster, and what stays."""

import json
from typing import Any

import pytest

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.changes import Apply, plan_changes
from inferno_operator.resources import Server
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.observation import observe
from tests.unit.operator import objects
from tests.unit.operator.controllers.boosters.making import (
    METRICS,
    Manifest,
    asking,
    backend,
    booster,
    convert,
    disaggregated,
    later,
    manifest,
    there,
    worker,
)

OURS = "inferno-model-booster"
AUTOSCALER = "autoscaler"


def present(asked: Booster, manager: str = OURS) -> list[Manifest]:
    return [there(child, manager=manager) for child in convert(asked, KTHENA)]


def serving_of(applies: tuple[Apply, ...]) -> Manifest:
    found = [apply.manifest for apply in applies if apply.kind == KTHENA.serving]
    assert len(found) == 1
    return dict(found[0])


def test_what_is_as_it_should_be_is_not_written() -> None:
    asked = booster(backend(maxReplicas=3, autoscalingPolicy=METRICS))

    decided = plan_changes(asked, present(asked), KTHENA)

    assert (decided.applies, decided.deletes, decided.problems) == ((), (), ())


def test_fields_that_the_api_or_others_added_are_no_drift() -> None:
    asked = booster()
    children = present(asked)
    for child in children:
        child["spec"] = {**child["spec"], "added": 1}
        child["metadata"]["labels"] = {**child["metadata"]["labels"], "team": "blue"}

    assert plan_changes(asked, children, KTHENA).applies == ()


OTHER = {"of": "somebody else"}


@pytest.mark.parametrize(
    ("kind", "part", "fields"),
    [
        ("ModelServer", "metadata", {"labels": {}}),
        ("ModelServer", "metadata", {"ownerReferences": [{"uid": "uid-of-m", "name": "other"}]}),
        ("ModelServing", "spec", {"schedulerName": OTHER}),
        ("ModelServer", "spec", {"model": OTHER}),
        ("ModelRoute", "spec", {"modelName": OTHER}),
    ],
)
@pytest.mark.parametrize("more", [{}, {"scalingCost": 1}], ids=["valid", "odd"])
def test_what_was_edited_is_mended(kind: str, part: str, fields: Manifest, more: Manifest) -> None:
    asked = booster(backend(**more))
    children = present(asked)
    edited = next(child for child in children if child["kind"] == kind)
    edited[part] = {**edited[part], **fields}

    assert [a.manifest["kind"] for a in plan_changes(asked, children, KTHENA).applies] == [kind]


def test_what_is_not_wanted_any_more_is_deleted_bindings_first() -> None:
    scaled = backend("b", maxReplicas=2, autoscalingPolicy=METRICS)
    children = present(booster(backend("a"), scaled))

    deletes = plan_changes(booster(backend("a")), children, KTHENA).deletes

    assert [f"{delete.kind.kind} {delete.key.name}" for delete in deletes] == [
        "AutoscalingPolicyBinding m-b",
        "AutoscalingPolicy m-b",
        "ModelServer m-b",
        "ModelServing m-b",
    ]


@pytest.mark.parametrize(
    ("asked", "new"),
    [
        (booster(), []),
        (
            booster(backend(maxReplicas=2, scalingCost=1), autoscalingPolicy=METRICS),
            ["AutoscalingPolicy m", "AutoscalingPolicyBinding m"],
        ),
    ],
    ids=["gone", "moved to the model"],
)
def test_a_policy_that_goes_or_moves_leaves_nothing_behind(asked: Booster, new: list[str]) -> None:
    children = present(booster(backend(maxReplicas=2, autoscalingPolicy=METRICS)))

    decided = plan_changes(asked, children, KTHENA)

    assert [f"{a.kind.kind} {a.manifest['metadata']['name']}" for a in decided.applies] == new
    assert [f"{delete.kind.kind} {delete.key.name}" for delete in decided.deletes] == [
        "AutoscalingPolicyBinding m-a",
        "AutoscalingPolicy m-a",
    ]


@pytest.mark.parametrize(
    ("low", "high", "now", "then"), [(1, 5, 3, 3), (1, 5, 9, 5), (4, 5, 3, 4), (2, 2, 3, 2)]
)
def test_replicas_of_an_autoscaler_stay_within_the_bounds(
    low: int, high: int, now: int, then: int
) -> None:
    policy: Manifest = {"autoscalingPolicy": METRICS} if low < high else {}
    asked = booster(backend(minReplicas=low, maxReplicas=high, **policy))
    children = [
        there(
            child, manager=AUTOSCALER, **({"replicas": now} if "template" in child["spec"] else {})
        )
        for child in convert(asked, KTHENA)
    ]

    applies = plan_changes(asked, children, KTHENA).applies

    if now == then:
        assert applies == ()
    else:
        assert serving_of(applies)["spec"]["replicas"] == then


@pytest.mark.parametrize("manager", ["inferno-actuation", "inferno-operator"])
def test_replicas_of_the_plan_are_left_out_of_what_is_written(manager: str) -> None:
    children = present(booster(), manager)
    for child in children:
        if child["kind"] == "ModelServing":
            child["spec"]["replicas"] = 7
    asked = booster(backend(workers=[worker(image="engine:2")]))

    assert "replicas" not in serving_of(plan_changes(asked, children, KTHENA).applies)["spec"]


def test_replicas_that_are_ours_are_sent_with_the_version_that_they_are_of() -> None:
    children = present(booster(backend(maxReplicas=5, autoscalingPolicy=METRICS)))
    changed = backend(maxReplicas=5, autoscalingPolicy=METRICS, workers=[worker(image="engine:2")])

    serving = serving_of(plan_changes(booster(changed), children, KTHENA).applies)

    assert serving["spec"]["replicas"] == 1
    assert serving["metadata"]["resourceVersion"] == "7"


def test_replicas_of_an_autoscaler_stay_when_the_template_changes() -> None:
    scaled: Manifest = {"maxReplicas": 5, "autoscalingPolicy": METRICS}
    children = present(booster(backend(**scaled)), AUTOSCALER)
    for child in children:
        if child["kind"] == "ModelServing":
            child["spec"]["replicas"] = 3
    asked = booster(backend(workers=[worker(image="engine:2")], **scaled))

    assert "replicas" not in serving_of(plan_changes(asked, children, KTHENA).applies)["spec"]


def test_replicas_that_were_scaled_by_hand_stay_whatever_else_that_manager_wrote() -> None:
    asked = booster(backend(workers=[worker(image="engine:2")]))
    children = present(booster())
    serving = next(child for child in children if child["kind"] == "ModelServing")
    serving["spec"]["replicas"] = 3
    fields: Manifest = {"f:spec": {"f:replicas": {}}}
    serving["metadata"]["managedFields"] += [
        {"manager": "kubectl", "subresource": "scale", "fieldsV1": fields},
        {"manager": "kubectl", "fieldsV1": fields},
    ]

    assert serving_of(plan_changes(asked, children, KTHENA).applies)["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    "part", ["scalingConfiguration", "homogeneousTarget", "optimizerConfiguration"]
)
def test_bounds_of_the_plan_in_a_binding_stay(part: str) -> None:
    of_model = part == "optimizerConfiguration"

    def asked(costs: Any, tolerance: int) -> Booster:  # noqa: ANN401 - a field
        policy = {**METRICS, "tolerancePercent": tolerance}
        if of_model:
            return booster(backend(maxReplicas=5, scalingCost=costs), autoscalingPolicy=policy)
        port = [{"name": "RUNTIME_PORT", "value": f"810{costs}"}]
        if part == "homogeneousTarget":
            return later(backend(maxReplicas=5, env=port), autoscalingPolicy=policy)
        return booster(backend(maxReplicas=5, autoscalingPolicy=policy, env=port))

    children = present(asked(1, 10), "inferno-actuation")
    binding = next(c for c in children if c["kind"] == KTHENA.binding.kind)
    holder = binding["spec"][part]["params"][0] if of_model else binding["spec"][part]
    holder |= {"minReplicas": 4, "maxReplicas": 4}

    same = plan_changes(asked(1, 10), children, KTHENA)
    changed = plan_changes(asked(2, 10), children, KTHENA)

    assert same.applies == ()
    written = [a.manifest for a in changed.applies if a.kind == KTHENA.binding]
    assert len(written) == 1
    configuration = written[0]["spec"][part]
    if of_model:
        assert configuration["params"][0]["maxReplicas"] == 4
    else:
        assert "maxReplicas" not in configuration


def test_replicas_of_roles_that_were_scaled_stay_until_the_booster_asks_for_others() -> None:
    def roles_of(applies: tuple[Apply, ...]) -> dict[str, int]:
        roles = serving_of(applies)["spec"]["template"]["roles"]
        return {role["name"]: role["replicas"] for role in roles}

    def with_image(image: str, prefill: int) -> Booster:
        workers = [worker("prefill", replicas=prefill), worker("decode", replicas=2)]
        return booster(disaggregated(workers=[{**each, "image": image} for each in workers]))

    made = [apply.manifest for apply in plan_changes(with_image("e:1", 1), [], KTHENA).applies]
    children = [there(dict(child)) for child in made]
    assert plan_changes(with_image("e:1", 1), children, KTHENA).applies == ()
    (serving,) = (child for child in children if child["kind"] == KTHENA.serving.kind)
    serving["spec"]["template"]["roles"][0]["replicas"] = 5

    assert plan_changes(with_image("e:1", 1), children, KTHENA).applies == ()
    assert roles_of(plan_changes(with_image("e:2", 1), children, KTHENA).applies) == {
        "prefill": 5,
        "decode": 2,
    }
    assert roles_of(plan_changes(with_image("e:1", 3), children, KTHENA).applies) == {
        "prefill": 3,
        "decode": 2,
    }


def test_a_gang_policy_stays_and_that_is_told() -> None:
    children = present(asking("gang-scheduling", backend()))
    more = backend(workers=[worker(replicas=2)])
    old = {"minRoleReplicas": {"leader": 1}}

    for changed in (booster(more), asking("gang-scheduling", more)):
        decided = plan_changes(changed, children, KTHENA)
        assert serving_of(decided.applies)["spec"]["template"]["gangPolicy"] == old
        assert "m-a keeps its gang policy" in decided.remarks[0]


def test_a_child_of_somebody_else_is_told_and_left_alone() -> None:
    asked = booster()
    children = present(asked)
    route = next(child for child in children if child["kind"] == "ModelRoute")
    route["metadata"] |= {"ownerReferences": []}
    route["spec"] = {}

    decided = plan_changes(asked, children, KTHENA)

    assert decided.applies == ()
    assert [str(problem).split(" already exists")[0] for problem in decided.problems] == [
        "ModelRoute m"
    ]


@pytest.mark.parametrize(
    ("kind", "name", "changed"),
    [
        ("ModelServer", "m-a", {"ModelRoute"}),
        ("ModelServer", "m-b", {"ModelRoute"}),
        ("ModelServing", "m-b", {"ModelRoute", "AutoscalingPolicyBinding"}),
    ],
)
def test_nothing_leads_to_a_child_of_somebody_else(kind: str, name: str, changed: set[str]) -> None:
    costs = {"scalingCost": 1, "maxReplicas": 2}
    asked = booster(backend("a", **costs), backend("b", **costs), autoscalingPolicy=METRICS)
    children = present(asked)
    stranger = next(c for c in children if (c["kind"], c["metadata"]["name"]) == (kind, name))
    stranger["metadata"]["ownerReferences"] = [{"uid": "of-somebody-else"}]

    decided = plan_changes(asked, children, KTHENA)

    assert {apply.kind.kind for apply in decided.applies} == changed
    assert f'"{name}"' not in json.dumps([apply.manifest["spec"] for apply in decided.applies])
    assert decided.deletes == ()
    assert [problem.path for problem in decided.problems] == [f"{kind} {name}"]


def test_a_route_that_leads_only_to_somebody_else_goes() -> None:
    children = present(booster())
    server = next(child for child in children if child["kind"] == "ModelServer")
    server["metadata"]["ownerReferences"] = [{"uid": "of-somebody-else"}]

    decided = plan_changes(booster(), children, KTHENA)

    assert decided.applies == ()
    assert [(delete.kind, delete.key.name) for delete in decided.deletes] == [(KTHENA.route, "m")]


def test_what_somebody_else_made_is_not_deleted_where_its_name_is_not_wanted() -> None:
    children = present(booster(backend(autoscalingPolicy=METRICS)))
    for child in children[-2:]:  # policy and binding
        child["metadata"]["ownerReferences"] = [{"uid": "of-somebody-else"}]

    assert plan_changes(booster(), children, KTHENA).deletes == ()


@pytest.mark.parametrize(
    "change",
    [
        {"type": "MindIE"},
        {"workers": [worker(config=["a"])]},
        {"workers": [worker("decode")]},
        {"minReplicas": 3},
    ],
    ids=["type", "config", "role", "bounds"],
)
def test_a_bad_backend_does_not_hinder_the_others(change: Manifest) -> None:
    decided = plan_changes(booster(backend("a"), backend("b", **change)), [], KTHENA)

    assert [a.manifest["metadata"]["name"] for a in decided.applies] == ["m-a", "m-a", "m"]
    assert [problem.backend for problem in decided.problems] == ["b"]


@pytest.mark.parametrize("others", [[backend("a")], []], ids=["beside another", "alone"])
def test_a_backend_that_became_bad_goes_on_as_it_was(others: list[Manifest]) -> None:
    children = present(booster(*others, backend("b")))
    broken = booster(*others, backend("b", workers=[worker(image="a b")]))

    decided = plan_changes(broken, children, KTHENA)

    assert (decided.applies, decided.deletes) == ((), ())
    assert len(decided.problems) == 1


def test_a_backend_that_became_bad_scales_as_it_did() -> None:
    cost: Manifest = {"scalingCost": 1}
    good = backend("a", maxReplicas=2, **cost)
    before = booster(good, backend("b", maxReplicas=4, **cost), autoscalingPolicy=METRICS)
    bad = backend("b", minReplicas=9, maxReplicas=4, **cost)

    decided = plan_changes(booster(good, bad, autoscalingPolicy=METRICS), present(before), KTHENA)

    (binding,) = (apply.manifest["spec"] for apply in decided.applies)
    bounds = [
        (param["minReplicas"], param["maxReplicas"])
        for param in binding["optimizerConfiguration"]["params"]
    ]
    assert bounds == [(1, 2), (1, 4)]


def test_a_booster_that_makes_no_sense_as_a_whole_changes_nothing() -> None:
    children = present(booster(backend("a"), backend("b")))

    decided = plan_changes(read_booster({**manifest(), "spec": {}}, KTHENA), children, KTHENA)

    assert (decided.applies, decided.deletes) == ((), ())


def test_a_child_that_is_about_to_go_is_waited_for() -> None:
    asked = booster()
    children = present(asked)
    for child in children:
        child["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        child["spec"] = {}

    assert plan_changes(asked, children, KTHENA).applies == ()


ALLOCATED = objects.condition("Allocated", "Allocated")
WHOLE = {"name": "a", "accelerator": "A"}
ROLES = [{**WHOLE, "role": "Prefill"}, {**WHOLE, "role": "Decode", "accelerator": "B"}]


def decider(
    *conditions: Manifest, backends: list[Manifest] | None = None, **fields: object
) -> Server:
    """A Server that decides for backend `a`."""
    refers = {"name": "m", "backends": backends or [WHOLE], **fields}
    return server_of({"modelBooster": refers}, *(conditions or (ALLOCATED,)))


def server_of(spec: Manifest, *conditions: Manifest, **metadata: Any) -> Server:  # noqa: ANN401 - fields of metadata
    asked = objects.server(spec=spec, namespace="ns", **metadata)
    read = observe(Server, {**asked, "status": {"conditions": list(conditions)}}).resource
    assert isinstance(read, Server)
    return read


def edited(
    asked: Manifest, servers: list[Server], now: int = 4, by: str = "kubectl"
) -> tuple[Manifest, tuple[str, ...]]:
    """The serving that is applied after an edit, and remarks; `now` replicas run."""
    asked["metadata"]["managedFields"] = [owner_of_numbers(by)]
    made = read_booster(asked, KTHENA)
    before = booster(backend(workers=[worker(image="engine:0")]))
    children = [{**c, "spec": {**c["spec"], "replicas": now}} for c in present(before)[:1]]
    decided = plan_changes(made, children, KTHENA, servers)
    return serving_of(decided.applies + decided.scale_downs), decided.remarks


def owner_of_numbers(manager: str, *, single: bool = False) -> Manifest:
    numbers: Manifest = {
        f"f:{name}": {} for name in ("minReplicas", "maxReplicas", "replicas", "workers")
    }
    part = {"f:backend": numbers} if single else {"f:backends": {'k:{"name":"a"}': numbers}}
    return {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": part}}


FILE: Manifest = {"minReplicas": 0, "maxReplicas": 9}


@pytest.mark.parametrize("target", ["ModelBooster", "ModelServing", "Binding"])
@pytest.mark.parametrize("number", [0, 9])
def test_an_edit_leaves_the_replicas_that_a_server_decides(target: str, number: int) -> None:
    asked = manifest(backend(minReplicas=number, maxReplicas=9))

    serving, remarks = edited(asked, [decider(target=target)])

    assert serving["spec"]["replicas"] == 4
    assert serving["spec"]["template"]["roles"][0]["entryTemplate"]  # the image is the new one
    assert remarks == ("m-a keeps 4 replicas: Server 's' decides them",)


def test_numbers_that_actuation_has_set_are_followed() -> None:
    serving, remarks = edited(manifest(backend(**FILE)), [decider()], by="inferno-actuation")

    assert serving["spec"]["replicas"] == 0
    assert remarks == ()


@pytest.mark.parametrize(
    "server",
    [
        None,
        decider(objects.condition("Ready", "Ready")),
        decider(ALLOCATED, objects.condition("Actuated", "Recommended", status="False")),
        decider(backends=[{"name": "b", "accelerator": "A"}]),
        decider(name="other"),
        decider(dialect="matrixinfer"),
        server_of({"modelBooster": {"name": "m", "backends": [WHOLE]}}),
        server_of(
            {"modelBooster": {"name": "m", "backends": [WHOLE]}},
            ALLOCATED,
            deletionTimestamp=objects.born(1),
        ),
        server_of({"workloads": [{"accelerator": "A", "name": "m-a"}]}, ALLOCATED),
    ],
    ids=[
        "no Server",
        "nothing decided yet",
        "a recommendation",
        "another backend",
        "another booster",
        "another dialect",
        "not seen yet",
        "about to go",
        "a Deployment",
    ],
)
def test_the_number_of_the_file_rules_where_no_server_decides(server: Server | None) -> None:
    serving, remarks = edited(manifest(backend(**FILE)), [server] if server else [])

    assert serving["spec"]["replicas"] == 0
    assert remarks == ()


def test_a_server_that_has_no_decision_keeps_what_runs() -> None:
    held = objects.condition("Allocated", "InvalidSpec", status="False")

    serving, _ = edited(manifest(backend(**FILE)), [decider(held)])

    assert serving["spec"]["replicas"] == 4


def test_a_server_that_names_the_serving_keeps_what_runs() -> None:
    kind = {"apiVersion": KTHENA.serving.api_version, "kind": "ModelServing", "name": "m-a"}
    named = server_of({"workloads": [{"accelerator": "A", **kind}]}, ALLOCATED)

    serving, _ = edited(manifest(backend(**FILE)), [named])

    assert serving["spec"]["replicas"] == 4


def test_a_backend_without_a_serving_begins_with_the_number_of_the_file() -> None:
    asked = booster(backend(minReplicas=2, maxReplicas=2))

    assert serving_of(plan_changes(asked, [], KTHENA, [decider()]).applies)["spec"]["replicas"] == 2


def test_only_the_oldest_server_of_a_booster_decides() -> None:
    old = server_of(
        {"modelBooster": {"name": "m", "backends": [{"name": "b", "accelerator": "A"}]}},
        ALLOCATED,
        creationTimestamp=objects.born(0),
    )
    young = server_of(
        {"modelBooster": {"name": "m", "backends": [WHOLE]}},
        ALLOCATED,
        creationTimestamp=objects.born(1),
    )

    serving, _ = edited(manifest(backend(**FILE)), [young, old])

    assert serving["spec"]["replicas"] == 0


@pytest.mark.parametrize("by", ["kubectl", "inferno-actuation"])
def test_a_booster_with_one_backend_keeps_what_a_server_decides(by: str) -> None:
    one = {k: v for k, v in backend().items() if k not in ("minReplicas", "maxReplicas")}
    asked = {**manifest(), "spec": {"backend": {**one, "replicas": 1}}}
    asked["metadata"]["managedFields"] = [owner_of_numbers(by, single=True)]
    made = read_booster(asked, KTHENA)
    children = [{**c, "spec": {**c["spec"], "replicas": 4}} for c in present(made)[:1]]

    decided = plan_changes(made, children, KTHENA, [decider()])

    written = [a.manifest["spec"].get("replicas") for a in decided.applies if not a.new]
    assert written == ([] if by == "kubectl" else [1])


@pytest.mark.parametrize("part", ["scalingConfiguration", "optimizerConfiguration"])
def test_an_edit_leaves_the_bounds_that_a_server_decides(part: str) -> None:
    def asked(most: int, cost: int = 1) -> Booster:
        if part == "optimizerConfiguration":
            return booster(backend(maxReplicas=most, scalingCost=cost), autoscalingPolicy=METRICS)
        return booster(backend(maxReplicas=most, autoscalingPolicy=METRICS))

    children = present(asked(5))
    for child in children:
        if child["kind"] == KTHENA.serving.kind:
            child["spec"]["replicas"] = 4

    decided = plan_changes(asked(1), children, KTHENA, [decider(bounds="Ceiling")])

    written = {a.manifest["kind"]: a.manifest["spec"] for a in decided.applies}
    binding = written.get(KTHENA.binding.kind, {part: {"params": [{"maxReplicas": 5}]}})[part]
    assert {**binding, **binding.get("params", [{}])[0]}.get("maxReplicas", 5) == 5
    assert written.get(KTHENA.serving.kind, {}).get("replicas", 4) == 4


def test_an_edit_leaves_the_replicas_of_roles_that_a_server_decides() -> None:
    def asked(image: str, by: str, prefill: int) -> Booster:
        roles = [("prefill", prefill), ("decode", 1)]
        workers = [worker(role, replicas=count) for role, count in roles]
        given = manifest(disaggregated(workers=[{**each, "image": image} for each in workers]))
        given["metadata"]["managedFields"] = [owner_of_numbers(by)]
        return read_booster(given, KTHENA)

    actuated = asked("e:1", "inferno-actuation", 3)
    children = [there(dict(apply.manifest)) for apply in plan_changes(actuated, [], KTHENA).applies]
    apart = [decider(backends=ROLES)]

    def roles_after(image: str, by: str, prefill: int, servers: list[Server]) -> Manifest:
        decided = plan_changes(asked(image, by, prefill), children, KTHENA, servers)
        roles = serving_of(decided.applies)["spec"]["template"]["roles"]
        return {role["name"]: role["replicas"] for role in roles}

    assert roles_after("e:2", "kubectl", 1, apart) == {"prefill": 3, "decode": 1}
    assert roles_after("e:2", "inferno-actuation", 2, apart) == {"prefill": 2, "decode": 1}
    assert roles_after("e:2", "kubectl", 1, []) == {"prefill": 1, "decode": 1}
