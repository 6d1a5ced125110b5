"""The objects of all namespaces as events tell of them; pure.

Of each object the newest version counts, in whatever order they come. Versions are compared
as numbers, which they are: kubernetes.io/docs/reference/using-api/api-concepts.
"""

from dataclasses import dataclass, field

from inferno_operator.resources import Resource, Server
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Listing

Place = tuple[type[Resource], Key]


@dataclass(slots=True)
class Mirror:
    """What is known of every object; the methods that change it tell which namespaces changed.

    What we write ourselves is no change: the status, and the decision in a Server's spec.
    """

    _objects: dict[Place, Manifest] = field(default_factory=dict)
    _observations: dict[Place, Observation] = field(default_factory=dict)
    """Of the objects that were looked at since they changed: reading them takes its time."""
    _versions: dict[Place, int] = field(default_factory=dict)
    """Newest version of each object, also of those that are gone since the last listing."""
    _floors: dict[tuple[type[Resource], str], int] = field(default_factory=dict)
    """Version of the last listing by kind and namespace: what is older is no news."""

    def put(self, resource: type[Resource], manifest: Manifest) -> frozenset[str]:
        """An object was seen."""
        place = resource, Key.of(manifest)
        if not self._is_news(place, _version(manifest)):
            return frozenset()
        before = self._objects.get(place)
        self._objects[place] = manifest
        self._observations.pop(place, None)
        same = before is not None and _input(resource, before) == _input(resource, manifest)
        return frozenset() if same else frozenset({place[1].namespace})

    def remove(self, resource: type[Resource], manifest: Manifest) -> frozenset[str]:
        """An object was seen to be gone, at the version that the manifest tells."""
        place = resource, Key.of(manifest)
        if not self._is_news(place, _version(manifest)):
            return frozenset()
        return frozenset({place[1].namespace}) if self._drop(place) else frozenset()

    def replace(self, listing: Listing) -> frozenset[str]:
        """All objects of a kind were listed; those that are not among them are gone."""
        listed = {Key.of(manifest) for manifest in listing.manifests}
        unlisted = [
            (resource, key)
            for resource, key in self._versions
            if resource is listing.resource
            and listing.namespace in ("", key.namespace)
            and key not in listed
        ]
        changed = {place[1].namespace for place in unlisted if self._forget(place, listing.version)}
        for manifest in listing.manifests:
            changed |= self.put(listing.resource, manifest)
        area = listing.resource, listing.namespace
        self._floors[area] = max(listing.version, self._floors.get(area, -1))
        return frozenset(changed)

    def _forget(self, place: Place, version: int) -> bool:
        """Drop what is not newer than a version; whether there was an object."""
        if self._versions[place] > version:
            return False
        del self._versions[place]
        return self._drop(place)

    def _drop(self, place: Place) -> bool:
        self._observations.pop(place, None)
        return self._objects.pop(place, None) is not None

    def all(self, namespace: str) -> list[Observation]:
        """Every object of a namespace, also those about to go."""
        return [self._observe(place) for place in self._objects if place[1].namespace == namespace]

    def _observe(self, place: Place) -> Observation:
        if place not in self._observations:
            self._observations[place] = observe(place[0], self._objects[place])
        return self._observations[place]

    def namespaces(self) -> frozenset[str]:
        """Namespaces that have objects."""
        return frozenset(key.namespace for _, key in self._objects)

    def _is_news(self, place: Place, version: int) -> bool:
        """Whether nothing as new is known of the object; what comes then must be newer."""
        resource, key = place
        floors = (self._floors.get((resource, area), -1) for area in ("", key.namespace))
        if version <= max(self._versions.get(place, -1), *floors):
            return False
        self._versions[place] = version
        return True


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])


def _input(resource: type[Resource], manifest: Manifest) -> tuple[object, ...]:
    """What follows for others from an object, without what we write on it ourselves."""
    metadata, spec = manifest["metadata"], manifest.get("spec")
    if resource is Server and spec:
        spec = {key: value for key, value in spec.items() if key != "desiredAlloc"}
    names = "uid", "finalizers", "deletionTimestamp"
    return (spec, *(metadata.get(name) for name in names))
