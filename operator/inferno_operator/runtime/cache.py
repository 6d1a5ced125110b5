"""The newest version of objects, from lists, watches and the operator's own writes; pure.

The cache keeps the newest version of each object, in whatever order the versions arrive.
Resource versions are compared as numbers, which Kubernetes allows:
kubernetes.io/docs/reference/using-api/api-concepts.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from inferno_operator.resources.objects import Key, Kind, Manifest, Place
from inferno_operator.runtime.ports import Change, Listing

_Objects = defaultdict[str, dict[Key, Manifest]]


@dataclass(frozen=True, slots=True)
class Difference:
    """An object before and after a change; None where it does not exist."""

    place: Place
    before: Manifest | None
    after: Manifest | None


def _areas() -> _Objects:
    return defaultdict(dict)


@dataclass(slots=True)
class Cache:
    """The objects of some kinds; the methods that change the cache return the differences."""

    _objects: dict[Kind, _Objects] = field(default_factory=lambda: defaultdict(_areas))
    """By kind, namespace and name: what is asked for costs no more than what is found."""
    _versions: dict[Kind, dict[Key, int]] = field(default_factory=lambda: defaultdict(dict))
    """Newest version of each object, including those deleted since the last list."""
    _floors: dict[tuple[Kind, str], int] = field(default_factory=dict)
    """Version of the last list by kind and namespace: older versions are ignored."""

    def get(self, place: Place) -> Manifest | None:
        """Return an object, or None if the cache does not have it."""
        return self._objects[place.kind][place.key.namespace].get(place.key)

    def keys(self, kind: Kind, namespace: str = "") -> Iterator[Key]:
        """Return the keys of the objects of a kind, in a namespace or in all namespaces ("")."""
        areas = self._objects[kind]
        found = [areas[namespace]] if namespace else list(areas.values())
        return (key for objects in found for key in objects)

    def namespaces(self, kind: Kind) -> frozenset[str]:
        """Return the namespaces that have objects of a kind."""
        return frozenset(name for name, objects in self._objects[kind].items() if objects)

    def apply(self, kind: Kind, change: Change) -> tuple[Difference, ...]:
        """Take a change from a watch; returns one difference, or none if nothing differs."""
        if change.manifest is None:
            return ()
        place = Place(kind, Key.of(change.manifest))
        if not self._is_news(place, change.version):
            return ()
        return self._replaced(place, None if change.gone else change.manifest)

    def written(self, kind: Kind, manifest: Manifest) -> tuple[Difference, ...]:
        """Take an object as the API server returned it to a write of this operator."""
        return self.apply(kind, Change(version_of(manifest), manifest))

    def replace(self, listing: Listing) -> tuple[Difference, ...]:
        """Take a list of all objects of a kind; objects that are not in it are deleted."""
        listed = {Key.of(manifest) for manifest in listing.manifests}
        versions = self._versions[listing.kind]
        unlisted = [
            key
            for key, version in versions.items()
            if listing.namespace in ("", key.namespace)
            and key not in listed
            and version <= listing.version
        ]
        differences: list[Difference] = []
        for key in unlisted:
            del versions[key]
            differences += self._replaced(Place(listing.kind, key), None)
        for manifest in listing.manifests:
            differences += self.written(listing.kind, manifest)
        area = listing.kind, listing.namespace
        self._floors[area] = max(listing.version, self._floors.get(area, -1))
        return tuple(differences)

    def _replaced(self, place: Place, after: Manifest | None) -> tuple[Difference, ...]:
        objects = self._objects[place.kind][place.key.namespace]
        before = objects.pop(place.key, None)
        if after is not None:
            objects[place.key] = after
        return () if before is None and after is None else (Difference(place, before, after),)

    def _is_news(self, place: Place, version: int) -> bool:
        """Whether this version is newer than the known one; remembers it if so."""
        floors = (self._floors.get((place.kind, area), -1) for area in ("", place.key.namespace))
        versions = self._versions[place.kind]
        if version <= max(versions.get(place.key, -1), *floors):
            return False
        versions[place.key] = version
        return True


def version_of(manifest: Manifest) -> int:
    """Return the resource version of an object."""
    return int(manifest["metadata"]["resourceVersion"])
