"""Watch Servers in every operator, also in one that does not lead, and answer for them."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial

from inferno_operator.controllers.actuation.autoscalers import list_autoscalers
from inferno_operator.controllers.actuation.publication.published import Published, publish
from inferno_operator.controllers.actuation.publication.variants import (
    WorkloadTarget,
    variant,
    variants,
)
from inferno_operator.controllers.actuation.recommendation import (
    OPTIMIZER,
    recommended_by,
    recommends,
)
from inferno_operator.controllers.actuation.reductions import way_down_of
from inferno_operator.controllers.actuation.release import SERVER
from inferno_operator.resources.objects import Key, Manifest, Now, Place
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import GoneError, Reader
from inferno_optimizer.errors import InfernoError, UnavailableError

TIME_OF_DAY = partial(datetime.now, UTC)

VARIANTS_SECONDS = 60.0
"""Seconds between two lists of autoscalers, which are not watched."""


class Publication:
    """The decisions for all Servers, as the API server has them.

    Parameters
    ----------
    reader, informers
        The API server, and what watches it.
    names_variants
        Whether `variant` knows the names of autoscalers.
    now
        The time of day.
    """

    def __init__(
        self,
        reader: Reader,
        informers: Informers,
        *,
        names_variants: bool = False,
        now: Now = TIME_OF_DAY,
    ) -> None:
        self._reader, self._now = reader, now
        self._namespaces = informers.namespaces
        self._names_variants = names_variants
        self._objects = informers.subscribe([OPTIMIZER, SERVER], self._changed)
        self._published: dict[Key, Published] = {}
        self._variants: Mapping[WorkloadTarget, str] = {}

    async def run(self) -> None:
        """Watch Servers and Optimizers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._objects.run())
            if self._names_variants:
                group.create_task(self._name_variants())

    def unready(self) -> str:
        """Return why decisions are not known; "" if they are."""
        return next((_trouble(error) for error in self._objects.missing.values()), "")

    def decision(self, key: Key) -> Published:
        """Return what is published of a Server.

        Raises
        ------
        UnavailableError
            The Servers of the namespace are not known now.
        GoneError
            There is no such Server.
        """
        for (_, namespace), error in self._objects.missing.items():
            if namespace in ("", key.namespace):
                raise UnavailableError(_trouble(error))
        try:
            return self._published[key].at(self._now())
        except KeyError:
            raise GoneError(f"Server {key} does not exist") from None

    def decisions(self) -> Iterable[Published]:
        """Return what is published, in the order of the keys; the last state if a watch failed."""
        now = self._now()
        return [self._published[key].at(now) for key in sorted(self._published)]

    def variant(self, decision: Published, accelerator: str) -> str:
        """Return the name by which users of llm-d know the workload on an accelerator."""
        return variant(decision, accelerator, self._variants)

    async def _name_variants(self) -> None:
        while True:
            try:
                listings = [
                    await list_autoscalers(self._reader, name) for name in self._namespaces or ("",)
                ]
                self._variants = variants(item for items in listings for item in items)
            except UnavailableError:
                pass  # the names stay as they were
            await asyncio.sleep(VARIANTS_SECONDS)

    def _changed(self, difference: ObjectDifference) -> None:
        place = difference.place
        if place.kind == SERVER:
            self._publish(place)
        elif difference.concerns(_rules):
            for server in self._objects.places(SERVER, place.key.namespace):
                self._publish(server)

    def _publish(self, place: Place) -> None:
        """Publish a Server; nothing of one that is gone, or is being deleted."""
        before = self._published.pop(place.key, None)
        server = self._objects.observation(place)
        if server is not None and server.deleted is None:
            optimizers = tuple(self._objects.manifests(OPTIMIZER, place.key.namespace))
            self._published[place.key] = publish(
                server, before, recommended_by(optimizers), way_down_of(optimizers)
            )


def _rules(optimizer: Manifest | None) -> object:
    """Return what of an Optimizer matters to what is published."""
    return recommends(optimizer), (optimizer or {}).get("spec", {}).get("guard")


def _trouble(error: InfernoError | None) -> str:
    return f"decisions are not known: {error or 'their list is awaited'}"
