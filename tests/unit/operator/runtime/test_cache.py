"""Whatever the order of events, the cache holds what a list would give."""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.resources import SYSTEM_RESOURCES, Capacity, Server
from inferno_operator.resources.objects import Key, Kind, Place, kind_of
from inferno_operator.runtime.cache import Cache, Difference
from inferno_operator.runtime.ports import Change, Listing
from tests.unit.operator.objects import (
    Manifest,
    accelerator,
    capacity,
    model,
    optimizer,
    server,
    service_class,
)

KINDS = {kind.kind: kind_of(kind) for kind in SYSTEM_RESOURCES}
SERVER = kind_of(Server)
SPECS: dict[str, Callable[[str], Manifest]] = {
    "Accelerator": accelerator,
    "Model": model,
    "ServiceClass": service_class,
    "Server": server,
    "Capacity": lambda name: capacity(len(name), name),
    "Optimizer": optimizer,
}
NAMESPACES = ("one", "two")

Steps = list[tuple[str, str, str, str]]
Event = tuple[str, Kind, Manifest]


def versioned(manifest: Manifest, namespace: str, name: str, version: int, uid: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "generation": version}
    return {**manifest, "metadata": {**metadata, "resourceVersion": str(version)}}


class World:
    """A cluster that changes; remembers each event and what was there at each version."""

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.events: list[Event] = []
        self.listings: list[Listing] = []
        self.version = 0

    def step(self, kind_name: str, namespace: str, name: str, action: str) -> None:
        self.version += 1
        kind = KINDS[kind_name]
        place = Place(kind, Key(namespace, name))
        old = self.objects.get(place)
        if action == "list":
            self.listings.append(self.listing(kind, namespace))
        elif action == "put":
            uid = old["metadata"]["uid"] if old else f"uid-{self.version}"
            spec_name = f"name-{self.version}"  # renamed with every change
            manifest = versioned(SPECS[kind_name](spec_name), namespace, name, self.version, uid)
            self.objects[place] = manifest
            self.events.append(("MODIFIED" if old else "ADDED", kind, manifest))
        elif old is not None:
            del self.objects[place]
            gone = versioned(old, namespace, name, self.version, old["metadata"]["uid"])
            self.events.append(("DELETED", kind, gone))

    def listing(self, kind: Kind, namespace: str) -> Listing:
        found = tuple(
            manifest
            for place, manifest in self.objects.items()
            if place.kind == kind and namespace in ("", place.key.namespace)
        )
        return Listing(kind, namespace, self.version, found)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(KINDS)),
        st.sampled_from(NAMESPACES),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["put", "put", "delete", "list"]),
    ),
    max_size=30,
)


def world_of(steps: Steps) -> World:
    world = World()
    for step in steps:
        world.step(*step)
    return world


def tell(cache: Cache, event: Event | Listing) -> tuple[Difference, ...]:
    if isinstance(event, Listing):
        return cache.replace(event)
    type_, kind, manifest = event
    version = int(manifest["metadata"]["resourceVersion"])
    return cache.apply(kind, Change(version, manifest, gone=type_ == "DELETED"))


def held(cache: Cache) -> dict[Place, Any]:
    places = (Place(kind, key) for kind in KINDS.values() for key in cache.keys(kind))
    return {place: cache.get(place) for place in places}


@given(STEPS, st.randoms(use_true_random=False))
def test_any_order_of_events_gives_what_a_list_gives(steps: Steps, random: Random) -> None:
    world = world_of(steps)
    events: list[Event | Listing] = [*world.events, *world.listings]
    random.shuffle(events)
    cache = Cache()

    for event in events:
        tell(cache, event)

    assert held(cache) == world.objects


@given(STEPS, STEPS)
def test_a_list_makes_good_for_events_that_were_missed(seen: Steps, missed: Steps) -> None:
    world = world_of(seen)
    cache = Cache()
    for event in world.events:
        tell(cache, event)
    for step in missed:
        world.step(*step)

    for kind in KINDS.values():
        cache.replace(world.listing(kind, ""))

    assert held(cache) == world.objects


@given(STEPS)
def test_an_event_that_comes_twice_changes_nothing(steps: Steps) -> None:
    cache, events = Cache(), world_of(steps).events
    for event in events:
        tell(cache, event)
        before = held(cache)

        assert tell(cache, event) == ()
        assert held(cache) == before


@given(STEPS)
def test_differences_lead_from_one_state_to_the_next(steps: Steps) -> None:
    world, cache = world_of(steps), Cache()
    followed: dict[Place, Any] = {}
    events: list[Event | Listing] = [*world.listings, *world.events]
    for event in events:
        for difference in tell(cache, event):
            assert followed.pop(difference.place, None) == difference.before
            if difference.after is not None:
                followed[difference.place] = difference.after

        assert held(cache) == followed


def put(cache: Cache, manifest: Manifest, version: int, namespace: str) -> None:
    kind = KINDS[manifest["kind"]]
    name = manifest["metadata"]["name"]
    cache.written(kind, versioned(manifest, namespace, name, version, "u"))


def test_namespaces_and_kinds_are_kept_apart() -> None:
    cache = Cache()
    put(cache, server("S"), 1, "one")
    put(cache, server("S"), 2, "two")
    put(cache, capacity(3, "s"), 3, "one")

    cache.replace(Listing(SERVER, "one", 9, ()))

    assert set(held(cache)) == {
        Place(kind_of(Capacity), Key("one", "s")),
        Place(SERVER, Key("two", "s")),
    }
