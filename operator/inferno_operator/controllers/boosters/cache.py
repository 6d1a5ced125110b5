"""The boosters of a dialect and their children, as events tell of them; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Manifest, Place
from inferno_operator.runtime.cache import Cache, Difference
from inferno_operator.runtime.ports import Change, Listing


@dataclass(slots=True)
class BoosterCache:
    """Objects by place and by owner; methods that change it return the boosters it concerns."""

    dialect: Dialect
    _cache: Cache = field(default_factory=Cache)
    _owned: dict[str, set[Place]] = field(default_factory=dict)
    """Places of the children by the uid of an owner."""

    def booster(self, key: Key) -> Manifest | None:
        """The manifest of a booster."""
        return self._cache.get(Place(self.dialect.booster, key))

    def children(self, booster: Booster) -> list[Manifest]:
        """What it owns, and every object that has a name which it may need."""
        names = [booster.metadata.name, *map(booster.child_name, booster.spec.backends)]
        named = {
            Place(kind, Key(booster.metadata.namespace, name))
            for kind in self.dialect.children
            for name in names
        }
        places = named | self._owned.get(booster.metadata.uid, set())
        return [child for place in places if (child := self._cache.get(place)) is not None]

    def boosters(self) -> set[Key]:
        """All of them."""
        return {place.key for place in self._cache.places() if place.kind == self.dialect.booster}

    def apply(self, kind: Kind, change: Change) -> set[Key]:
        """An object was seen, or seen to be gone."""
        return self._concerned_by(self._cache.apply(kind, change))

    def written(self, kind: Kind, manifest: Manifest) -> set[Key]:
        """An object is like this since the operator wrote it."""
        return self._concerned_by(self._cache.written(kind, manifest))

    def replace(self, listing: Listing) -> set[Key]:
        """All objects of a kind were listed; those that are not among them are gone."""
        return self._concerned_by(self._cache.replace(listing))

    def _concerned_by(self, differences: Iterable[Difference]) -> set[Key]:
        concerned: set[Key] = set()
        for difference in differences:
            self._index(difference)
            concerned |= self._boosters_of(difference)
        return concerned

    def _index(self, difference: Difference) -> None:
        for uid in _owners(difference.before):
            self._owned[uid].discard(difference.place)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owners(difference.after):
            self._owned.setdefault(uid, set()).add(difference.place)

    def _boosters_of(self, difference: Difference) -> set[Key]:
        """The owner of a child; if it has none, or another one, those that may need its name."""
        place, before, after = difference.place, difference.before, difference.after
        if place.kind == self.dialect.booster:
            return {place.key}
        owners = {
            Key(place.key.namespace, owner["name"])
            for owner in ((after or before or {})["metadata"].get("ownerReferences") or ())
            if owner.get("kind") == self.dialect.booster.kind
        }
        has_other_owners = before is not None and after and _owners(before) != _owners(after)
        if has_other_owners or not owners:
            owners |= set(self._namesakes(place.key))
        return owners

    def _namesakes(self, key: Key) -> Iterator[Key]:
        for booster in self.boosters():
            named = key.name == booster.name or key.name.startswith(f"{booster.name}-")
            if booster.namespace == key.namespace and named:
                yield booster


def _owners(manifest: Manifest | None) -> set[str]:
    metadata = (manifest or {}).get("metadata") or {}
    return {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
