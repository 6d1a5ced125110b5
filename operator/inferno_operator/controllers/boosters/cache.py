"""The boosters of a dialect and their children, as events tell of them; pure.

Of each object the newest version counts, in whatever order they come.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.ports import Listed
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.runtime.ports import Change

Place = tuple[Kind, Key]


@dataclass(slots=True)
class BoosterMirror:
    """What is known; the methods that change it return the boosters that it concerns."""

    dialect: Dialect
    _objects: dict[Place, Manifest] = field(default_factory=dict)
    _versions: dict[Place, int] = field(default_factory=dict)
    """Newest version of each object, also of those that are gone since the last listing."""
    _owned: dict[str, set[Place]] = field(default_factory=dict)
    """Places of the children by the uid of an owner."""

    def booster(self, key: Key) -> Manifest | None:
        """The manifest of a booster."""
        return self._objects.get((self.dialect.booster, key))

    def children(self, booster: Booster) -> list[Manifest]:
        """What it owns, and whatever has a name that it may need."""
        names = [booster.metadata.name, *map(booster.child_name, booster.spec.backends)]
        named = {
            (kind, Key(booster.metadata.namespace, name))
            for kind in self.dialect.children
            for name in names
        }
        places = named | self._owned.get(booster.metadata.uid, set())
        return [self._objects[place] for place in places if place in self._objects]

    def boosters(self) -> set[Key]:
        """All of them."""
        return {key for kind, key in self._objects if kind == self.dialect.booster}

    def apply(self, kind: Kind, change: Change) -> set[Key]:
        """Something happened to an object."""
        if change.manifest is None:
            return set()
        place = kind, Key.of(change.manifest)
        if change.version <= self._versions.get(place, -1):
            return set()
        self._versions[place] = change.version
        concerned = self._concerned(place, change.manifest)
        self._drop(place)
        if not change.gone:
            self._objects[place] = change.manifest
            for uid in _owners(change.manifest):
                self._owned.setdefault(uid, set()).add(place)
        return concerned

    def written(self, kind: Kind, manifest: Manifest) -> None:
        """We wrote an object: this is what came of it."""
        self.apply(kind, Change(_version(manifest), manifest))

    def replace(self, kind: Kind, namespace: str, listed: Listed) -> set[Key]:
        """All objects of a kind were listed; those that are not among them are gone."""
        there = {Key.of(manifest) for manifest in listed.manifests}
        gone = [
            place
            for place, version in self._versions.items()
            if place[0] == kind
            and namespace in ("", place[1].namespace)
            and place[1] not in there
            and version <= listed.version
        ]
        concerned = {key for place in gone for key in self._forgotten(place)}
        for manifest in listed.manifests:
            concerned |= self.apply(kind, Change(_version(manifest), manifest))
        return concerned

    def _forgotten(self, place: Place) -> set[Key]:
        del self._versions[place]
        before = self._drop(place)
        return set() if before is None else self._concerned(place, before)

    def _drop(self, place: Place) -> Manifest | None:
        before = self._objects.pop(place, None)
        for uid in _owners(before or {}):
            places = self._owned[uid]
            places.discard(place)
            if not places:
                del self._owned[uid]
        return before

    def _concerned(self, place: Place, manifest: Manifest) -> set[Key]:
        """The owner of a child; of one that has none those who may need its name."""
        kind, key = place
        if kind == self.dialect.booster:
            return {key}
        owners = {
            Key(key.namespace, owner["name"])
            for owner in manifest["metadata"].get("ownerReferences") or ()
            if owner.get("kind") == self.dialect.booster.kind
        }
        before = self._objects.get(place)
        if before is not None and _owners(before) != _owners(manifest):
            owners |= set(self._namesakes(key))
        return owners or set(self._namesakes(key))

    def _namesakes(self, key: Key) -> Iterator[Key]:
        for booster in self.boosters():
            named = key.name == booster.name or key.name.startswith(f"{booster.name}-")
            if booster.namespace == key.namespace and named:
                yield booster


def _owners(manifest: Manifest) -> set[str]:
    metadata = manifest.get("metadata") or {}
    return {owner["uid"] for owner in metadata.get("ownerReferences") or ()}


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])
