"""An index of the Servers that refer to ModelBoosters, and of the objects they depend on."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from inferno_operator.controllers.actuation.targets import booster_places, read_places
from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.objects import Key, Place

Age = tuple[object, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    age: Age
    reference: ModelBoosterRef
    places: tuple[Place, ...]


@dataclass(slots=True)
class ServerIndex:
    """References by Server, and Servers by the objects that they depend on."""

    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _servers: defaultdict[Place, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _dialects: Counter[str] = field(default_factory=Counter)
    """References by dialect."""

    def put(self, key: Key, age: Age, reference: ModelBoosterRef) -> frozenset[Key]:
        """Store the reference of a Server; returns other Servers of its old and new boosters."""
        before = self._entries.get(key)
        if before is not None and before.reference == reference:
            return frozenset()
        concerned = self.remove(key)
        entry = _Entry(age, reference, read_places(reference, key.namespace))
        self._entries[key] = entry
        self._dialects[reference.dialect] += 1
        for place in entry.places:
            self._servers[place].add(key)
        return concerned | self._sharing(entry, key)

    def remove(self, key: Key) -> frozenset[Key]:
        """Remove a Server; returns other Servers that refer to its boosters."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return frozenset()
        self._dialects[entry.reference.dialect] -= 1
        concerned = self._sharing(entry, key)
        for place in entry.places:
            self._servers[place].discard(key)
            if not self._servers[place]:
                del self._servers[place]
        return concerned

    def reference(self, key: Key) -> ModelBoosterRef | None:
        """Return the reference of a Server, if it has one."""
        entry = self._entries.get(key)
        return None if entry is None else entry.reference

    def servers(self, place: Place) -> frozenset[Key]:
        """Return the Servers that depend on an object."""
        return frozenset(self._servers.get(place, ()))

    def holder(self, booster: Place) -> Key | None:
        """Return the oldest of the Servers that refer to a booster."""
        keys = [
            key
            for key in self.servers(booster)
            if booster in booster_places(self._entries[key].reference, key.namespace)
        ]
        return min(keys, key=lambda key: self._entries[key].age, default=None)

    def keys(self, namespace: str) -> frozenset[Key]:
        """Return the Servers with a reference in a namespace, or in all namespaces ("")."""
        return frozenset(key for key in self._entries if namespace in ("", key.namespace))

    def dialects(self) -> frozenset[str]:
        """Return the names of the dialects that Servers refer to."""
        return frozenset(name for name, count in self._dialects.items() if count)

    def of_dialects(self, names: Iterable[str]) -> frozenset[Key]:
        """Return the Servers that refer to boosters of some dialects."""
        wanted = set(names)
        return frozenset(k for k, e in self._entries.items() if e.reference.dialect in wanted)

    def _sharing(self, entry: _Entry, key: Key) -> frozenset[Key]:
        places = booster_places(entry.reference, key.namespace)
        return frozenset[Key]().union(*map(self.servers, places)) - {key}
