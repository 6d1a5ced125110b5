"""The newest version of objects, from listings, watches and our own writes; pure.

Of each object the newest version counts, in whatever order they come. Versions are compared
as numbers, which they are: kubernetes.io/docs/reference/using-api/api-concepts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from inferno_operator.resources.objects import Key, Kind, Manifest, Place
from inferno_operator.runtime.ports import Change, Listing


@dataclass(frozen=True, slots=True)
class Difference:
    """An object before and after; None where it is not there."""

    place: Place
    before: Manifest | None
    after: Manifest | None


@dataclass(slots=True)
class Cache:
    """Objects of some kinds; the methods that change it return what differs."""

    _objects: dict[Place, Manifest] = field(default_factory=dict)
    _versions: dict[Place, int] = field(default_factory=dict)
    """Newest version of each object, also of those that are gone since the last listing."""
    _floors: dict[tuple[Kind, str], int] = field(default_factory=dict)
    """Version of the last listing by kind and namespace: what is older is no news."""

    def get(self, place: Place) -> Manifest | None:
        """An object, if it is there."""
        return self._objects.get(place)

    def places(self) -> Iterator[Place]:
        """Where all objects are."""
        return iter(self._objects)

    def apply(self, kind: Kind, change: Change) -> tuple[Difference, ...]:
        """An object was seen, or seen to be gone; None or one difference."""
        if change.manifest is None:
            return ()
        place = Place(kind, Key.of(change.manifest))
        if not self._is_news(place, change.version):
            return ()
        return self._replaced(place, None if change.gone else change.manifest)

    def written(self, kind: Kind, manifest: Manifest) -> tuple[Difference, ...]:
        """An object is like this since this operator wrote it."""
        return self.apply(kind, Change(version_of(manifest), manifest))

    def replace(self, listing: Listing) -> tuple[Difference, ...]:
        """All objects of a kind were listed; those that are not among them are gone."""
        listed = {Key.of(manifest) for manifest in listing.manifests}
        unlisted = [
            place
            for place, version in self._versions.items()
            if place.kind == listing.kind
            and listing.namespace in ("", place.key.namespace)
            and place.key not in listed
            and version <= listing.version
        ]
        differences: list[Difference] = []
        for place in unlisted:
            del self._versions[place]
            differences += self._replaced(place, None)
        for manifest in listing.manifests:
            differences += self.written(listing.kind, manifest)
        area = listing.kind, listing.namespace
        self._floors[area] = max(listing.version, self._floors.get(area, -1))
        return tuple(differences)

    def _replaced(self, place: Place, after: Manifest | None) -> tuple[Difference, ...]:
        before = self._objects.pop(place, None)
        if after is not None:
            self._objects[place] = after
        return () if before is None and after is None else (Difference(place, before, after),)

    def _is_news(self, place: Place, version: int) -> bool:
        """Whether nothing as new is known of the object; what comes then must be newer."""
        floors = (self._floors.get((place.kind, area), -1) for area in ("", place.key.namespace))
        if version <= max(self._versions.get(place, -1), *floors):
            return False
        self._versions[place] = version
        return True


def version_of(manifest: Manifest) -> int:
    """The version of an object."""
    return int(manifest["metadata"]["resourceVersion"])
