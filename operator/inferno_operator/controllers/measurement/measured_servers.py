"""The Servers to measure, the targets of their classes, and their Models, by watches."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from inferno_operator.resources import Measure, Model, Server, ServerStatus, ServiceClass, Target
from inferno_operator.resources.objects import Key, Manifest, kind_of
from inferno_operator.resources.observation import Observation, is_of, of_kind
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers

Named = TypeVar("Named", Model, ServiceClass)

MODEL, SERVER, SERVICE_CLASS = kind_of(Model), kind_of(Server), kind_of(ServiceClass)


class MeasuredServers:
    """Servers that are measured or were, by key; others are not kept.

    `forget` is called with the key of a Server that is not to be measured any more.
    """

    def __init__(self, informers: Informers, forget: Callable[[Key], None]) -> None:
        self._objects = informers.subscribe([MODEL, SERVER, SERVICE_CLASS], self._changed)
        self._forget = forget
        self._servers: dict[Key, Observation[Server]] = {}
        self._ready: dict[Key, list[tuple[float, tuple[int, int]]]] = {}
        """How many pods are ready, since when [s]: the last one before a while, and since then."""
        self._targets: dict[tuple[str, str, str], Target] | None = None
        """By namespace, service class and model; None if the classes have changed since."""
        self._models: dict[tuple[str, str], Model] | None = None
        """By namespace and name; None if some have changed since."""

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._objects.run()

    async def complete(self) -> None:
        """Wait until all objects are known."""
        await self._objects.complete()

    def all(self) -> Mapping[Key, Observation[Server]]:
        """Return the Servers."""
        return dict(self._servers)

    def get(self, key: Key) -> Observation[Server] | None:
        """Return a Server; None if it is gone."""
        return self._servers.get(key)

    def note(self, observation: Observation[Server]) -> None:
        """Take a Server as it is now."""
        key = observation.reference.key
        before = self._servers.get(key)
        if before is not None and before.reference.uid != observation.reference.uid:
            self._remove(key)  # it was created again while nobody watched
        if _is_measured(observation):
            self._servers[key] = observation
        else:
            self._remove(key)

    def ready_pods(self, key: Key, time_s: float, grace_s: float) -> tuple[int, int] | None:
        """Return how many pods of a Server have been ready for a while; see `Server.ready_pods`.

        It is the least number in the last `grace_s` [s], as far as it was asked for: pods that have
        just become ready may not be scraped yet, and those that end are not awaited.
        """
        observation = self._servers.get(key)
        server = observation.resource if observation is not None else None
        now = server.ready_pods if server is not None else None
        if now is None:
            self._ready.pop(key, None)
            return None
        counts = [(time, count) for time, count in self._ready.get(key, ()) if time <= time_s]
        if not counts or counts[-1][1] != now:
            counts.append((time_s, now))
        while len(counts) > 1 and counts[1][0] <= time_s - grace_s:
            del counts[0]
        self._ready[key] = counts
        answering, every = zip(*(count for _, count in counts), strict=True)
        return min(answering), min(every)

    def target(self, key: Key, server: Server) -> Target | None:
        """Return the targets of a Server; None if its class or its model has none."""
        if self._targets is None:
            self._targets = {
                (namespace, found.spec.name, target.model): target
                for namespace, found in self._list_newest_first(ServiceClass)
                for target in found.spec.data
            }
        return self._targets.get((key.namespace, server.spec.service_class, server.spec.model))

    def model(self, key: Key, server: Server) -> Model | None:
        """Return the Model of a Server; None if there is none that can be read."""
        if self._models is None:
            newest_first = self._list_newest_first(Model)
            self._models = {(namespace, m.spec.name): m for namespace, m in newest_first}
        return self._models.get((key.namespace, server.spec.model))

    def _list_newest_first(self, kind: type[Named]) -> list[tuple[str, Named]]:
        """Return what can be read, with its namespace; the oldest comes last and counts."""
        observations = of_kind(self._objects.observations(kind_of(kind)), kind)
        found = [(o.reference.key.namespace, o.resource) for o in observations if o.resource]
        return sorted(found, key=lambda item: item[1].age, reverse=True)

    def _changed(self, difference: ObjectDifference) -> None:
        place, manifest = difference.place, difference.after
        if place.kind == SERVICE_CLASS:
            self._targets = None
        elif place.kind == MODEL:
            self._models = None
        elif manifest is None:
            self._remove(place.key)
        elif place.key in self._servers or _may_be_measured(manifest):
            observation = self._objects.observation(place)
            if observation is not None and is_of(observation, Server):
                self.note(observation)

    def _remove(self, key: Key) -> None:
        if self._servers.pop(key, None) is not None:
            self._ready.pop(key, None)
            self._forget(key)


def _may_be_measured(server: Manifest) -> bool:
    return bool(server.get("spec", {}).get("measure") or server.get("status", {}).get("measured"))


def _is_measured(observation: Observation[Server]) -> bool:
    status = observation.status
    was_measured = isinstance(status, ServerStatus) and status.measured is not None
    return observation.deleted is None and (was_measured or find_measure(observation) is not None)


def find_measure(observation: Observation[Server]) -> Measure | None:
    """Return how a Server is measured; None if it is not, or cannot be read."""
    return observation.resource.spec.measure if observation.resource else None
