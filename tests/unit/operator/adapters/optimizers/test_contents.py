"""What is sent to an optimizer that keeps contents makes them equal, whatever they were."""

import json
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import quote, unquote

from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.adapters.optimizers.remote import (
    READS,
    Contents,
    build_contents,
    decode_contents,
    escape_names,
    find_operations,
    restore_names,
)
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    PerformanceProfile,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_system, encode_system
from tests.rest_optimizer.store import MissingError, Store

NAMES = st.sampled_from(["A", "b", "a/b", "50%", "%2F", ".", "..", "ä ö", "<&>", "x?y#z"])
NUMBERS = st.floats(0, 1e6, allow_nan=False) | st.sampled_from([0.1, 1e15, 1e30])
COUNTS = st.integers(0, 1000)

ALLOCATIONS = st.builds(
    Allocation,
    accelerator=NAMES,
    replicas=COUNTS,
    cost=NUMBERS,
    load=st.builds(Load, arrival_rate=NUMBERS, tokens_per_request=COUNTS),
)
TARGETS = st.dictionaries(NAMES, st.builds(Target, itl_ms=NUMBERS, wait_ms=NUMBERS), max_size=3)


def some(item: st.SearchStrategy[object], *key: str) -> st.SearchStrategy[tuple[object, ...]]:
    def name(value: object) -> tuple[object, ...]:
        return tuple(getattr(value, part) for part in key)

    return st.lists(item, max_size=4, unique_by=name).map(tuple)


SYSTEMS = st.builds(
    System,
    accelerators=some(st.builds(Accelerator, NAMES, NAMES, NUMBERS, st.integers(1, 8)), "name"),
    profiles=some(
        st.builds(
            PerformanceProfile,
            model=NAMES,
            accelerator=NAMES,
            parameters=st.builds(DecodeParameters, NUMBERS, NUMBERS),
            max_batch_size=COUNTS,
            at_tokens=COUNTS,
            accelerator_count=st.integers(1, 4),
        ),
        "model",
        "accelerator",
    ),
    classes=some(st.builds(ServiceClass, NAMES, st.integers(1, 100), TARGETS), "name"),
    servers=some(st.builds(Server, NAMES, NAMES, NAMES, ALLOCATIONS), "name"),
    capacity=st.dictionaries(NAMES, COUNTS, max_size=3).map(MappingProxyType),
)


def call(store: Store, path: tuple[str, ...], body: object = None) -> object:
    """One request over the wire: JSON, and a path that is decoded before it is taken apart."""
    target = "/".join(quote(part, safe="") for part in path)
    return store.call(unquote(target).split("/"), json.loads(json.dumps(body)))


def read(store: Store) -> Contents:
    answers = {path: restore_names(call(store, (path,))) for path in READS}
    names = call(store, ("getModels",)) or []
    assert isinstance(names, list)
    return decode_contents(
        answers, [restore_names(call(store, ("getModel", name))) for name in names]
    )


def apply(store: Store, held: Contents, wanted: Contents) -> None:
    for operation in find_operations(held, wanted):
        call(store, tuple(escape_names(list(operation.path))), escape_names(operation.body))


@given(st.lists(SYSTEMS, min_size=1, max_size=3))
def test_what_is_sent_makes_the_optimizer_hold_what_is_wanted(systems: list[System]) -> None:
    store = Store()
    for system in systems:
        wanted = build_contents(system)

        apply(store, read(store), wanted)

        assert read(store) == wanted
        assert find_operations(read(store), wanted) == ()
        assert store.models.keys() == {escape_names([p.model])[0] for p in system.profiles}


@given(SYSTEMS)
def test_an_optimizer_that_was_told_solves_the_same_system(system: System) -> None:
    store = Store()
    apply(store, read(store), build_contents(system))

    kept = decode_system(restore_names(store.system({})))

    assert build_contents(kept) == build_contents(system)


@given(SYSTEMS)
def test_order_and_rounding_are_no_difference(system: System) -> None:
    reversed_classes = [
        replace(c, targets=dict([*c.targets.items()][::-1])) for c in reversed(system.classes)
    ]
    shuffled = replace(
        decode_system(encode_system(system)),
        servers=system.servers[::-1],
        classes=tuple(reversed_classes),
    )

    assert find_operations(build_contents(system), build_contents(shuffled)) == ()


@given(NAMES)
def test_a_name_is_one_part_of_a_path_and_comes_back(name: str) -> None:
    (sent,) = escape_names([name])

    assert unquote(quote(sent, safe="")).split("/") == [sent]
    assert sent not in (".", "..")
    assert restore_names(sent) == name


def test_requests_that_are_sent_twice_change_nothing() -> None:
    store = Store()
    a, b = Accelerator("A", "T", 10), Accelerator("B", "T", 20)
    apply(store, read(store), build_contents(System(accelerators=(a,))))
    before, wanted = read(store), build_contents(System(accelerators=(b,)))

    apply(store, before, wanted)
    for operation in find_operations(before, wanted):
        try:
            call(store, operation.path, operation.body)
        except MissingError:
            assert operation.body is None

    assert read(store) == wanted
