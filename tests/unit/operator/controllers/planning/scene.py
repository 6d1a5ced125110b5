"""A cluster in memory with an Optimizer, the optimization and the plans controller's parts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from inferno_operator.controllers.planning.plans import (
    FOLLOWED,
    PlanApprover,
    PlanContext,
    PlanStore,
)
from inferno_operator.controllers.planning.plans import reconcile_plans as reconcile_a_namespace
from inferno_operator.controllers.planning.ports import Context as OptimizationContext
from inferno_operator.controllers.planning.ports import (
    Loads,
    OnDemand,
    Optimization,
    Permission,
    SystemOptimizer,
)
from inferno_operator.controllers.planning.proposal import Seal, compute_plan_digest, optimizer_of
from inferno_operator.controllers.planning.reconcile import reconcile as reconcile_an_optimizer
from inferno_operator.controllers.planning.waking import wake
from inferno_operator.controllers.scaling.decision import WantedReplicas, read_decision
from inferno_operator.resources import Plan, Server, parse
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Listing
from inferno_operator.runtime.work_queue import Locks, ReconcileResult
from inferno_optimizer.placement import Node
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator import objects
from tests.unit.operator.background import in_background
from tests.unit.operator.objects import NOW

KEY = b"the key of all operators of this cluster"
NAMESPACE = "default"
INFERNO = Key(NAMESPACE, "inferno")


async def key() -> bytes:
    """The key of the operator."""
    return KEY


def cluster_of(*manifests: Manifest, namespace: str | None = None) -> FakeCluster:
    """A cluster in memory with these objects."""
    cluster = FakeCluster()
    for manifest in manifests:
        cluster.add(manifest, namespace)
    return cluster


async def until(cluster: FakeCluster, met: Callable[[], bool]) -> None:
    """Wait for what changes a cluster."""
    async with asyncio.timeout(PATIENCE_S):
        while not met():
            await cluster.something_changed()


class NoNodes:
    """Knows no nodes: the cards are those that Capacity objects declare."""

    async def nodes(self, namespace: str) -> Sequence[Node]:
        """Return no nodes."""
        del namespace
        return ()


class TypedLoads:
    """Leaves Servers the load that their manifest has."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return them as they are."""
        return observations

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return them as they are."""
        return observations


class ApproveAll:
    """Permits everything, and records nothing."""

    async def permit(self, optimization: Optimization) -> Permission:
        """Permit all updates."""
        return Permission(optimization.updates)

    async def permit_additions(self, optimization: Optimization) -> Permission:
        """Permit all updates that change something."""
        return Permission([update for update in optimization.updates if update.moves])

    async def written(self, permission: Permission) -> None:
        """Do nothing."""


def context_of(
    cluster: FakeCluster,
    solver: SystemOptimizer | None = None,
    now: Callable[[], datetime] = lambda: NOW,
    **others: Any,  # noqa: ANN401 - of a Context
) -> OptimizationContext:
    """What a reconcile needs, on a cluster in memory."""
    return OptimizationContext(
        **{
            "cluster": cluster,
            "source": OnDemand(cluster),
            "optimizer": solver or FakeOptimizer(),
            "now": now,
            "steady": now,
            "loads": TypedLoads(),
            "machines": NoNodes(),
            "approver": ApproveAll(),
            **others,
        }
    )


def signed(manifest: Manifest) -> Manifest:
    """The same Plan, signed with the key of the operator."""
    plan = parse(manifest)
    assert isinstance(plan, Plan)
    place = Key(plan.metadata.namespace, plan.metadata.name)
    digest = compute_plan_digest(plan.spec)
    signature = Seal(KEY).signature(place, optimizer_of(plan), digest)
    return {**manifest, "spec": {**manifest["spec"], "digest": digest, "signature": signature}}


class Killed(BaseException):
    """The operator ends here; nothing of it may be caught."""


class MortalCluster(FakeCluster):
    """The operator is killed after so many writes.

    Attributes
    ----------
    listed
        The kinds that were listed, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: int | None = None
        self.listed: list[str] = []

    async def list(self, kind: Kind, namespace: str) -> Listing:
        self.listed.append(kind.kind)
        return await super().list(kind, namespace)

    def kill_after(self, writes: int | None) -> None:
        self._left = writes

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        self._count()
        return await super().apply(kind, manifest, manager, force=force)

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        self._count()
        await super().merge(kind, manifest, manager)

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Killed


class Scene:
    """Two Servers and enough cards; an Optimizer that the test writes."""

    def __init__(self, cluster: MortalCluster, loads: Loads) -> None:
        self.cluster = cluster
        self._loads = loads
        self.now = NOW
        self.objects = Informers(cluster).subscribe(FOLLOWED)
        source, locks, writes = OnDemand(cluster), Locks(), Locks()
        store = PlanStore(self.objects, cluster, self.clock, key)
        self._plans = PlanContext(cluster, store, source, loads, self.clock, locks, writes)
        self._optimization = context_of(
            cluster,
            now=self.clock,
            loads=loads,
            approver=PlanApprover(store, self.clock),
            locks=locks,
            writes=writes,
        )

    def clock(self) -> datetime:
        return self.now

    def write_optimizer(self, **spec: object) -> None:
        """Write the Optimizer; it asks for an optimization unless told otherwise."""
        manifest = objects.optimizer(optimize=spec.pop("optimize", True))  # type: ignore[arg-type]  # a truth value
        manifest["spec"].update(spec)
        self.cluster.add(manifest)

    async def propose(self, **spec: object) -> None:
        """Optimize, with an Optimizer whose Plans wait for an approval."""
        self.write_optimizer(mode="Approve", **spec)
        await self.optimize()

    async def optimize(self) -> ReconcileResult:
        return await reconcile_an_optimizer(INFERNO, self._optimization)

    async def wake(self) -> ReconcileResult:
        """Give Servers without replicas their first one."""
        await self.seen()
        return await wake(INFERNO, self._optimization)

    async def advance(self, namespace: str = NAMESPACE) -> ReconcileResult:
        """Reconcile the Plans as often as they ask for it at once."""
        await self.seen()
        return await reconcile_a_namespace(namespace, self._plans)

    async def seen(self) -> None:
        """Wait until the watch has shown every change."""
        for _ in range(20):
            await asyncio.sleep(0)

    def later(self, **time: float) -> None:
        self.now += timedelta(**time)

    def answer(self, name: str, state: str, **fields: object) -> None:
        """Answer as a person does; with the digest of the Plan unless told otherwise."""
        plan = self.cluster.objects["Plan", Key(NAMESPACE, name)]
        approval = {"state": state, "digest": plan["spec"]["digest"], "by": "ann", **fields}
        status = {**plan.get("status", {}), "approval": approval}
        self.cluster.add({**plan, "status": status})

    def forge(self, name: str, **spec: object) -> None:
        """Change what a Plan says, as somebody could who had stolen the key."""
        plan = self.cluster.objects["Plan", Key(NAMESPACE, name)]
        self.cluster.add(signed({**plan, "spec": {**plan["spec"], **spec}}))

    def change(self, kind: str, name: str, **spec: object) -> None:
        """Change fields of a spec, as a person does."""
        stored = self.cluster.objects[kind, Key(NAMESPACE, name)]
        self.cluster.add({**stored, "spec": {**stored["spec"], **spec}})

    def desired(self) -> dict[str, int]:
        """The replicas that are decided, by Server; those without a decision are left out."""
        return {
            key.name: manifest["spec"]["desiredAlloc"]["numReplicas"]
            for (kind, key), manifest in self.cluster.objects.items()
            if kind == "Server" and "desiredAlloc" in manifest["spec"]
        }

    def actuated(self, server: str, reason: str, status: str, message: str = "") -> None:
        """Report as actuation does, about the newest generation."""
        stored = self.cluster.objects["Server", Key(NAMESPACE, server)]
        told = {
            "type": "Actuated",
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": stored["metadata"]["generation"] + 1,  # after this change
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        }
        before = stored.get("status", {})
        others = [c for c in before.get("conditions", ()) if c["type"] != "Actuated"]
        conditions = {"conditions": [*others, told]}
        self.cluster.add({**stored, "status": {**before, **conditions}})

    def restarted(self) -> "AbstractAsyncContextManager[Scene]":
        """Another operator on the same objects."""
        return _running(Scene(self.cluster, self._loads))

    def phases(self) -> dict[str, str]:
        return {name: plan["status"].get("phase", "") for name, plan in self.plans().items()}

    def plans(self) -> dict[str, dict[str, Any]]:
        found = self.cluster.objects.items()
        return {key.name: {"status": {}, **m} for (kind, key), m in found if kind == "Plan"}

    def told(self, name: str) -> tuple[str, str]:
        """Reason and message of the condition of a Plan."""
        (condition,) = self.plans()[name]["status"]["conditions"]
        return condition["reason"], condition["message"]

    def conditions(self) -> dict[str, list[Manifest]]:
        """The conditions of the Servers."""
        found = self.cluster.objects.items()
        return {k.name: m["status"]["conditions"] for (kind, k), m in found if kind == "Server"}

    def wanted(self, server: str) -> WantedReplicas:
        """What actuation reads from a Server."""
        stored = observe(Server, self.cluster.objects["Server", Key(NAMESPACE, server)])
        assert isinstance(stored.resource, Server)
        return read_decision(stored.resource)

    def optimized(self) -> str:
        """What the Optimizer says of its last optimization."""
        conditions = self.cluster.objects["Optimizer", INFERNO]["status"]["conditions"]
        found: str = next(c["message"] for c in conditions if c["type"] == "Optimized")
        return found


@asynccontextmanager
async def scene_of(
    *manifests: Manifest, loads: Loads | None = None, cluster: MortalCluster | None = None
) -> AsyncIterator[Scene]:
    """A scene with Servers s and t, which need 2 replicas and 1, or with these objects."""
    cluster = cluster or MortalCluster()
    servers = manifests or (objects.server("S", wanted=2), objects.server("T", wanted=1))
    model, class_ = objects.model(), objects.service_class()
    for manifest in (objects.accelerator(), model, class_, objects.capacity(20), *servers):
        cluster.add(manifest)
    async with _running(Scene(cluster, loads or TypedLoads())) as scene:
        yield scene


@asynccontextmanager
async def _running(scene: Scene) -> AsyncIterator[Scene]:
    async with in_background(scene.objects.run()):
        await scene.seen()
        yield scene
