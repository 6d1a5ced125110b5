"""The boosters of a dialect and their children, from lists and watches; pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, kind_of
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Subscription

SERVER = kind_of(Server)


@dataclass(slots=True)
class BoosterCache:
    """Objects by place and by owner.

    Parameters
    ----------
    dialect
        The dialect of the boosters.
    objects
        The boosters, their children, and Servers.
    """

    dialect: Dialect
    objects: Subscription
    _owned: dict[str, set[Place]] = field(default_factory=dict)
    """The places of children by uid of their owner."""

    def booster(self, key: Key) -> Manifest | None:
        """Return the manifest of a booster, if it exists."""
        return self.objects.get(Place(self.dialect.booster, key))

    def children(self, booster: Booster) -> list[Manifest]:
        """Return the objects that a booster owns, and all with a name that its children need."""
        names = [booster.metadata.name, *map(booster.child_name, booster.spec.backends)]
        named = {
            Place(kind, Key(booster.metadata.namespace, name))
            for kind in self.dialect.children
            for name in names
        }
        places = named | self._owned.get(booster.metadata.uid, set())
        return [child for place in places if (child := self.objects.get(place)) is not None]

    def servers(self, namespace: str) -> Iterator[Server]:
        """Return the Servers of a namespace whose spec is valid."""
        for observation in self.objects.observations(SERVER, namespace):
            if isinstance(observation.resource, Server):
                yield observation.resource

    def boosters(self) -> set[Key]:
        """Return the keys of all boosters."""
        return {place.key for place in self.objects.places(self.dialect.booster)}

    def written(self, kind: Kind, manifest: Manifest) -> None:
        """Take an object as the API server returned it to a write of this operator."""
        for difference in self.objects.written(kind, manifest):
            self._index(difference)

    def noted(self, difference: ObjectDifference) -> set[Key]:
        """Take a change from a watch; returns the boosters to reconcile."""
        if difference.place.kind == SERVER:
            return self._decided_by(difference) if difference.concerns(_decision) else set()
        self._index(difference)
        return self._boosters_of(difference)

    def _index(self, difference: ObjectDifference) -> None:
        for uid in _owners(difference.before):
            self._owned[uid].discard(difference.place)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owners(difference.after):
            self._owned.setdefault(uid, set()).add(difference.place)

    def _boosters_of(self, difference: ObjectDifference) -> set[Key]:
        """Return the booster of a difference.

        If a child has no owner, or another owner than before, boosters that may need its name
        are returned too.
        """
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

    def _decided_by(self, difference: ObjectDifference) -> set[Key]:
        """Return the boosters that a Server refers to, and those with servings that it names."""
        keys = set()
        for manifest in filter(None, (difference.before, difference.after)):
            namespace, spec = difference.place.key.namespace, manifest.get("spec", {})
            booster = spec.get("modelBooster") or {}
            names = {booster.get("name"), *(b.get("booster") for b in booster.get("backends", ()))}
            keys |= {Key(namespace, name) for name in names if name}
            for workload in spec.get("workloads") or ():
                keys |= set(self._namesakes(Key(namespace, workload.get("name", ""))))
        return keys & self.boosters()

    def _namesakes(self, key: Key) -> Iterator[Key]:
        for place in self.objects.places(self.dialect.booster, key.namespace):
            if key.name == place.key.name or key.name.startswith(f"{place.key.name}-"):
                yield place.key


def _decision(manifest: Manifest) -> object:
    """Return what of a Server says for which backends it decides, and whether it does."""
    spec, metadata = manifest.get("spec", {}), manifest["metadata"]
    conditions = manifest.get("status", {}).get("conditions") or ()
    reasons = {c["type"]: c["reason"] for c in conditions if c["type"] == ACTUATED}
    return (
        *(spec.get(name) for name in ("modelBooster", "workloads", "actuation")),
        metadata.get("deletionTimestamp"),
        any(c["type"] == ALLOCATED for c in conditions),
        reasons.get(ACTUATED) == RECOMMENDED,
    )


def _owners(manifest: Manifest | None) -> set[str]:
    metadata = (manifest or {}).get("metadata") or {}
    return {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
