"""Whatever the order of events, the mirror holds what a list would give."""

from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.resources import RESOURCES, Capacity, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.cache import Mirror
from inferno_operator.runtime.ports import Listing
from tests.unit.operator.objects import (
    Manifest,
    accelerator,
    capacity,
    model,
    optimizer,
    server,
    service_class,
)

KINDS = {kind.kind: kind for kind in RESOURCES}
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
Event = tuple[str, type[Resource], Manifest]


def versioned(manifest: Manifest, namespace: str, name: str, version: int, uid: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "generation": version}
    return {**manifest, "metadata": {**metadata, "resourceVersion": str(version)}}


class World:
    """A cluster that changes; remembers each event and what was there at each version."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type[Resource], Key], Manifest] = {}
        self.events: list[Event] = []
        self.listings: list[Listing] = []
        self.version = 0

    def step(self, kind_name: str, namespace: str, name: str, action: str) -> None:
        self.version += 1
        kind, key = KINDS[kind_name], Key(namespace, name)
        old = self.objects.get((kind, key))
        if action == "list":
            self.listings.append(self.listing(kind, namespace))
        elif action == "put":
            uid = old["metadata"]["uid"] if old else f"uid-{self.version}"
            spec_name = f"name-{self.version}"  # renamed with every change
            manifest = versioned(SPECS[kind_name](spec_name), namespace, name, self.version, uid)
            self.objects[kind, key] = manifest
            self.events.append(("MODIFIED" if old else "ADDED", kind, manifest))
        elif old is not None:
            del self.objects[kind, key]
            gone = versioned(old, namespace, name, self.version, old["metadata"]["uid"])
            self.events.append(("DELETED", kind, gone))

    def listing(self, kind: type[Resource], namespace: str) -> Listing:
        found = tuple(
            manifest
            for (a_kind, key), manifest in self.objects.items()
            if a_kind is kind and namespace in ("", key.namespace)
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


def tell(mirror: Mirror, event: Event | Listing) -> frozenset[str]:
    if isinstance(event, Listing):
        return mirror.replace(event)
    type_, kind, manifest = event
    return mirror.remove(kind, manifest) if type_ == "DELETED" else mirror.put(kind, manifest)


def held(mirror: Mirror) -> dict[tuple[type[Resource], Key], object]:
    return {
        (seen.reference.resource, seen.reference.key): seen
        for namespace in NAMESPACES
        for seen in mirror.all(namespace)
    }


def listed(world: World) -> dict[tuple[type[Resource], Key], object]:
    return {place: observe(place[0], manifest) for place, manifest in world.objects.items()}


@given(STEPS, st.randoms(use_true_random=False))
def test_any_order_of_events_gives_what_a_list_gives(steps: Steps, random: Random) -> None:
    world = world_of(steps)
    events: list[Event | Listing] = [*world.events, *world.listings]
    random.shuffle(events)
    mirror = Mirror()

    for event in events:
        tell(mirror, event)

    assert held(mirror) == listed(world)


@given(STEPS, STEPS)
def test_a_list_makes_good_for_events_that_were_missed(seen: Steps, missed: Steps) -> None:
    world = world_of(seen)
    mirror = Mirror()
    for event in world.events:
        tell(mirror, event)
    for step in missed:
        world.step(*step)

    for kind in RESOURCES:
        mirror.replace(world.listing(kind, ""))

    assert held(mirror) == listed(world)


@given(STEPS)
def test_an_event_that_comes_twice_changes_nothing(steps: Steps) -> None:
    mirror, events = Mirror(), world_of(steps).events
    for event in events:
        tell(mirror, event)
        before = held(mirror)

        assert tell(mirror, event) == frozenset()
        assert held(mirror) == before


def put(mirror: Mirror, manifest: Manifest, version: int, namespace: str = "one") -> frozenset[str]:
    kind = KINDS[manifest["kind"]]
    name = manifest["metadata"]["name"]
    metadata = {**versioned(manifest, namespace, name, version, "u")["metadata"]}
    return mirror.put(kind, {**manifest, "metadata": {**manifest["metadata"], **metadata}})


def test_a_change_is_told_with_its_namespace() -> None:
    mirror = Mirror()

    assert put(mirror, server("S"), 1, "two") == {"two"}
    assert put(mirror, server("S", wanted=3), 2, "two") == {"two"}
    assert mirror.namespaces() == {"two"}


def test_what_we_write_ourselves_is_no_change() -> None:
    mirror = Mirror()
    put(mirror, server("S"), 1)
    decision = {"desiredAlloc": {"accelerator": "A", "numReplicas": 2}}

    assert put(mirror, server("S", spec=decision), 2) == frozenset()
    assert put(mirror, {**server("S", spec=decision), "status": {"active": True}}, 3) == frozenset()


def test_a_deletion_that_was_asked_for_is_a_change() -> None:
    mirror = Mirror()
    put(mirror, server("S"), 1)
    leaving = server("S", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"])

    assert put(mirror, leaving, 2) == {"one"}
    (seen,) = mirror.all("one")
    assert seen.deleted is not None
    assert seen.finalizers == ("f",)


def test_namespaces_and_kinds_are_kept_apart() -> None:
    mirror = Mirror()
    put(mirror, server("S"), 1, "one")
    put(mirror, server("S"), 2, "two")
    put(mirror, capacity(3, "s"), 3, "one")

    mirror.replace(Listing(Server, "one", 9, ()))

    assert [seen.reference.resource for seen in mirror.all("one")] == [Capacity]
    assert [seen.reference.resource for seen in mirror.all("two")] == [Server]


def test_an_object_that_cannot_be_read_is_kept_with_its_problem() -> None:
    mirror = Mirror()
    put(mirror, {**server("S"), "spec": {}}, 1)

    (seen,) = mirror.all("one")

    assert seen.resource is None
    assert seen.problem
