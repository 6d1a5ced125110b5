"""Watch Servers and, if any Server refers to them, ModelBoosters and their children."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from inferno_operator.controllers.actuation.decision import OPTIMIZER, is_change_of_mode
from inferno_operator.controllers.actuation.index import ServerIndex
from inferno_operator.controllers.actuation.reconcile import Context, SuppliesOf, reconcile
from inferno_operator.controllers.actuation.release import SERVER, reference_of
from inferno_operator.controllers.actuation.serving_pods import ServingPods
from inferno_operator.controllers.actuation.status import RELEASED
from inferno_operator.controllers.actuation.targets import scaled_places
from inferno_operator.resources.conditions import ACTUATED
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Key, Manifest, Now, Place
from inferno_operator.runtime.cache import ObjectDifference, generation_of
from inferno_operator.runtime.informer import Area
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import WorkQueue


class ActuationController:
    """Reconciles Servers that refer to a ModelBooster, whenever one of the two changes.

    Parameters
    ----------
    cluster, informers
        The API server, and what watches it.
    now
        The time of day.
    supplies_of
        Reads what replicas carry from the objects of a namespace.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        now: Now,
        supplies_of: SuppliesOf | None = None,
    ) -> None:
        self._informers = informers
        self._index = ServerIndex()
        self._objects = informers.subscribe([SERVER, OPTIMIZER], self._changed, listed=self._sweep)
        self._watched: dict[str, Sequence[asyncio.Task[None]]] = {}
        """Running subscriptions to ModelBoosters, their children and pods, by dialect."""
        self._swept: set[str] = set()
        """Namespaces, or all of them (""), in which fields without a Server were released."""
        self._pods: dict[str, ServingPods] = {}
        """The pods of servings, by name of the dialect."""
        self._now = now
        context = Context(cluster, now, self._index, pods=self._pods, supplies_of=supplies_of)
        self.queue: WorkQueue[Key] = WorkQueue(partial(reconcile, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._objects.run()

    async def stop(self) -> None:
        """Stop reconciling and watching."""
        await self.queue.close()
        tasks = [task for tasks in self._watched.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _sweep(self, area: Area) -> None:
        """Release, after the first list, what Servers owned that were deleted meanwhile."""
        kind, namespace = area
        if kind == SERVER and namespace not in self._swept:
            self._swept.add(namespace)
            self._ask([Key(namespace, "")])

    def _changed(self, difference: ObjectDifference) -> None:
        key = difference.place.key
        if difference.place.kind == SERVER:
            self._server_changed(key, difference.after)
        elif is_change_of_mode(difference):
            self._ask(self._index.keys(key.namespace))

    def _server_changed(self, key: Key, manifest: Manifest | None) -> None:
        before = self._index.reference(key)
        if manifest is None or not _matters(manifest):
            if before is None:
                return
            concerned = self._index.remove(key)
        else:
            concerned = self._indexed(key) | {key}
        self._ask(concerned)
        if before is not None and self._index.reference(key) != before:
            self._ask([Key(key.namespace, "")])
        self._watch_dialects()

    def _indexed(self, key: Key) -> frozenset[Key]:
        """Index a Server and return the other Servers to reconcile.

        A Server that cannot be read keeps its entry.
        """
        observation = self._objects.observation(Place(SERVER, key))
        if observation is None or observation.resource is None:
            return frozenset()
        reference = reference_of(observation)
        if reference is None:
            return self._index.remove(key)
        return self._index.put(key, observation.resource.age, reference)

    def _ask(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.queue.add(key)

    def _watch_dialects(self) -> None:
        """Watch the kinds of the dialects that Servers refer to, and no others."""
        wanted = self._index.dialects()
        for name in wanted - self._watched.keys():
            dialect = DIALECTS[name]
            kinds = (dialect.booster, dialect.serving, *dialect.scalers)
            references = _References(self._index, name, self._ask)
            subscription = self._informers.subscribe(
                kinds, references.changed, listed=references.listed
            )
            pods = ServingPods(
                self._informers, dialect, references.pods_changed, references.reread, self._now
            )
            self._pods[name] = pods
            runs = subscription.run(), pods.run()
            self._watched[name] = [asyncio.create_task(run) for run in runs]
        for name in self._watched.keys() - wanted:
            del self._pods[name]
            for task in self._watched.pop(name):
                task.cancel()


class _References:
    """Requests reconciles of the Servers that refer to an object of a dialect."""

    def __init__(
        self, index: ServerIndex, dialect: str, ask: Callable[[Iterable[Key]], None]
    ) -> None:
        self._index = index
        self._dialect = dialect
        self._ask = ask

    def listed(self, area: Area) -> None:
        """Take a list of a kind: any of its objects may have changed."""
        del area
        self.reread()

    def reread(self) -> None:
        """Take note that any object may have changed."""
        self._ask(self._index.of_dialects([self._dialect]))

    def pods_changed(self, serving: Place) -> None:
        """Take a change of the pods of a serving."""
        self._ask(self._index.servers(serving))

    def changed(self, difference: ObjectDifference) -> None:
        """Take the creation, change or deletion of an object."""
        is_scaler = difference.place.kind in DIALECTS[self._dialect].scalers
        for concerned in _scaled(difference) if is_scaler else (difference.place,):
            self._ask(self._index.servers(concerned))


def _scaled(difference: ObjectDifference) -> frozenset[Place]:
    """Return the servings that a scaler scales, or did; none if only its status changed."""
    if not difference.concerns(generation_of):
        return frozenset()
    manifests = filter(None, (difference.before, difference.after))
    return frozenset[Place]().union(*(scaled_places(difference.place.kind, m) for m in manifests))


def _matters(manifest: Manifest) -> bool:
    """Whether a Server refers to a ModelBooster, or its status still has that of one."""
    if manifest.get("spec", {}).get("modelBooster"):
        return True
    if manifest.get("spec", {}).get("workloads"):
        return False
    conditions = manifest.get("status", {}).get("conditions", ())
    return any(c["type"] == ACTUATED and c["reason"] != RELEASED for c in conditions)
