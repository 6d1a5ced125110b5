"""The Servers to measure, and the targets of their classes, kept up to date by watches."""

from collections.abc import Callable, Iterable, Mapping

from inferno_operator.resources import Server, ServerStatus, ServiceClass, Target
from inferno_operator.resources.objects import Key, Kind, Manifest, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Change, Listing
from inferno_optimizer.errors import InfernoError

SERVER, SERVICE_CLASS = kind_of(Server), kind_of(ServiceClass)


class Subjects:
    """Servers that are measured or were, by key; others are not kept.

    Parameters
    ----------
    forget
        Called with the key of a Server that is not to be measured any more.
    """

    def __init__(self, forget: Callable[[Key], None]) -> None:
        self._forget = forget
        self._servers: dict[Key, Observation] = {}
        self._classes: dict[Key, ServiceClass] = {}
        self._targets: dict[tuple[str, str, str], Target] = {}
        """By namespace, service class and model."""

    def all(self) -> Mapping[Key, Observation]:
        """Return the Servers."""
        return dict(self._servers)

    def get(self, key: Key) -> Observation | None:
        """Return a Server; None if it is gone."""
        return self._servers.get(key)

    def note(self, observation: Observation) -> None:
        """Take a Server as it is now."""
        key = observation.reference.key
        if _is_subject(observation):
            self._servers[key] = observation
        elif self._servers.pop(key, None) is not None:
            self._forget(key)

    def target(self, key: Key, server: Server) -> Target | None:
        """Return the targets of a Server; None if its class or its model has none."""
        return self._targets.get((key.namespace, server.spec.service_class, server.spec.model))

    def listed(self, listing: Listing) -> None:
        """Take a list of all objects of a kind."""
        manifests = {Key.of(manifest): manifest for manifest in listing.manifests}
        known: Iterable[Key] = self._servers if listing.kind == SERVER else self._classes
        inside = {k for k in known if listing.namespace in ("", k.namespace)}
        for key in inside - manifests.keys():
            self._remove(listing.kind, key)
        for manifest in manifests.values():
            self._take(listing.kind, manifest)
        self._index_targets()

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object."""
        if change.manifest is None:
            return
        if change.gone:
            self._remove(kind, Key.of(change.manifest))
        else:
            self._take(kind, change.manifest)
        if kind == SERVICE_CLASS:
            self._index_targets()

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: what is known stays valid until the next list."""

    def _take(self, kind: Kind, manifest: Manifest) -> None:
        if kind == SERVER:
            measured = manifest.get("status", {}).get("measured")
            if manifest.get("spec", {}).get("measure") or measured or self._knows(manifest):
                self.note(observe(Server, manifest))
            return
        resource = observe(ServiceClass, manifest).resource
        if isinstance(resource, ServiceClass):
            self._classes[Key.of(manifest)] = resource

    def _index_targets(self) -> None:
        """Find the targets again; of several classes with the same name, the oldest one counts."""
        youngest_first = sorted(self._classes.items(), key=lambda item: item[1].age, reverse=True)
        self._targets.clear()
        for key, resource in youngest_first:
            for target in resource.spec.data:
                self._targets[key.namespace, resource.spec.name, target.model] = target

    def _knows(self, manifest: Manifest) -> bool:
        return Key.of(manifest) in self._servers

    def _remove(self, kind: Kind, key: Key) -> None:
        if kind == SERVICE_CLASS:
            self._classes.pop(key, None)
        elif self._servers.pop(key, None) is not None:
            self._forget(key)


def _is_subject(observation: Observation) -> bool:
    if observation.deleted is not None:
        return False
    server, status = observation.resource, observation.status
    asks = isinstance(server, Server) and server.spec.measure is not None
    return asks or (isinstance(status, ServerStatus) and status.measured is not None)
