"""The objects of `inferno generate`, read by stand-ins for KEDA and the HPA controller.

The decisions are those of Servers on a cluster in memory, served over HTTP as the operator does.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from inferno_operator.adapters.http import app as health
from inferno_operator.adapters.http.app import Decisions
from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.cli.autoscalers import build_manifests
from inferno_operator.cli.options import Access, Autoscaler
from inferno_operator.controllers.scaling.publication import Publication
from inferno_operator.resources import Server, parse
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.runtime.informers import Informers
from tests.autoscalers.hpa import HorizontalPodAutoscaler, Target
from tests.autoscalers.keda import Keda
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster
from tests.unit.operator import objects

Manifest = dict[str, Any]

SECRET = "inferno-publish-token"  # noqa: S105 - the name of a Secret
TOKEN = "t0ken"  # noqa: S105 - of the test
STEP_S = 15.0
OUTAGE_STEPS = 80
"""Twenty minutes, longer than every window and cooldown."""

WORKLOADS = [{"accelerator": "A", "name": "on-a"}, {"accelerator": "B", "name": "on-b"}]


def server(reason: str = "Allocated", **replicas: int) -> Manifest:
    """A Server with a decision."""
    mix = [{"accelerator": name, "numReplicas": count} for name, count in replicas.items() if count]
    desired = {"accelerator": "", "numReplicas": 0, **(mix[0] if mix else {}), "mix": mix}
    fields = {"workloads": WORKLOADS, "actuation": "Publish", "desiredAlloc": desired}
    said = reason if mix or reason != "Allocated" else "NoCapacity"
    condition = objects.condition("Allocated", said, status=str(bool(mix)))
    manifest = objects.server("S", spec=fields, namespace="default")
    return {**manifest, "status": {"conditions": [condition]}}


APART = [
    {"accelerator": "A", "name": "whole"},
    {"accelerator": "B", "role": "Prefill", "name": "prompts"},
    {"accelerator": "A", "role": "Decode", "name": "answers"},
]


def apart(prefill: int, decode: int) -> Manifest:
    """A Server with a decision for both roles; A may run replicas that do both, too."""
    roles = {
        "prefill": {"accelerator": "B", "numReplicas": prefill},
        "decode": {"accelerator": "A", "numReplicas": decode},
    }
    whole = {"accelerator": "A", "numReplicas": prefill + decode, "roles": roles}
    found = server(A=1)
    return {**found, "spec": {**found["spec"], "workloads": APART, "desiredAlloc": whole}}


class Stage:
    """A Server whose workloads KEDA scales, and the endpoint of the operator.

    Attributes
    ----------
    targets
        The workloads by name.
    """

    def __init__(self, token: Path, client: httpx.AsyncClient) -> None:
        self.cluster = FakeCluster()
        self.publication = Publication(self.cluster, Informers(self.cluster))
        self.metrics = OperatorMetrics()
        self.metrics.publish(self.publication.decisions)
        self.targets: dict[str, Target] = {}
        self._decisions = Decisions(self.publication.decision, token)
        self._client = client
        self._serving = AsyncExitStack()
        self._port = 0
        self._now = 0.0
        self._pairs: list[tuple[Keda, HorizontalPodAutoscaler, Target]] = []

    async def start(self) -> None:
        """Serve, on the same port as before."""
        page = self.metrics.page
        served = health.serve(health.LOOPBACK, self._port, (str, str), page, self._decisions)
        self._port = await self._serving.enter_async_context(served)

    async def stop(self) -> None:
        """Stop serving."""
        await self._serving.aclose()

    def generated(self, autoscaler: Autoscaler) -> list[Manifest]:
        """The objects that the command prints for the Server."""
        found = parse(self.cluster.objects["Server", Key("default", "s")])
        assert isinstance(found, Server)
        access = Access(f"http://{health.LOOPBACK}:{self._port}", SECRET, 1000)
        return list(yaml.safe_load_all(build_manifests(autoscaler, [found], access, None)))

    def scale_with_keda(
        self, replicas: Mapping[str, int], changes: Manifest | None = None, *, gate: bool = True
    ) -> None:
        """Create the objects, with changes of the specs of ScaledObjects, and the workloads."""
        authentication, *scaled = deepcopy(self.generated(Autoscaler.KEDA))
        secrets = {SECRET: {"token": TOKEN}}
        for item in scaled:
            item["spec"] |= changes or {}
            name = item["spec"]["scaleTargetRef"]["name"]
            target = self.targets[name] = Target(replicas[name], replicas[name])
            keda = Keda(item, authentication, secrets, target, self._clock, self._client)
            hpa = HorizontalPodAutoscaler(keda.hpa(), self._clock, gate)
            self._pairs.append((keda, hpa, target))

    def decide(self, manifest: Manifest) -> None:
        """Write a decision."""
        self.cluster.add(manifest)

    async def steps(self, count: int = 8) -> dict[str, int]:
        """Let time pass; returns the replicas."""
        await asyncio.sleep(0)
        await self.known()
        for _ in range(count):
            self._now += STEP_S
            for keda, hpa, target in self._pairs:
                await keda.poll()
                hpa.synchronize(target, await keda.metric())
                target.exist = target.replicas
        return {name: target.replicas for name, target in self.targets.items()}

    async def known(self) -> None:
        """Let the watch pass on what has changed."""
        for _ in range(20):
            await asyncio.sleep(0)

    def _clock(self) -> float:
        return self._now


@asynccontextmanager
async def stage(token: Path) -> AsyncGenerator[Stage, None]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        scene = Stage(token, client)
        watch = asyncio.create_task(scene.publication.run())
        await scene.start()
        yield scene
        await scene.stop()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


def without_tolerance(spec: Manifest) -> Manifest:
    """The rules of a ScaledObject without the tolerances."""
    advanced: Manifest = deepcopy(spec["advanced"])
    for rules in advanced["horizontalPodAutoscalerConfig"]["behavior"].values():
        del rules["tolerance"]
    return advanced


CHANGES = [(10, 11), (11, 10), (30, 27), (20, 22), (1, 40), (40, 1), (0, 3), (3, 0), (1, 1)]


@pytest.mark.parametrize(("before", "decided"), CHANGES)
async def test_keda_carries_out_every_decision(before: int, decided: int, token: Path) -> None:
    async with stage(token) as scene:
        scene.decide(server(A=decided))
        scene.scale_with_keda({"on-a": before, "on-b": 0})

        assert await scene.steps() == {"on-a": decided, "on-b": 0}


@pytest.mark.parametrize("reason", ["no tolerance", "no feature gate"])
@pytest.mark.parametrize(("before", "decided"), [(10, 11), (30, 27)])
async def test_without_the_tolerance_small_changes_are_not_carried_out(
    reason: str, before: int, decided: int, token: Path
) -> None:
    async with stage(token) as scene:
        scene.decide(server(A=decided))
        _, first, _ = scene.generated(Autoscaler.KEDA)
        changes = {"advanced": without_tolerance(first["spec"])}
        has_gate = reason != "no feature gate"
        scene.scale_with_keda(
            {"on-a": before, "on-b": 0}, changes if has_gate else None, gate=has_gate
        )

        assert await scene.steps() == {"on-a": before, "on-b": 0}


async def test_a_move_to_another_accelerator_is_carried_out(token: Path) -> None:
    async with stage(token) as scene:
        scene.decide(server(B=4))
        scene.scale_with_keda({"on-a": 6, "on-b": 0})

        assert await scene.steps() == {"on-a": 0, "on-b": 4}

        scene.decide(server(A=2, B=3))
        assert await scene.steps() == {"on-a": 2, "on-b": 3}


async def test_each_role_gets_its_own_number(token: Path) -> None:
    async with stage(token) as scene:
        scene.decide(apart(prefill=5, decode=2))
        scene.scale_with_keda({"whole": 6, "prompts": 0, "answers": 0})

        assert await scene.steps() == {"whole": 0, "prompts": 5, "answers": 2}


async def test_while_the_operator_is_down_replicas_stay(token: Path) -> None:
    async with stage(token) as scene:
        scene.decide(server(A=7))
        scene.scale_with_keda({"on-a": 6, "on-b": 0})
        await scene.steps()

        await scene.stop()
        assert await scene.steps(OUTAGE_STEPS) == {"on-a": 7, "on-b": 0}

        scene.decide(server(A=8))
        await scene.start()
        assert await scene.steps() == {"on-a": 8, "on-b": 0}


@pytest.mark.parametrize("what", ["UnknownModel", "InvalidSpec", "another token", "deleted"])
async def test_while_no_decision_can_be_read_replicas_stay(what: str, token: Path) -> None:
    async with stage(token) as scene:
        key = scene.cluster.add(server(A=7))
        scene.scale_with_keda({"on-a": 7, "on-b": 0})
        await scene.steps()

        if what == "deleted":
            scene.cluster.remove(kind_of(Server), key)
        elif what == "another token":
            scene.decide(server(A=2))
            await asyncio.to_thread(token.write_text, "another")
        else:
            scene.decide(server(what))
        assert await scene.steps(OUTAGE_STEPS) == {"on-a": 7, "on-b": 0}

        await asyncio.to_thread(token.write_text, TOKEN)
        scene.decide(server(B=2))
        assert await scene.steps() == {"on-a": 0, "on-b": 2}


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (1, {"on-a": 7, "on-b": 1}),  # KEDA counts a fallback as activity: it starts what has none
        (0, {"on-a": 1, "on-b": 1}),  # until then it counts an error as inactivity: it stops all
    ],
)
async def test_with_a_fallback_to_the_current_replicas_they_would_not_stay(
    replicas: int, expected: dict[str, int], token: Path
) -> None:
    fallback = {"failureThreshold": 3, "replicas": replicas, "behavior": "currentReplicas"}
    async with stage(token) as scene:
        scene.decide(server(A=7))
        scene.scale_with_keda({"on-a": 7, "on-b": 0}, {"fallback": fallback})
        await scene.steps()
        await scene.stop()

        seen = [await scene.steps(1) for _ in range(OUTAGE_STEPS)]

    assert expected in seen


@pytest.mark.parametrize(("before", "decided"), [(10, 11), (30, 27), (1, 40), (40, 1)])
async def test_an_hpa_on_the_metric_carries_out_every_decision(
    before: int, decided: int, token: Path
) -> None:
    async with stage(token) as scene:
        scene.decide(server(A=decided, B=3))
        await scene.known()
        manifest, _ = scene.generated(Autoscaler.HPA)
        target = Target(before, before)
        controller = HorizontalPodAutoscaler(manifest, lambda: 0.0)

        controller.synchronize(target, selected(manifest, scene.metrics))

    assert target.replicas == decided


async def test_an_hpa_of_a_role_selects_the_number_of_that_role(token: Path) -> None:
    async with stage(token) as scene:
        scene.decide(apart(prefill=5, decode=2))
        await scene.known()
        found = {
            manifest["metadata"]["name"]: selected(manifest, scene.metrics)
            for manifest in scene.generated(Autoscaler.HPA)
        }

    assert found == {"whole": 0, "prompts": 5, "answers": 2}


def selected(manifest: Manifest, metrics: OperatorMetrics) -> float:
    """The sum of the series that an adapter finds for an HPA, as the controller adds them up."""
    wanted = manifest["spec"]["metrics"][0]["external"]["metric"]
    labels = {**wanted["selector"]["matchLabels"], "namespace": manifest["metadata"]["namespace"]}
    families = text_string_to_metric_families(metrics.page()[1].decode())
    samples = [s for f in families for s in f.samples if s.name == wanted["name"]]
    return sum(s.value for s in samples if labels.items() <= s.labels.items())
