"""The gauges of decisions, read back with the parser of the Prometheus client."""

from prometheus_client.parser import text_string_to_metric_families

from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.controllers.scaling.publication import Published, find_variant, publish
from inferno_operator.resources import Workload
from inferno_operator.resources.objects import Key
from tests.unit.operator import objects

Series = dict[str, dict[tuple[str, ...], float]]


def workload(accelerator: str, name: str) -> Workload:
    return Workload.model_validate({"accelerator": accelerator, "name": name})


CHAT = Published(
    Key("llm", "chat"),
    {"A": 3},
    current={"A": 2, "B": 1},
    workloads={"A": workload("A", "chat-a"), "B": workload("B", "chat-b")},
)
BOOSTED = Published(Key("prod", "code"), {"A": 4}, workloads={"A": None})
NEW = Published(Key("prod", "new"), None, "nothing was decided yet")


def named(decision: Published, accelerator: str) -> str:
    return find_variant(decision, accelerator, {})


def series(*decisions: Published, wva: bool = False) -> Series:
    """The values of the labels, in the order of their names, and the value of each sample."""
    metrics = OperatorMetrics()
    metrics.publish(lambda: decisions, named if wva else None)
    found: Series = {}
    for family in text_string_to_metric_families(metrics.page()[1].decode()):
        for sample in family.samples:
            values = tuple(sample.labels[name] for name in sorted(sample.labels))
            assert values not in found.setdefault(sample.name, {})
            found[sample.name][values] = sample.value
    return found


def test_every_workload_of_a_server_has_its_number() -> None:
    found = series(CHAT, BOOSTED, NEW)

    assert found["inferno_desired_replicas"] == {
        ("A", "llm", "chat", "chat-a"): 3,
        ("B", "llm", "chat", "chat-b"): 0,
        ("A", "prod", "code", ""): 4,
    }
    assert not any(name.startswith("wva_") for name in found)


def test_users_of_llm_d_find_the_names_that_they_know() -> None:
    found = series(CHAT, BOOSTED, NEW, wva=True)

    a, b = ("A", "llm", "llm", "chat-a"), ("B", "llm", "llm", "chat-b")
    code = ("A", "prod", "prod", "code")
    assert found["wva_desired_replicas"] == {a: 3, b: 0, code: 4}
    assert found["wva_current_replicas"] == {a: 2, b: 1, code: 0}
    assert found["wva_desired_ratio"] == {a: 1.5, b: 0.0, code: 4.0}


def test_each_role_has_its_own_replicas_and_the_name_of_its_accelerator() -> None:
    roles = {"A": "Both", "A decode": "Decode", "B prefill": "Prefill"}
    runs = {"prefill": {"accelerator": "B", "numReplicas": 3}}
    runs |= {"decode": {"accelerator": "A", "numReplicas": 1}}
    decided = {"prefill": {"accelerator": "B", "numReplicas": 6}}
    decided |= {"decode": {"accelerator": "A", "numReplicas": 2}}
    workloads = [
        {"accelerator": place[0], "role": role, "name": f"chat-{role.lower()}"}
        for place, role in roles.items()
    ]
    whole = {"accelerator": "A", "numReplicas": 4}
    spec = {
        "workloads": workloads,
        "currentAlloc": {**whole, "roles": runs},
        "desiredAlloc": {**whole, "numReplicas": 8, "roles": decided},
    }
    server = objects.server("Chat", spec=spec, namespace="llm")
    server["status"] = {"conditions": [objects.condition("Allocated", "Allocated")]}

    found = series(publish(objects.observed_server(server), None), wva=True)

    names = "A", "llm", "llm", "chat-decode"
    prompts = "B", "llm", "llm", "chat-prefill"
    both = "A", "llm", "llm", "chat-both"
    assert found["wva_desired_replicas"] == {names: 2, prompts: 6, both: 0}
    assert found["wva_current_replicas"] == {names: 1, prompts: 3, both: 0}
    assert found["inferno_desired_replicas"] == {
        ("A decode", "llm", "chat", "chat-decode"): 2,
        ("B prefill", "llm", "chat", "chat-prefill"): 6,
        ("A", "llm", "chat", "chat-both"): 0,
    }


def test_servers_that_share_a_workload_give_one_series() -> None:
    other = Published(Key("llm", "copy"), {"A": 9}, workloads={"A": workload("A", "chat-a")})

    found = series(CHAT, other, wva=True)

    assert found["wva_desired_replicas"]["A", "llm", "llm", "chat-a"] == 3


def test_a_server_that_is_gone_has_no_series() -> None:
    decisions = [CHAT]
    metrics = OperatorMetrics()
    metrics.publish(lambda: decisions, named)
    before = metrics.page()[1].decode()

    decisions.clear()

    assert "chat-a" in before
    assert "chat-a" not in metrics.page()[1].decode()
