"""Watch Servers in every operator, also in one that does not lead, and answer for them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from inferno_operator.controllers.actuation.publication.plan import Published, publish
from inferno_operator.controllers.actuation.publication.variants import (
    Target,
    variant,
    variants,
)
from inferno_operator.controllers.actuation.release import SERVER
from inferno_operator.resources import Server
from inferno_operator.resources.objects import HORIZONTAL_POD_AUTOSCALER, Key, Kind, Manifest
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, GoneError, Listing, Reader, RejectedError
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
        self._published: dict[Key, Published] = {}
        self._informer = Informer(reader, [SERVER], namespaces, self)
        self._variants: Mapping[Target, str] = {}

    async def run(self) -> None:
        """Watch Servers until cancelled."""
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
        """Take a list of all Servers."""
        found = {Key.of(manifest): manifest for manifest in listing.manifests}
        for key in self._published.keys() - found.keys():
            if listing.namespace in ("", key.namespace):
                del self._published[key]
        for key, manifest in found.items():
            self._take(key, manifest)

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of a Server."""
        del kind
        if change.manifest is None:
            return
        key = Key.of(change.manifest)
        if change.gone:
            self._published.pop(key, None)
        else:
            self._take(key, change.manifest)

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: the informer knows what is missing until the next list."""

    async def _name_variants(self) -> None:
        while True:
            try:
                found = [await self._autoscalers(name) for name in self._namespaces or ("",)]
                self._variants = variants(item for items in found for item in items)
            except UnavailableError:
                pass  # the names stay as they were
            await asyncio.sleep(VARIANTS_SECONDS)

    async def _autoscalers(self, namespace: str) -> Sequence[Manifest]:
        """Return the HPAs of a namespace, or of all (""); none without the right to list them."""
        try:
            return (await self._reader.list(HORIZONTAL_POD_AUTOSCALER, namespace)).manifests
        except (GoneError, RejectedError):
            return ()

    def _take(self, key: Key, manifest: Manifest) -> None:
        observation = observe(Server, manifest)
        if observation.deleted is not None:
            self._published.pop(key, None)
        else:
            self._published[key] = publish(observation, self._published.get(key))


def _trouble(error: InfernoError | None) -> str:
    return f"decisions are not known: {error or 'the list of Servers is awaited'}"
