"""The newest Servers, workloads and pods, from watches and the operator's own writes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from inferno_operator.controllers.scaling.boosters import SERVER
from inferno_operator.controllers.scaling.decision import OPTIMIZER, is_recommending
from inferno_operator.controllers.scaling.status import RELEASED
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ACTUATED
from inferno_operator.resources.objects import POD, Key, Kind, Manifest, Place, Reference
from inferno_operator.resources.observation import Observation, of_kind
from inferno_operator.resources.pods import PodIndex
from inferno_operator.resources.serving_roles import SERVINGS, build_serving_selector
from inferno_operator.runtime.cache import ObjectDifference, version_of
from inferno_operator.runtime.informers import Area, Informers, Subscription
from inferno_operator.runtime.ports import Cluster, GoneError, RejectedError, Scale, UnscaledError
from inferno_optimizer.errors import InfernoError

CONCURRENT_READS = 16


class WorkloadObjects:
    """Objects in memory; kinds are watched as soon as somebody asks for them.

    `changed` is called with each namespace in which something changed, if its Servers are scaled.
    """

    def __init__(
        self, cluster: Cluster, informers: Informers, changed: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._report = changed
        self._servers = self._subscribe(SERVER, OPTIMIZER)
        self._scaled: defaultdict[str, set[Key]] = defaultdict(set)
        """Servers that are scaled, or were, by namespace."""
        self._listed_namespaces: set[str] = set()
        self.unreferenced: set[str] = set()
        """Namespaces, or all of them (""), with objects that no Server may refer to any more."""
        self._scales: dict[Place, Scale] = {}
        self._written: set[Place] = set()
        """Places whose scale subresource is known from a write of this operator."""
        self._watched: dict[Kind, tuple[Subscription, asyncio.Task[None]]] = {}

    def _subscribe(self, *kinds: Kind) -> Subscription:
        def lost(area: Area, error: InfernoError) -> None:
            del error  # the Servers tell it
            self._note_change(area[1])

        return self._informers.subscribe(
            list(kinds), self._note_difference, listed=self._note_list, lost=lost
        )

    async def run(self) -> None:
        """Watch Servers, and Optimizers for their mode."""
        await self._servers.run()

    async def stop(self) -> None:
        """Stop watching."""
        tasks = [task for _, task in self._watched.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def watch(self, kinds: Iterable[Kind]) -> None:
        """Watch more kinds."""
        for kind in kinds:
            if kind not in self._watched:
                subscription = self._subscribe(kind)
                self._watched[kind] = subscription, asyncio.create_task(subscription.run())

    def is_complete(self, kind: Kind) -> bool:
        """Whether all objects of a kind are known."""
        return kind in self._watched and self._watched[kind][0].is_complete

    def trouble_of(self, kind: Kind) -> InfernoError | None:
        """Return why the objects of a kind are not known; None if the answer is awaited."""
        return self._watched[kind][0].trouble if kind in self._watched else None

    def get(self, place: Place) -> Manifest | None:
        """Return an object, or None if it does not exist."""
        return self._watched[place.kind][0].get(place)

    def list_objects(self, kind: Kind, namespace: str) -> list[Manifest]:
        """Return the objects of a kind in a namespace."""
        return list(self._watched[kind][0].manifests(kind, namespace))

    def list_servers(self, namespace: str) -> list[Observation[Server]]:
        """Return the Servers of a namespace that are not being deleted."""
        servers = of_kind(self._servers.observations(SERVER, namespace), Server)
        return [server for server in servers if server.deleted is None]

    def index_pods(self, namespace: str) -> PodIndex:
        """Return the pods of a namespace."""
        return PodIndex(self._watched[POD][0].manifests(POD, namespace))

    def is_newest(self, reference: Reference) -> bool:
        """Whether no newer version of a Server is known; one that is causes a reconcile."""
        newest = self._servers.get(reference.place)
        return newest is not None and version_of(newest) <= int(reference.version)

    def has_scaled(self, namespace: str) -> bool:
        """Whether a Server of a namespace is scaled, or was."""
        return bool(self._scaled.get(namespace))

    async def read_scales(self, places: Iterable[Place]) -> Mapping[Place, RejectedError]:
        """Read the scale subresources of the objects that changed, several at once.

        Returns why the API server shows some of them to nobody, or not to this operator.
        """
        limit = asyncio.Semaphore(CONCURRENT_READS)
        rejected: dict[Place, RejectedError] = {}

        async def read(place: Place) -> None:
            manifest, known = self.get(place), self._scales.get(place)
            if manifest is None:
                return
            if known is not None and version_of(manifest) <= int(known.reference.version):
                return
            async with limit:
                self.forget_scale(place)
                manifest = self.get(place)  # it may have changed, or have gone, in the meantime
                if manifest is None:
                    return
                try:
                    scale = await self._read_scale(place, manifest)
                except GoneError:
                    return
                except RejectedError as error:
                    rejected[place] = error
                    return
                if scale is not None:
                    self._scales[place] = scale

        await asyncio.gather(*map(read, places))
        return rejected

    async def _read_scale(self, place: Place, manifest: Manifest) -> Scale | None:
        """Return the scale subresource of an object, or a role.

        A role stands in the object, and so does the number of a Deployment and its like.
        """
        if place.part:
            return Scale.of_role(place.kind, manifest, place.part)
        watched = Scale.of_watched(place.kind, manifest)
        if watched is not None:
            return watched
        try:
            return await self._cluster.scale(place.kind, place.key)
        except UnscaledError:
            selector = manifest.get("status", {}).get("selector", "")
            return Scale(Reference.of(place.kind, manifest), 0, selector, is_unset=True)

    def scale_of(self, place: Place) -> Scale | None:
        """Return the scale subresource as it was read or written; None if there is none."""
        return self._scales.get(place)

    def forget_scale(self, place: Place) -> None:
        """Read a scale subresource again before it is used."""
        self._scales.pop(place, None)
        self._written.discard(place)

    def is_written(self, place: Place) -> bool:
        """Whether the scale subresource is known from a write of this operator."""
        return place in self._written

    def note_scale(self, scale: Scale) -> None:
        """Take the scale subresource as the API server returned it to a write.

        The selector of a whole serving follows from its name, whatever its status says.
        """
        kind, key = scale.reference.kind, scale.reference.key
        if kind in SERVINGS and not scale.role:
            scale = replace(scale, selector=build_serving_selector(kind, key.name))
        self._scales[scale.place] = scale
        self._written.add(scale.place)

    def note_server(self, manifest: Manifest) -> None:
        """Take a Server as the API server returned it to a write."""
        for difference in self._servers.written(SERVER, manifest):
            self._note_server(difference)

    def note_object(self, kind: Kind, manifest: Manifest) -> None:
        """Take an object of a watched kind as the API server returned it to a write.

        That is a change: maybe nobody else has to do anything about it.
        """
        self._watched[kind][0].written(kind, manifest, echo=True)

    def _note_difference(self, difference: ObjectDifference) -> None:
        place, before, after = difference.place, difference.before, difference.after
        if place.kind == OPTIMIZER and is_recommending(before) == is_recommending(after):
            return
        if place.kind == SERVER:
            self._note_server(difference)
        if after is None:
            self.forget_scale(place)
        if difference.has_gone_back:  # also what is known of roles
            for known in [p for p in self._scales if (p.kind, p.key) == (place.kind, place.key)]:
                self.forget_scale(known)
        self._note_change(place.key.namespace)

    def _note_list(self, area: Area) -> None:
        """Take a list; after the first one, what deleted Servers owned is released."""
        kind, namespace = area
        if kind == SERVER and namespace not in self._listed_namespaces:
            self._listed_namespaces.add(namespace)
            self.unreferenced.add(namespace)
            self._report(namespace)
        self._note_change(namespace)

    def _note_change(self, namespace: str) -> None:
        """Report a change in a namespace, or in all (""): it concerns Servers that are scaled."""
        for name in [namespace] if namespace else list(self._scaled):
            if self.has_scaled(name) or name in self.unreferenced:
                self._report(name)

    def _note_server(self, difference: ObjectDifference) -> None:
        """Note whether a Server is scaled, and whether it gives up a ModelBooster."""
        key, before, after = difference.place.key, difference.before, difference.after
        scaled = self._scaled[key.namespace]
        scaled.discard(key)
        if after is not None and _is_scaled(after):
            scaled.add(key)
        if not scaled:
            del self._scaled[key.namespace]
        references = [(each or {}).get("spec", {}).get("modelBooster") for each in (before, after)]
        if references[0] not in (None, references[1]):
            self.unreferenced.add(key.namespace)


def _is_scaled(server: Manifest) -> bool:
    """Whether a Server names what its replicas run in, or its status still says that it did."""
    spec = server.get("spec", {})
    if spec.get("workloads") or spec.get("modelBooster"):
        return True
    conditions = server.get("status", {}).get("conditions", ())
    return any(c["type"] == ACTUATED and c["reason"] != RELEASED for c in conditions)
