"""Watch Servers in every operator, also in one that does not lead, and answer for them."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from inferno_operator.controllers.actuation.autoscalers import list_autoscalers
from inferno_operator.controllers.actuation.publication.plan import Published, publish
from inferno_operator.controllers.actuation.publication.variants import (
    Target,
    variant,
    variants,
)
from inferno_operator.controllers.actuation.recommendation import OPTIMIZER, recommended_by
from inferno_operator.controllers.actuation.release import SERVER
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.cache import Cache, Difference
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, GoneError, Listing, Reader
from inferno_optimizer.errors import InfernoError, UnavailableError

VARIANTS_SECONDS = 60.0
"""Seconds between two lists of autoscalers, which are not watched."""


class Publication:
    """The decisions for all Servers, as the API server has them.

    Parameters
    ----------
    reader
        The API server.
    namespaces
        The namespaces to watch; if empty, all.
    names_variants
        Whether `variant` knows the names of autoscalers.
    """

    def __init__(
        self, reader: Reader, namespaces: Sequence[str], *, names_variants: bool = False
    ) -> None:
        self._reader = reader
        self._namespaces = namespaces
        self._names_variants = names_variants
        self._cache = Cache()
        self._servers: dict[Key, Observation] = {}
        self._optimizers: defaultdict[str, dict[str, Manifest]] = defaultdict(dict)
        self._published: dict[Key, Published] = {}
        self._informer = Informer(reader, [SERVER, OPTIMIZER], namespaces, self)
        self._variants: Mapping[Target, str] = {}

    async def run(self) -> None:
        """Watch Servers and Optimizers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            if self._names_variants:
                group.create_task(self._name_variants())

    def unready(self) -> str:
        """Return why decisions are not known; "" if they are."""
        return next((_trouble(error) for error in self._informer.missing.values()), "")

    def decision(self, key: Key) -> Published:
        """Return what is published of a Server.

        Raises
        ------
        UnavailableError
            The Servers of the namespace are not known now.
        GoneError
            There is no such Server.
        """
        for (_, namespace), error in self._informer.missing.items():
            if namespace in ("", key.namespace):
                raise UnavailableError(_trouble(error))
        try:
            return self._published[key]
        except KeyError:
            raise GoneError(f"Server {key} does not exist") from None

    def decisions(self) -> Iterable[Published]:
        """Return what is published, in the order of the keys; the last state if a watch failed."""
        return [self._published[key] for key in sorted(self._published)]

    def variant(self, decision: Published, accelerator: str) -> str:
        """Return the name by which users of llm-d know the workload on an accelerator."""
        return variant(decision, accelerator, self._variants)

    def listed(self, listing: Listing) -> None:
        """Take a list of all Servers or all Optimizers."""
        self._take(self._cache.replace(listing))

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of a Server or an Optimizer."""
        self._take(self._cache.apply(kind, change))

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: the informer knows what is missing until the next list."""

    async def _name_variants(self) -> None:
        while True:
            try:
                found = [
                    await list_autoscalers(self._reader, name) for name in self._namespaces or ("",)
                ]
                self._variants = variants(item for items in found for item in items)
            except UnavailableError:
                pass  # the names stay as they were
            await asyncio.sleep(VARIANTS_SECONDS)

    def _take(self, differences: Iterable[Difference]) -> None:
        keys, namespaces = set(), set()
        for difference in differences:
            key = difference.place.key
            if difference.place.kind == SERVER:
                keys.add(key)
                self._note(key, difference.after)
            else:
                namespaces.add(key.namespace)
                self._optimizers[key.namespace].pop(key.name, None)
                if difference.after is not None:
                    self._optimizers[key.namespace][key.name] = difference.after
        if namespaces:
            keys.update(key for key in self._servers if key.namespace in namespaces)
        for key in keys:
            self._publish(key)

    def _note(self, key: Key, manifest: Manifest | None) -> None:
        """Remember a Server; forget one that is gone, or is being deleted."""
        self._servers.pop(key, None)
        observation = None if manifest is None else observe(Server, manifest)
        if observation is not None and observation.deleted is None:
            self._servers[key] = observation

    def _publish(self, key: Key) -> None:
        before = self._published.pop(key, None)
        if key in self._servers:
            why = recommended_by(self._optimizers[key.namespace].values())
            self._published[key] = publish(self._servers[key], before, why)


def _trouble(error: InfernoError | None) -> str:
    return f"decisions are not known: {error or 'their list is awaited'}"
