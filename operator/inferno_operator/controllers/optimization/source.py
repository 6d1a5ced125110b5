"""Sources of the objects of a namespace: read on demand, or mirrored."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from inferno_operator.resources import SYSTEM_RESOURCES, Optimizer
from inferno_operator.resources.objects import kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.ports import Reader

READ = tuple(kind for kind in SYSTEM_RESOURCES if kind is not Optimizer)
"""The kinds that an optimization reads."""


class ObjectSource(Protocol):
    """Gives an optimization its objects."""

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects of the kinds in `READ` that are not being deleted, in any order.

        Raises
        ------
        UnavailableError
            Some kinds cannot be read now.
        """


class OnDemand:
    """Reads the objects from the API server for each optimization."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects as they are now."""
        lists = await asyncio.gather(*(self._reader.list(kind_of(k), namespace) for k in READ))
        observations = (
            observe(kind, manifest)
            for kind, listing in zip(READ, lists, strict=True)
            for manifest in listing.manifests
        )
        return [observation for observation in observations if observation.deleted is None]


class Mirrored:
    """Takes the objects from memory, where watches keep them up to date.

    Parameters
    ----------
    objects
        The objects of the kinds in `READ`, and perhaps others.
    patience
        Seconds until all objects must be known.
    """

    def __init__(self, objects: Subscription, patience: float = 10.0) -> None:
        self._objects = objects
        self._patience = patience

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects as they are known."""
        await self._objects.complete(self._patience)
        return [
            observation
            for kind in READ
            for observation in self._objects.observations(kind_of(kind), namespace)
            if observation.deleted is None
        ]
