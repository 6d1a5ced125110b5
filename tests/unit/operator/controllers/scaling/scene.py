"""A cluster in memory and in virtual time, in which the scaler runs."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.controller import ScalingController
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.informers import Informers
from tests.fakes import FakeCluster
from tests.unit.operator import objects

Manifest = dict[str, Any]

PATIENCE_S = 3000.0


class ClusterScene:
    """A cluster, and what Servers in it say."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()

    def now(self) -> datetime:
        return objects.NOW + timedelta(seconds=asyncio.get_running_loop().time())

    def time(self, seconds: float = 0.0) -> str:
        return f"{(self.now() + timedelta(seconds=seconds)).isoformat()[:19]}Z"

    def add_accelerator(self, name: str, cost: float = 10) -> None:
        """Add an accelerator that is one card of its own type."""
        spec = {"name": name, "type": name, "cost": cost}
        self.cluster.add(objects.manifest("Accelerator", spec, name=name.lower()))

    def add_cards(self, **counts: int) -> None:
        count = [{"type": name, "count": n} for name, n in counts.items()]
        self.cluster.add(objects.manifest("Capacity", {"count": count}, name="cards"))

    def server(self, name: str = "s") -> Manifest:
        stored: Manifest = self.cluster.objects["Server", Key("default", name)]
        return stored

    def condition(self, server: str = "s") -> Manifest:
        status = self.server(server).get("status", {})
        found = (c for c in status.get("conditions", ()) if c["type"] == "Actuated")
        return next(found, {"reason": "", "message": "", "status": ""})

    def reason(self, server: str = "s") -> str:
        reason: str = self.condition(server)["reason"]
        return reason

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not met():
                await self.cluster.something_changed()

    def controller(self) -> ScalingController:
        informers = Informers(self.cluster)
        return ScalingController(
            self.cluster, informers, lambda resources: build_system(resources).system, self.now
        )
