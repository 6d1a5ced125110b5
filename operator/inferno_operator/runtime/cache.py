"""The newest version of the objects of a kind, decoded when they are first asked for; pure.

The cache keeps the newest version of each object, in whatever order the versions arrive from
lists, watches and the operator's own writes. Resource versions are compared as numbers, which
Kubernetes allows: kubernetes.io/docs/reference/using-api/api-concepts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from inferno_operator.resources import RESOURCES, Resource
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Listing, ObjectChange

DECODED: Mapping[Kind, type[Resource]] = {kind_of(resource): resource for resource in RESOURCES}
"""Our kinds; objects of other kinds stay manifests."""

Decode = Callable[[type[Resource], Manifest], Observation]
"""Reads an object of one of our kinds."""


@dataclass(frozen=True, slots=True)
class ObjectDifference:
    """An object before and after a change; None where it does not exist."""

    place: Place
    before: Manifest | None
    after: Manifest | None

    @property
    def has_gone_back(self) -> bool:
        """Whether an object has an older version, as after a restore of etcd."""
        if self.before is None or self.after is None:
            return False
        return version_of(self.after) < version_of(self.before)

    def concerns(self, part: Callable[[Manifest], object]) -> bool:
        """Whether an object came or went, or a part of it is different."""
        if self.before is None or self.after is None:
            return True
        return part(self.before) != part(self.after)


@dataclass(slots=True)
class Cache:
    """The objects of a kind, in a namespace or in all namespaces.

    The methods that change the cache return the differences. With `decode`, each object is decoded
    at once, and of its manifest only the metadata is kept.
    """

    kind: Kind
    decode: Decode | None = None
    _objects: dict[str, dict[Key, Manifest]] = field(default_factory=dict)
    """By namespace: what is asked for costs no more than what is found."""
    _observations: dict[Key, Observation] = field(default_factory=dict)
    _versions: dict[Key, int] = field(default_factory=dict)
    """Newest version of each object, including those deleted since the last list."""
    _floor: int = -1
    """Version of the last list: older versions are ignored."""

    def get(self, key: Key) -> Manifest | None:
        """Return an object, or None if the cache does not have it."""
        return self._objects.get(key.namespace, {}).get(key)

    def observation(self, key: Key) -> Observation | None:
        """Return an object of our kinds as it was read, or None if the cache does not have it."""
        manifest = self.get(key)
        return None if manifest is None else self._observe(key, manifest)

    def keys(self, namespace: str = "") -> Iterator[Key]:
        """Return the keys of the objects of a namespace, or of all namespaces ("")."""
        return chain.from_iterable(self._select_namespaces(namespace))

    def manifests(self, namespace: str = "") -> Iterator[Manifest]:
        """Return the objects of a namespace, or of all namespaces ("")."""
        return chain.from_iterable(
            objects.values() for objects in self._select_namespaces(namespace)
        )

    def observations(self, namespace: str = "") -> Iterator[Observation]:
        """Return the objects of our kinds as they were read, as `manifests` returns them."""
        for objects in self._select_namespaces(namespace):
            for key, manifest in objects.items():
                yield self._observe(key, manifest)

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have objects."""
        return frozenset(self._objects)

    def apply(self, change: ObjectChange) -> tuple[ObjectDifference, ...]:
        """Take a change from a watch; returns one difference, or none if nothing differs."""
        if change.manifest is None:
            return ()
        key = Key.of(change.manifest)
        if change.version <= max(self._versions.get(key, -1), self._floor):
            return ()
        self._versions[key] = change.version
        return self._replace(key, None if change.gone else change.manifest)

    def written(self, manifest: Manifest) -> tuple[ObjectDifference, ...]:
        """Take an object as the API server returned it to a write of this operator."""
        return self.apply(ObjectChange(version_of(manifest), manifest))

    def replace(self, listing: Listing) -> tuple[ObjectDifference, ...]:
        """Take a list of all objects; objects that are not in it are deleted."""
        listed = {Key.of(manifest) for manifest in listing.manifests}
        unlisted = [
            key
            for key, version in self._versions.items()
            if key not in listed and version <= listing.version
        ]
        differences: list[ObjectDifference] = []
        for key in unlisted:
            del self._versions[key]
            differences += self._replace(key, None)
        for manifest in listing.manifests:
            differences += self.written(manifest)
        self._floor = max(listing.version, self._floor)
        return tuple(differences)

    def contradicts(self, listing: Listing) -> bool:
        """Whether a list has an object as it cannot be after what is known.

        So it is after etcd was restored from an older copy, once the versions are as new again.
        """
        found = ((Key.of(manifest), version_of(manifest)) for manifest in listing.manifests)
        listed = ((self._versions.get(key, -1), version) for key, version in found)
        return listing.version >= self._floor and any(
            version < known <= listing.version or known < version <= self._floor
            for known, version in listed
        )

    def restore(self, listing: Listing) -> tuple[ObjectDifference, ...]:
        """Take a list of all objects from an API server that went back to an older version."""
        self._versions = dict.fromkeys(self._versions, -1)
        self._floor = -1
        return self.replace(listing)

    def _select_namespaces(self, namespace: str) -> Iterable[Mapping[Key, Manifest]]:
        """Return the objects of a namespace, or those of each namespace ("")."""
        return (self._objects.get(namespace, {}),) if namespace else self._objects.values()

    def _observe(self, key: Key, manifest: Manifest) -> Observation:
        """Return an object of the cache as it was read; it is read if nobody has asked for it."""
        observation = self._observations.get(key)
        if observation is None:
            observation = self._observations[key] = observe(DECODED[self.kind], manifest)
        return observation

    def _replace(self, key: Key, after: Manifest | None) -> tuple[ObjectDifference, ...]:
        self._observations.pop(key, None)
        objects = self._objects.setdefault(key.namespace, {})
        before = objects.pop(key, None)
        if after is not None and self.decode:
            self._observations[key] = self.decode(DECODED[self.kind], after)
            after = {"metadata": after["metadata"]}
        if after is not None:
            objects[key] = after
        elif not objects:
            del self._objects[key.namespace]
        differs = before is not None or after is not None
        return (ObjectDifference(Place(self.kind, key), before, after),) if differs else ()


def generation_of(manifest: Manifest) -> tuple[str, int]:
    """Return what differs after a change of the spec, and for another object of the same name."""
    return manifest["metadata"]["uid"], manifest["metadata"]["generation"]


def version_of(manifest: Manifest) -> int:
    """Return the resource version of an object."""
    return int(manifest["metadata"]["resourceVersion"])
