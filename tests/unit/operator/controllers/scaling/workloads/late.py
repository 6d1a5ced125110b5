"""A cluster in memory whose watches are late."""

import asyncio
from collections.abc import AsyncGenerator

from inferno_operator.resources.objects import Kind
from inferno_operator.runtime.ports import ObjectChange
from tests.fakes import DEPLOYMENT, FakeCluster


class LateCluster(FakeCluster):
    """Shows changes of Deployments some seconds after they happen."""

    delay = 0.0

    async def watch(
        self, kind: Kind, namespace: str, since: int
    ) -> AsyncGenerator[ObjectChange, None]:
        """Yield the changes since a version, late."""
        async for change in super().watch(kind, namespace, since):
            if kind == DEPLOYMENT:
                await asyncio.sleep(self.delay)
            yield change
