"""Whatever the order of events, the cache holds what a list would give."""

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.resources import SYSTEM_RESOURCES, Server
from inferno_operator.resources.objects import Key, Kind, Place, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.cache import Cache, ObjectDifference
from inferno_operator.runtime.ports import Listing, ObjectChange
from tests.calls import calls
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


class Caches:
    """A cache for each kind and namespace."""

    def __init__(self) -> None:
        areas = product(KINDS.values(), NAMESPACES)
        self._caches = {(kind, namespace): Cache(kind) for kind, namespace in areas}

    def tell(self, event: Event | Listing) -> tuple[ObjectDifference, ...]:
        if isinstance(event, Listing):
            return self._caches[event.kind, event.namespace].replace(event)
        type_, kind, manifest = event
        cache = self._caches[kind, manifest["metadata"]["namespace"]]
        version = int(manifest["metadata"]["resourceVersion"])
        return cache.apply(ObjectChange(version, manifest, gone=type_ == "DELETED"))

    def of(self, kind: Kind, namespace: str) -> Cache:
        return self._caches[kind, namespace]

    def held(self) -> dict[Place, Any]:
        return {
            Place(kind, key): cache.get(key)
            for (kind, _), cache in self._caches.items()
            for key in cache.keys()  # noqa: SIM118 - no mapping
        }


@given(STEPS, st.randoms(use_true_random=False))
def test_any_order_of_events_gives_what_a_list_gives_and_differences_lead_there(
    steps: Steps, random: Random
) -> None:
    world, caches = world_of(steps), Caches()
    events: list[Event | Listing] = [*world.events, *world.listings]
    random.shuffle(events)
    followed: dict[Place, Any] = {}

    for event in events:
        if isinstance(event, Listing):
            assert not caches.of(event.kind, event.namespace).contradicts(event)
        for difference in caches.tell(event):
            assert followed.pop(difference.place, None) == difference.before
            if difference.after is not None:
                followed[difference.place] = difference.after
        assert caches.held() == followed
        assert caches.tell(event) == ()

    assert caches.held() == world.objects


@given(STEPS, STEPS)
def test_a_list_makes_good_for_events_that_were_missed(seen: Steps, missed: Steps) -> None:
    world = world_of(seen)
    caches = Caches()
    for event in world.events:
        caches.tell(event)
    for step in missed:
        world.step(*step)

    for kind, namespace in product(KINDS.values(), NAMESPACES):
        caches.tell(world.listing(kind, namespace))

    assert caches.held() == world.objects


@given(STEPS, STEPS, STEPS)
def test_a_restored_copy_whose_versions_are_as_new_again_is_noticed(
    steps: Steps, lost: Steps, new: Steps
) -> None:
    before, cache = world_of([*steps, *lost]), Cache(SERVER)
    cache.replace(before.listing(SERVER, ""))
    world = world_of(steps)
    for step in new:
        world.step(*step)
    world.version = max(world.version, before.version) + 1
    listing = world.listing(SERVER, "")

    take = cache.restore if cache.contradicts(listing) else cache.replace
    take(listing)

    versions = {key: cache.get(key)["metadata"]["resourceVersion"] for key in cache.keys()}  # type: ignore[index]  # noqa: SIM118 - no mapping
    assert versions == {
        place.key: manifest["metadata"]["resourceVersion"]
        for place, manifest in world.objects.items()
        if place.kind == SERVER
    }


@given(STEPS, STEPS)
def test_what_is_restored_replaces_whatever_is_known(steps: Steps, other: Steps) -> None:
    later, cache = world_of([*steps, *other, *other]), Cache(SERVER)
    for _, kind, manifest in later.events:
        if kind == SERVER:
            cache.written(manifest)
    cache.replace(later.listing(SERVER, ""))
    world = world_of(steps)

    cache.restore(world.listing(SERVER, ""))

    held = {Place(SERVER, key): cache.get(key) for key in cache.keys()}  # noqa: SIM118 - no mapping
    assert held == {place: o for place, o in world.objects.items() if place.kind == SERVER}
    world.step("Server", "one", "x", "put")
    (_, _, newest) = world.events[-1]
    assert cache.written(newest)


@given(STEPS)
def test_a_cache_of_all_namespaces_holds_what_those_of_each_hold(steps: Steps) -> None:
    world, cache = world_of(steps), Cache(SERVER)
    events = [manifest for _, kind, manifest in world.events if kind == SERVER]
    for manifest in events[: len(events) // 2]:
        cache.written(manifest)

    cache.replace(world.listing(SERVER, ""))

    keys = {place.key for place in world.objects if place.kind == SERVER}
    assert set(cache.keys()) == keys
    for namespace in NAMESPACES:
        assert set(cache.keys(namespace)) == {k for k in keys if k.namespace == namespace}
    assert cache.namespaces() == {key.namespace for key in keys}


def test_an_object_is_decoded_once_for_each_version() -> None:
    cache, key = Cache(SERVER), Key("one", "s")
    cache.written(versioned(server("S"), "one", "s", 1, "u"))
    first = cache.observation(key)

    assert cache.observation(key) is first
    cache.written(versioned(server("T"), "one", "s", 2, "u"))
    newest = cache.observation(key)
    assert newest is not None
    assert newest.reference.version == "2"


def test_all_objects_that_were_read_are_returned_in_few_calls_each() -> None:
    cache, servers = Cache(SERVER), 50
    for number in range(servers):
        cache.written(versioned(server("S"), "one", f"s{number}", 1 + number, f"u{number}"))
    read = list(cache.observations("one"))

    again = [list(cache.observations(namespace)) for namespace in ("one", "")]

    assert again == [read, read]
    assert list(cache.observations("two")) == []
    assert calls(lambda: list(cache.observations("one"))) < 5 * servers


def test_what_is_kept_only_decoded_is_what_is_decoded_later() -> None:
    only, whole, key = Cache(SERVER, observe), Cache(SERVER), Key("one", "s")
    manifest = versioned(server("S"), "one", "s", 1, "u")
    for cache in (only, whole):
        cache.written(manifest)

    assert only.observation(key) == whole.observation(key)
    assert only.get(key) == {"metadata": manifest["metadata"]}
    only.apply(ObjectChange(2, manifest, gone=True))
    assert only.observation(key) is None


def test_a_difference_concerns_those_who_read_the_part_that_differs() -> None:
    cache = Cache(SERVER)
    (came,) = cache.written(versioned(server("S"), "one", "s", 1, "u"))
    (changed,) = cache.written(versioned(server("T"), "one", "s", 2, "u"))

    assert came.concerns(lambda _: "nothing")
    assert changed.concerns(lambda manifest: manifest["spec"]["name"])
    assert not changed.concerns(lambda manifest: manifest["kind"])
