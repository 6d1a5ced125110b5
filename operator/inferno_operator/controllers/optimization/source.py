"""Where the objects of a namespace come from: read on demand, or mirrored."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from inferno_operator.resources import RESOURCES, Optimizer
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Cluster

READ = tuple(kind for kind in RESOURCES if kind is not Optimizer)
"""The kinds that an optimization reads."""


class Source(Protocol):
    """What an optimization reads."""

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Every object of the kinds in `READ` that is to stay, in any order.

        Raises
        ------
        UnavailableError
            Not all of them are known now.
        """


class OnDemand:
    """Reads objects when they are asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Every object as it is now."""
        lists = await asyncio.gather(*(self._cluster.list(kind, namespace) for kind in READ))
        found = (
            observe(kind, manifest)
            for kind, manifests in zip(READ, lists, strict=True)
            for manifest in manifests
        )
        return [observation for observation in found if observation.deleted is None]
