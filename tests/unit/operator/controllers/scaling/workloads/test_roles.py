"""Both roles of one serving are scaled, in a cluster in memory and in virtual time."""

from datetime import timedelta

import pytest

from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import Served
from tests.unit.operator import objects
from tests.unit.operator.background import started
from tests.unit.operator.controllers.scaling.scene import ClusterScene, Manifest

TOKENS = {"avgInTokens": 2000, "avgOutTokens": 100}


class Scene(ClusterScene):
    """Server `s` on two roles of serving `m`, whose kind has no scale subresource."""

    def __init__(
        self, dialect: str = "kthena", roles: tuple[str, ...] = ("prefill", "decode")
    ) -> None:
        super().__init__()
        self.dialect = DIALECTS[dialect]
        serving = self.dialect.serving
        self.cluster.workloads.append(Served(serving, is_scalable=False))
        for name in ("A", "B"):
            self.add_accelerator(name)
        step = {"alpha": 10, "kappa": 0.0001, "delta": 0.02, "ahead": 1, "budget": 8192}
        profile = {"accCount": 1, "stepParms": step, "maxBatchSize": 8, "atTokens": 256}
        data = [{"acc": "A", "role": "Prefill"}, {"acc": "B", "role": "Decode"}]
        self.cluster.add(objects.model("M", [{**profile, **each} for each in data]))
        self.cluster.add(objects.service_class())
        self.add_cards(A=8, B=8)
        kind = {"apiVersion": serving.api_version, "kind": serving.kind, "name": "m"}
        workloads = [{**each, **kind} for each in self._roles("accelerator")]
        self.cluster.add(objects.server(spec={"workloads": workloads}))
        self.serve(roles)

    @staticmethod
    def _roles(field: str) -> list[Manifest]:
        return [{field: "A", "role": "Prefill"}, {field: "B", "role": "Decode"}]

    def serve(self, roles: tuple[str, ...], groups: int = 1, manager: str = "kubectl") -> None:
        """Have a serving with these roles."""
        serving = self.dialect.serving
        fields: Manifest = {"f:spec": {"f:template": {"f:roles": {}}}}
        entries = [{"manager": manager, "fieldsV1": fields}]
        parts = [{"name": name, "replicas": 0, "workerReplicas": 0} for name in roles]
        self.cluster.add(
            {
                "apiVersion": serving.api_version,
                "kind": serving.kind,
                "metadata": {"name": "m", "managedFields": entries},
                "spec": {"replicas": groups, "template": {"roles": parts}},
            }
        )

    def cached(self, tokens: int) -> None:
        """Have a part of each prompt in prefix caches."""
        stored = self.cluster.objects["Server", Key("default", "s")]
        load = {"arrivalRate": 60, **TOKENS, "cachedTokens": tokens}
        measured = {"time": self.now().isoformat(), "quality": "Fresh", "load": load}
        self.cluster.add({**stored, "status": {"measured": measured}})

    def decide(self, prefill: int, decode: int) -> None:
        """Write a decision."""
        stored = self.cluster.objects["Server", Key("default", "s")]
        parts = {"prefill": ("A", prefill), "decode": ("B", decode)}
        roles = {
            name: {"accelerator": a, "numReplicas": n, "maxBatch": 1, "cost": 0}
            for name, (a, n) in parts.items()
        }
        load = {"arrivalRate": 60, **TOKENS}
        whole = {"accelerator": "B", "numReplicas": prefill + decode, "roles": roles, "load": load}
        generation = stored["metadata"]["generation"] + 1
        condition = objects.condition(ALLOCATED, "Allocated", observedGeneration=generation)
        spec = {**stored["spec"], "desiredAlloc": whole}
        status = {**stored.get("status", {}), "conditions": [condition]}
        self.cluster.add({**stored, "spec": spec, "status": status})

    def run(
        self,
        role: str,
        replicas: int,
        pods: int = 2,
        since: str = objects.born(0),
        *,
        ready: bool = True,
    ) -> None:
        """Have replicas of a role that are ready since a time, or not, of several pods each."""
        condition = objects.condition("Ready", "", status=str(ready), lastTransitionTime=since)
        for replica in range(replicas):
            for place in range(pods):
                labels = {"name": "m", "role": role} | ({} if place else {"entry": "true"})
                self.cluster.add(
                    {
                        "kind": "Pod",
                        "metadata": {
                            "name": f"m-0-{role}-{replica}-{place}",
                            "labels": {self.dialect.pod_label(k): v for k, v in labels.items()},
                            "creationTimestamp": objects.born(0),
                        },
                        "spec": {"nodeName": "n"},
                        "status": {
                            "phase": "Running",
                            "conditions": [condition],
                        },
                    }
                )

    @property
    def numbers(self) -> dict[str, int]:
        serving = self.cluster.objects[self.dialect.serving.kind, Key("default", "m")]
        return {role["name"]: role["replicas"] for role in serving["spec"]["template"]["roles"]}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
async def test_a_decision_reaches_both_roles_and_only_their_numbers(dialect: str) -> None:
    scene = Scene(dialect, ("router", "prefill", "decode"))
    scene.decide(3, 2)

    async with started(scene.controller()):
        await scene.until(lambda: scene.numbers == {"router": 0, "prefill": 3, "decode": 2})
        scene.run("prefill", 3)
        scene.run("decode", 2)
        await scene.until(lambda: scene.reason() == "Actuated")
        current = scene.cluster.objects["Server", Key("default", "s")]["spec"]["currentAlloc"]

    assert {r: part["numReplicas"] for r, part in current["roles"].items()} == {
        "prefill": 3,
        "decode": 2,
    }
    assert {write for write in scene.cluster.writes if "Server" not in write} == {
        f"role {scene.dialect.serving.kind} m"
    }


@pytest.mark.parametrize(
    ("roles", "groups", "reason", "text"),
    [
        (("prefill", "p"), 1, "NotFound", "has no role 'decode'"),
        (("prefill", "decode"), 2, "SeveralGroups", "has 2 groups: set its spec.replicas to 1"),
        (("prefill", "decode"), 0, "SeveralGroups", "has 0 groups"),
    ],
)
async def test_numbers_that_would_mean_something_else_are_not_written(
    roles: tuple[str, ...], groups: int, reason: str, text: str
) -> None:
    scene = Scene()
    scene.serve(roles, groups)
    scene.decide(3, 2)

    async with started(scene.controller()):
        await scene.until(lambda: scene.reason() == reason)
        held = dict(scene.numbers)
        scene.serve(("prefill", "decode"))
        await scene.until(lambda: scene.numbers == {"prefill": 3, "decode": 2})

    assert text in scene.condition()["message"] or scene.reason() == "Moving"
    assert set(held.values()) == {0}


async def test_another_writer_of_the_roles_is_named() -> None:
    scene = Scene()
    scene.decide(3, 2)

    async with started(scene.controller()):
        await scene.until(lambda: scene.numbers == {"prefill": 3, "decode": 2})
        scene.serve(("prefill", "decode"), manager="argocd")
        await scene.until(lambda: scene.reason() == "ForeignWriter")

    assert "'argocd'" in scene.condition()["message"]
    assert scene.numbers == {"prefill": 0, "decode": 0}


async def test_replicas_of_both_roles_that_start_are_told() -> None:
    scene = Scene()
    scene.decide(3, 2)

    def told() -> list[tuple[str, int, int]]:
        current = scene.cluster.objects["Server", Key("default", "s")]["spec"]["currentAlloc"]
        roles = current.get("roles", {})
        return [(r, p["numReplicas"], p.get("startingReplicas", 0)) for r, p in roles.items()]

    async with started(scene.controller()):
        await scene.until(lambda: scene.numbers == {"prefill": 3, "decode": 2})
        for role, number in (("prefill", 3), ("decode", 2)):
            scene.run(role, number, ready=False)
        await scene.until(lambda: told() == [("prefill", 0, 3), ("decode", 0, 2)])
        scene.run("prefill", 3, since=scene.now().isoformat())
        await scene.until(lambda: ("prefill", 3, 0) in told())

    assert told() == [("prefill", 3, 0), ("decode", 0, 2)]


@pytest.mark.parametrize("cached", [0, 500])
async def test_prefill_replicas_are_cold_for_ten_minutes_where_prompts_are_cached(
    cached: int,
) -> None:
    scene = Scene()
    scene.cached(cached)
    scene.decide(3, 2)

    def cold() -> dict[str, int]:
        current = scene.cluster.objects["Server", Key("default", "s")]["spec"]["currentAlloc"]
        roles = current.get("roles", {})
        return {role: part.get("coldReplicas", 0) for role, part in roles.items()}

    async with started(scene.controller()):
        await scene.until(lambda: scene.numbers == {"prefill": 3, "decode": 2})
        for role, number in (("prefill", 3), ("decode", 2)):
            scene.run(role, number, since=scene.now().isoformat())
        await scene.until(lambda: cold() == {"prefill": 3 if cached else 0, "decode": 0})
        began = scene.now()
        await scene.until(lambda: cold() == {"prefill": 0, "decode": 0})

    waited = timedelta(minutes=10 if cached else 0)
    assert scene.now() - began == pytest.approx(waited, abs=timedelta(seconds=5))
