"""From the objects of a namespace to a System, whatever their order, and what is wrong."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.planning.conversions import find_break_even_s
from inferno_operator.controllers.planning.snapshot import Snapshot, build_system
from inferno_operator.resources import Optimizer, Resource, parse
from inferno_optimizer import system as core
from inferno_optimizer.forecast import spread_over
from inferno_optimizer.optimize import optimize
from tests.unit.operator.objects import (
    Manifest,
    accelerator,
    born,
    capacity,
    manifest,
    model,
    observed,
    optimizer,
    performance,
    running,
    server,
    service_class,
    system,
)

DEFAULTS: dict[str, Any] = {
    "hold_undecided": True,
    "no_swaps": True,
    "saturation_policy": core.SaturationPolicy.HOLD,
}
"""What the operator asks for where an Optimizer says nothing else; REST has other defaults."""

SECOND_GENERATION = {"decodeParms": {"alpha": 999, "beta": 0}}
THIRD_GENERATION = {"perfParms": {"alpha": 999, "beta": 0, "gamma": 0}}
COMPLETE = """
apiVersion: inferno.platform.ai/v1alpha1
kind: Accelerator
metadata: {name: a}
spec: {name: 2xA100, type: A100, multiplicity: 2, cost: 80.5}
---
apiVersion: inferno.platform.ai/v1alpha1
kind: Model
metadata: {name: m}
spec:
  name: granite
  data:
  - {acc: 2xA100, accCount: 3, alpha: 20.5, beta: 0.4, maxBatchSize: 32, atTokens: 512,
     maxTokens: 99000, maxNumSeqs: 48}
---
apiVersion: inferno.platform.ai/v1alpha1
kind: ServiceClass
metadata: {name: c}
spec:
  name: Gold
  priority: 7
  minReplicas: 2
  data:
  - {model: granite, slo-itl: 40, slo-ttw: 500.5, slo-tps: 7}
---
apiVersion: inferno.platform.ai/v1alpha1
kind: Server
metadata: {name: s}
spec:
  name: chat
  class: Gold
  model: granite
  keepAccelerator: true
  minNumReplicas: 2
  maxBatchSize: 24
  currentAlloc:
    accelerator: 2xA100
    numReplicas: 4
    maxBatch: 16
    cost: 322
    itlAverage: 22.5
    waitAverage: 3.5
    load: {arrivalRate: 60, avgLength: 128, arrivalCOV: 1.5, serviceCOV: 2}
---
apiVersion: inferno.platform.ai/v1alpha1
kind: Capacity
metadata: {name: n}
spec:
  count:
  - {type: A100, count: 16}
"""


def snapshot(*manifests: Manifest, **options: Any) -> Snapshot:  # noqa: ANN401 - as build_system
    return build_system([parse(item) for item in manifests], **options)


def told(found: Snapshot) -> set[tuple[str, str, str, str]]:
    return {(p.kind, p.name, p.reason, p.field) for p in found.problems}


def test_every_field_lands_in_its_place() -> None:
    system = snapshot(*yaml.safe_load_all(COMPLETE)).system

    assert system.accelerators == (core.Accelerator("2xA100", "A100", cost=80.5, multiplicity=2),)
    (profile,) = system.profiles
    assert (profile.model, profile.accelerator) == ("granite", "2xA100")
    assert profile.parameters == core.DecodeParameters(20.5, 0.4)
    assert (profile.max_batch_size, profile.at_tokens, profile.accelerator_count) == (32, 512, 3)
    assert (profile.max_tokens, profile.max_sequences) == (99000, 48)
    gold = core.Target(itl_ms=40, wait_ms=500.5, tokens_per_second=7)
    assert system.classes == (core.ServiceClass("Gold", 7, {"granite": gold}, 2),)
    load = core.Load(60, 128, arrival_cov=1.5, service_cov=2)
    current = core.Allocation("2xA100", 4, 16, cost=322, itl_ms=22.5, wait_ms=3.5, load=load)
    chat = core.Server(
        "chat",
        "Gold",
        "granite",
        current,
        keep_accelerator=True,
        min_replicas=2,
        max_batch_size=24,
    )
    assert system.servers == (chat,)
    assert system.capacity == {"A100": 16}


def test_what_runs_on_several_accelerators_is_known_part_by_part() -> None:
    mix = [{"accelerator": "A", "numReplicas": 2}, {"accelerator": "B", "numReplicas": 1}]
    spec = {"currentAlloc": {**running(3, 3), "mix": mix}}

    (found,) = snapshot(server(spec=spec)).system.servers

    assert [(p.accelerator, p.replicas) for p in found.current.mix] == [("A", 2), ("B", 1)]


MIX = [{"accelerator": "A", "numReplicas": 2}, {"accelerator": "B", "numReplicas": 1, "cost": 5}]


@pytest.mark.parametrize(
    ("runs", "acc_count", "costs"),
    [
        ({"cost": None}, 2, [3 * 2 * 7]),
        ({"cost": None, "mix": MIX}, 1, [19, 14, 5]),
        ({"cost": 0}, 1, [0]),
        ({"cost": 1.5}, 1, [1.5]),
        ({"cost": None, "accelerator": "Gone"}, 1, [0]),
    ],
    ids=["of the replicas", "of the parts", "told as 0", "told", "of an unknown accelerator"],
)
def test_a_cost_counts_as_it_is_told_else_it_is_that_of_the_replicas(
    runs: Manifest, acc_count: int, costs: list[float]
) -> None:
    current = {k: v for k, v in {**running(3, 3), **runs}.items() if v is not None}
    data = [{**performance(), "accCount": acc_count}]
    objects = accelerator(cost=7), model(data=data), server(spec={"currentAlloc": current})

    (found,) = snapshot(*objects).system.servers

    assert [found.current.cost, *(part.cost for part in found.current.mix)] == costs


@pytest.mark.parametrize(
    ("written", "measured", "least"),
    [(None, False, 0), (None, True, 1), (0, True, 1), (3, True, 3), (0, False, 0)],
)
def test_a_measured_server_keeps_one_replica(
    written: int | None, measured: bool, least: int
) -> None:
    spec: Manifest = {} if written is None else {"minNumReplicas": written}
    if measured:
        spec["measure"] = {"source": "vLLM", "labels": {"model_name": "m"}}

    (found,) = snapshot(accelerator(), model(), server(spec=spec)).system.servers

    assert found.min_replicas == least


def test_the_load_of_a_measured_server_wanders_for_ten_lead_times() -> None:
    spec: Manifest = {"startupSeconds": 30}
    measure = {"source": "vLLM", "labels": {"model_name": "m"}}
    typed, measured = (
        snapshot(accelerator(), model(), server(spec=own)).system.servers[0].load_spread
        for own in (spec, {**spec, "measure": measure})
    )

    assert (typed, measured) == (0.0, spread_over(300.0))


def test_what_is_left_out_has_its_documented_default() -> None:
    load = {"arrivalRate": 0, "avgLength": 0}
    idle = {"currentAlloc": {"accelerator": "", "numReplicas": 0, "load": load}}
    system = snapshot(
        manifest("Accelerator", {"name": "A", "type": "T", "cost": 1}, name="a"),
        model(data=[{**performance(), "accCount": 0}]),
        manifest("ServiceClass", {"name": "C", "data": [{"model": "M"}]}, name="c"),
        manifest("Server", {"name": "S", "class": "C", "model": "M", **idle}, name="s"),
        manifest("Capacity", {"count": [{"type": "T"}]}, name="n"),
        optimizer(),
    ).system

    assert system.accelerators[0].multiplicity == 1
    assert system.profiles[0].accelerator_count == 1
    assert system.classes[0].effective_priority == 100
    assert system.classes[0].targets == {"M": core.Target(0, 0, 0)}
    assert system.servers == (core.Server("S", "C", "M", core.Allocation()),)
    assert system.capacity == {"T": 0}
    assert system.options == core.Options(**DEFAULTS, time_limit=30)


def test_a_namespace_without_objects_is_an_empty_system() -> None:
    empty = snapshot()

    assert empty.system == core.System(capacity={}, options=core.Options(**DEFAULTS))
    assert (empty.problems, empty.excluded) == ((), ())


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("accelerator", accelerator),
        ("model", model),
        ("service class", service_class),
        ("server", server),
    ],
)
def test_of_two_objects_of_one_name_the_oldest_counts_and_the_younger_is_reported(
    kind: str, named: Callable[..., Manifest]
) -> None:
    younger = named("X", name="a-younger", creationTimestamp=born(2))
    older = named("X", name="z-older", creationTimestamp=born(1))

    found = snapshot(younger, older)

    ((resource, problem),) = found.excluded
    assert resource.metadata.name == "a-younger"
    assert (problem.kind, problem.name, problem.field) == (kind, "X", "name")
    assert problem.reason == "DuplicateName"
    assert older["kind"] in problem.message
    assert "z-older" in problem.message


def test_of_the_youngest_nothing_enters_the_system() -> None:
    system = snapshot(
        accelerator(cost=99, name="b", creationTimestamp=born(2)),
        accelerator(cost=10, name="a", creationTimestamp=born(1)),
        model(data=[performance(), performance("B")], name="n", creationTimestamp=born(2)),
        model(data=[performance()], name="m", creationTimestamp=born(1)),
        service_class(priority=9, name="d", creationTimestamp=born(2)),
        service_class(priority=1, name="c", creationTimestamp=born(1)),
        server(wanted=9, name="t", creationTimestamp=born(2)),
        server(wanted=2, name="s", creationTimestamp=born(1)),
    ).system

    assert [a.cost for a in system.accelerators] == [10]
    assert [p.accelerator for p in system.profiles] == ["A"]
    assert [c.priority for c in system.classes] == [1]
    assert [s.load.arrival_rate for s in system.servers] == [90]


def growing(name: str, ready: int, starting: int, wanted: int) -> Manifest:
    """A Server some of whose replicas start, under a load that takes so many."""
    current = {**running(ready, wanted), "accelerator": "A", "startingReplicas": starting}
    return server(name, spec={"currentAlloc": current})


def test_replicas_that_start_keep_their_cards_beside_an_equal_server() -> None:
    before = (growing("first", 2, 3, 5), growing("second", 3, 0, 5))

    for objects in (before, before[::-1]):
        found = optimize(snapshot(*system(8), *objects).system).allocations

        assert {name: each.replicas for name, each in found.items()} == {"first": 5, "second": 3}


def test_replicas_that_start_are_of_the_plan_cold_and_paid_for() -> None:
    parts = [
        {"accelerator": "A", "numReplicas": 2, "cost": 20},
        {"accelerator": "B", "numReplicas": 0, "startingReplicas": 1, "cost": 0},
    ]
    whole = {**running(2, 3), "startingReplicas": 1, "mix": parts}
    objects = accelerator(), accelerator("B"), model(data=[performance(), performance("B")])

    (found,) = snapshot(*objects, server(spec={"currentAlloc": whole})).system.servers

    assert (found.current.replicas, found.current.cost) == (3, 30)
    assert [(p.accelerator, p.replicas, p.cold_replicas, p.cost) for p in found.current.mix] == [
        ("A", 2, 0, 20),
        ("B", 1, 1, 10),
    ]


def test_the_cards_of_replicas_that_start_of_a_server_without_a_decision_are_held() -> None:
    lost = growing("lost", 1, 2, 3)
    lost["spec"]["currentAlloc"].pop("load")
    invalid = observed({**lost, "spec": {**lost["spec"], "minNumReplicas": -1}})

    assert snapshot(*system(8), lost).system.held == {"T": 3}
    assert invalid.remains is not None
    assert build_system([*map(parse, system(8)), invalid.remains]).system.held == {"T": 3}


def workload_on(accelerator: str, name: str) -> Manifest:
    return {"accelerator": accelerator, "name": name}


def backends_of(booster: str) -> Manifest:
    return {"name": booster, "backends": [{"name": "b", "accelerator": "A"}]}


@pytest.mark.parametrize(
    ("targets", "of_younger", "words"),
    [
        ({"workloads": [workload_on("A", "w")]}, {}, "workloads: Server 'z' names Deployment"),
        ({"modelBooster": backends_of("w")}, {}, "modelBooster: Server 'z' names ModelBooster"),
        (
            {"workloads": [workload_on("A", "w")]},
            {"workloads": [workload_on("A", "w"), workload_on("B", "own")]},
            "each workload runs one server",
        ),
    ],
)
def test_of_servers_with_one_workload_the_oldest_is_planned_and_its_cards_count_once(
    targets: Manifest, of_younger: Manifest, words: str
) -> None:
    parts = [{"accelerator": name, "numReplicas": n, "cost": 0} for name, n in (("A", 3), ("B", 1))]
    runs = {**running(4, 2), "mix": parts}
    spec = {"currentAlloc": runs, **targets}
    others = accelerator("B"), model(data=[performance(), performance("B")]), *system(8)
    older = server("Z", spec=spec, creationTimestamp=born(1))
    younger = server("Y", spec={**spec, **of_younger}, creationTimestamp=born(2))

    found = snapshot(younger, older, *others)

    ((resource, problem),) = [(r, p) for r, p in found.excluded if r.kind == "Server"]
    assert resource.metadata.name == "y"
    assert words in f"{problem.field}: {problem.message}"
    assert [each.name for each in found.system.servers] == ["Z"]
    assert found.system.held == {"T": 1}  # on B, of which the older one has no workload


@pytest.mark.parametrize(
    ("created", "excluded"),
    [
        ({"s3": 3, "s1": 1, "s4": 4, "s2": 2}, ["s2", "s3", "s4"]),
        ({"b": 1, "a": 1}, ["b"]),
        ({"a": None, "b": 59}, ["a"]),
    ],
    ids=["many", "of one age", "not created yet"],
)
def test_all_but_the_oldest_are_reported(
    created: Mapping[str, int | None], excluded: list[str]
) -> None:
    twins = []
    for name, minute in created.items():
        metadata: Manifest = {} if minute is None else {"creationTimestamp": born(minute)}
        twins.append(server(name=name, **metadata))
    found = snapshot(*twins)
    (oldest,) = created.keys() - set(excluded)

    assert [resource.metadata.name for resource, _ in found.excluded] == excluded
    assert all(f"'{oldest}'" in problem.message for _, problem in found.excluded)


def test_one_name_for_objects_of_several_kinds_is_no_duplicate() -> None:
    found = snapshot(accelerator("X"), model("X", []), service_class("X"), server("X"))

    assert not found.excluded


def test_several_capacities_add_up() -> None:
    twice = {"count": [{"type": "U", "count": 1}, {"type": "T", "count": 4}, {"type": "T"}]}

    system = snapshot(capacity(2, "a"), manifest("Capacity", twice, name="b")).system

    assert system.capacity == {"T": 6, "U": 1}


def counting(minute: int = 0, /, counts: Manifest | None = None, **available: int) -> Manifest:
    """A Capacity whose cards are counted, with what was counted; nothing if there is nothing."""
    numbers = dict.fromkeys(("total", "others", "ours", "free"), 0)
    counted = [
        {"type": card_type, **numbers, "available": count, "boundBy": "nodes"}
        for card_type, count in available.items()
    ]
    name, created = f"counted-{minute}", born(minute)
    found = manifest("Capacity", {"fromNodes": True, **(counts or {})}, name=name)
    metadata = {**found["metadata"], "creationTimestamp": created}
    return {**found, "metadata": metadata, "status": {"counted": counted} if counted else {}}


HERE = {"count": [{"type": "T", "count": 1}, {"type": "W", "count": 9}]}


@pytest.mark.parametrize(
    ("capacities", "cards"),
    [
        ([counting(T=5, U=0)], {"T": 5, "U": 0}),
        ([counting(0, HERE, T=5, U=7), capacity(2, "a")], {"T": 3, "U": 7}),
        ([counting(2), counting(1, T=5)], {"T": 5}),
    ],
    ids=["counted", "limited by what is declared", "by the oldest"],
)
def test_counted_cards_are_used(capacities: list[Manifest], cards: dict[str, int]) -> None:
    assert snapshot(*capacities).system.capacity == cards


PARAMETERS = [
    ({"unlimited": True}, {"unlimited": True}),
    ({"heterogeneous": True}, {"heterogeneous": True}),
    ({"milpSolver": True}, {"milp": True}),
    ({"delayedBestEffort": True}, {"delayed_best_effort": True}),
    ({"holdUndecided": False}, {"hold_undecided": False}),
    ({"priorityTolerance": 0.01}, {"priority_tolerance": 0.01}),
    ({"saturationPolicy": "None"}, {"saturation_policy": core.SaturationPolicy.NONE}),
    ({"saturationPolicy": "Hold"}, {"saturation_policy": core.SaturationPolicy.HOLD}),
    ({"saturationPolicy": "RoundRobin"}, {"saturation_policy": core.SaturationPolicy.ROUND_ROBIN}),
    (
        {"saturationPolicy": "PriorityRoundRobin"},
        {"saturation_policy": core.SaturationPolicy.PRIORITY_ROUND_ROBIN},
    ),
    (
        {"saturationPolicy": "PriorityExhaustive"},
        {"saturation_policy": core.SaturationPolicy.PRIORITY_EXHAUSTIVE},
    ),
]


@pytest.mark.parametrize(("parameters", "options"), PARAMETERS)
def test_each_parameter_of_the_optimizer_is_an_option(
    parameters: Manifest, options: dict[str, Any]
) -> None:
    system = snapshot(optimizer(parameters=parameters), time_limit=7).system

    assert system.options == core.Options(**{**DEFAULTS, "time_limit": 7, **options})


def test_of_several_optimizers_the_one_that_asked_has_its_parameters_used() -> None:
    first = optimizer("a", parameters={"unlimited": True}, creationTimestamp=born(1))
    second = optimizer("b", parameters={"milpSolver": True}, creationTimestamp=born(2))
    asking = parse(second)
    assert isinstance(asking, Optimizer)

    system = snapshot(first, second, optimizer=asking).system

    assert system.options.milp
    assert not system.options.unlimited


@pytest.mark.parametrize(
    ("data", "parameters"),
    [
        (SECOND_GENERATION, core.PrefillDecodeParameters(999, 0, 0, 0)),
        (
            {**SECOND_GENERATION, "prefillParms": {"gamma": 3, "delta": 0.5}},
            core.PrefillDecodeParameters(999, 0, 3, 0.5),
        ),
        (THIRD_GENERATION, core.TokenBudgetParameters(999, 0, 0)),
    ],
)
def test_later_performance_data_are_used_beside_the_first(
    data: Manifest, parameters: core.PerformanceParameters
) -> None:
    found = snapshot(
        accelerator(), accelerator("B"), model(data=[performance("B", **data), performance("A")])
    )

    used = {p.accelerator: p.parameters for p in found.system.profiles}
    assert used == {"A": core.DecodeParameters(999, 0), "B": parameters}
    assert not found.problems


def test_a_load_in_tokens_of_later_models_is_read() -> None:
    load = {"arrivalRate": 60, "avgInTokens": 100, "avgOutTokens": 200}
    current = {**running(2, 2), "ttftAverage": 7.5, "load": load}

    found = snapshot(*system(2), server(spec={"currentAlloc": current}))

    assert found.system.servers[0].load == core.Load(60, input_tokens=100, output_tokens=200)
    assert found.system.servers[0].current.ttft_ms == 7.5
    assert (found.excluded, found.problems) == ((), ())


def test_targets_of_delays_are_read_with_their_percentiles() -> None:
    delays = {"slo-ttw": 50, "slo-ttft": 200, "slo-ttw-percentile": 90, "slo-ttft-percentile": 99.5}
    delays |= {"slo-itl": 20, "slo-itl-percentile": 95}
    target = {"model": "M", **delays}
    promised = manifest("ServiceClass", {"name": "C", "data": [target]}, name="c")

    found = snapshot(accelerator(), model(), promised, server())

    expected = core.Target(20, 50, 0, 200, 90, 99.5, 95)
    assert found.system.classes[0].targets == {"M": expected}
    assert not found.problems


def test_names_that_nothing_answers_to_are_reported() -> None:
    found = snapshot(
        model(data=[performance("gone")]),
        server("S", spec={"class": "gone"}),
        server("T", spec={"model": "gone"}),
        service_class(),
    )

    assert told(found) == {
        ("model", "M", "UnknownAccelerator", "acc"),
        ("server", "S", "UnknownClass", "class"),
        ("server", "T", "UnknownModel", "model"),
    }


def test_numbers_that_make_no_sense_are_reported() -> None:
    spec = {"currentAlloc": {**running(-1, 1), "numReplicas": -1}}

    found = snapshot(accelerator(cost=-1), model(), service_class(), server(spec=spec))

    assert {(kind, reason) for kind, _, reason, _ in told(found)} == {
        ("accelerator", "InvalidSpec"),
        ("server", "InvalidSpec"),
    }


MIXED = [
    *(accelerator(name="a1", creationTimestamp=born(1)), accelerator("B", name="b1")),
    *(accelerator(cost=20, name="a2", creationTimestamp=born(2)), accelerator("A", name="a3")),
    *(model(), model(name="n", data=[performance("B")], creationTimestamp=born(3))),
    *(service_class(), service_class(name="d", creationTimestamp=born(1))),
    *(server("S"), server("T"), server("S", name="t", creationTimestamp=born(1))),
    *(server("U", spec={"model": "gone"}), capacity(1, "x"), capacity(2, "y")),
    *(optimizer("o", parameters={"unlimited": True}), optimizer("p", creationTimestamp=born(1))),
]


@given(st.permutations([parse(item) for item in MIXED]))
def test_the_order_of_the_objects_changes_nothing(resources: list[Resource]) -> None:
    assert build_system(resources) == build_system([parse(item) for item in MIXED])


CALIBRATED = {
    "acc": "A",
    "reason": "Calibrated",
    "time": "2026-03-01T12:00:00Z",
    "decodeParms": {"alpha": 9, "beta": 0.3},
    "prefillParms": {"gamma": 21, "delta": 0.001},
}


def calibrated_model(speed: Manifest, row: Manifest, mode: str = "Use") -> Manifest:
    found = model("M", [performance("A", **speed)])
    found["spec"]["calibrate"] = mode
    return {**found, "status": {"calibration": [row]}}


def parameters_of(manifest_: Manifest) -> core.PerformanceParameters:
    (profile,) = build_system([parse(manifest_)]).system.profiles
    return profile.parameters


def test_calibrated_data_are_measured_and_others_keep_their_origin() -> None:
    estimated = {**SECOND_GENERATION, "origin": "estimated", "errorPercent": 20}
    decode = {"alpha": 9, "beta": 0.3, "alphaError": 0.1, "betaError": 0.01, "residual": 0.04}
    measured = {**CALIBRATED, "decode": decode}
    origins = [
        (profile.origin, profile.error_percent)
        for found in (
            calibrated_model(estimated, measured),
            calibrated_model(estimated, measured, mode="Report"),
            model("M", [performance("A")]),
        )
        for profile in build_system([parse(found)]).system.profiles
    ]

    assert origins == [("measured", 4.0), ("estimated", 20.0), ("", 0.0)]


STEPS = {"alpha": 8, "kappa": 0.001, "delta": 0.02, "ahead": 1, "budget": 2048}
FOURTH_GENERATION = {"stepParms": {"alpha": 10, "kappa": 0.01, "delta": 0.1}}


FIRST_GENERATION = {"alpha": 999, "beta": 0}
WITH_STEPS = {**CALIBRATED, "stepParms": STEPS}
LINES = core.PrefillDecodeParameters(9, 0.3, 21, 0.001)
FITTED = core.StepParameters(8, 0.001, 0.02, 0, 1, 2048)


@pytest.mark.parametrize(
    ("speed", "row", "mode", "expected"),
    [
        (FIRST_GENERATION, CALIBRATED, "Use", core.DecodeParameters(9, 0.3)),
        (SECOND_GENERATION, CALIBRATED, "Use", LINES),
        (THIRD_GENERATION, CALIBRATED, "Use", LINES),
        (SECOND_GENERATION, {**CALIBRATED, "reason": "NoSpread"}, "Use", LINES),
        (FIRST_GENERATION, WITH_STEPS, "Use", core.DecodeParameters(9, 0.3)),
        (SECOND_GENERATION, WITH_STEPS, "Use", FITTED),
        (THIRD_GENERATION, WITH_STEPS, "Use", FITTED),
        (FOURTH_GENERATION, WITH_STEPS, "Use", FITTED),
        (SECOND_GENERATION, CALIBRATED, "Report", core.PrefillDecodeParameters(999, 0, 0, 0)),
        (SECOND_GENERATION, CALIBRATED, "Off", core.PrefillDecodeParameters(999, 0, 0, 0)),
        (
            SECOND_GENERATION,
            {**CALIBRATED, "acc": "B"},
            "Report",
            core.PrefillDecodeParameters(999, 0, 0, 0),
        ),
    ],
)
def test_a_model_that_asks_for_it_gets_the_calibrated_parameters_of_its_generation(
    speed: Manifest, row: Manifest, mode: str, expected: core.PerformanceParameters
) -> None:
    """A row that is refused now still has the last good parameters."""
    assert parameters_of(calibrated_model(speed, row, mode)) == expected


def test_typed_steps_are_not_replaced_by_lines() -> None:
    found = parameters_of(calibrated_model(FOURTH_GENERATION, CALIBRATED))

    assert isinstance(found, core.StepParameters)
    assert (found.alpha, found.kappa, found.delta) == pytest.approx((12, 0.012, 0.12))


def test_the_lengths_for_which_steps_hold_are_no_times() -> None:
    bounds = {"minInTokens": 250, "maxInTokens": 1150, "minOutTokens": 60, "maxOutTokens": 270}
    speed = {"stepParms": {"alpha": 10, "kappa": 0.01, "delta": 0.1, **bounds}}

    found = parameters_of(calibrated_model(speed, {**CALIBRATED, "acc": "B"}))

    assert isinstance(found, core.StepParameters)
    assert (found.min_input_tokens, found.max_input_tokens) == (250, 1150)
    assert (found.min_output_tokens, found.max_output_tokens) == (60, 270)


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        ({"alpha": 10, "beta": 0.5}, core.DecodeParameters(12, 0.6)),
        (
            {
                "decodeParms": {"alpha": 10, "beta": 0.5},
                "prefillParms": {"gamma": 20, "delta": 0.01},
            },
            core.PrefillDecodeParameters(12, 0.6, 24, 0.012),
        ),
        (
            {"perfParms": {"alpha": 10, "beta": 0.5, "gamma": 0.01}},
            core.TokenBudgetParameters(12, 0.6, 0.012),
        ),
        (
            {"stepParms": {"alpha": 10, "kappa": 0.5, "delta": 0.01, "ahead": 1, "budget": 2048}},
            core.StepParameters(12, 0.6, 0.012, 0, 1, 2048),
        ),
    ],
)
@pytest.mark.parametrize("change", [{"acc": "B"}, {"decodeParms": None}])
def test_typed_parameters_beside_calibrated_ones_get_the_assumed_error(
    speed: Manifest, expected: core.PerformanceParameters, change: Manifest
) -> None:
    found = parameters_of(calibrated_model(speed, {**CALIBRATED, **change}))

    assert type(found) is type(expected)
    assert asdict(found) == pytest.approx(asdict(expected))


def choice(typed_error_percent: float, confidence: float) -> str:
    """Where a server runs next that runs on A, which is as fast as B, and was measured."""
    truth = {"decodeParms": {"alpha": 10, "beta": 0.5}, "prefillParms": {"gamma": 0, "delta": 0}}
    seen = {"alpha": 10 * (1 + confidence), "beta": 0.5 * (1 + confidence)}
    speeds = {**truth, "maxBatchSize": 16, "atTokens": 100}
    item = model("M", [performance(name, **truth) | speeds for name in "AB"])
    item["spec"] |= {"calibrate": "Use", "typedErrorPercent": typed_error_percent}
    row = {**CALIBRATED, "decodeParms": seen, "prefillParms": {"gamma": 0, "delta": 0}}
    load = {"arrivalRate": 30000, "avgInTokens": 10, "avgOutTokens": 100}
    runs = {"accelerator": "A", "numReplicas": 57, "cost": 570, "load": load}
    things = [
        accelerator("A"), accelerator("B"), {**item, "status": {"calibration": [row]}},
        service_class(), server("S", spec={"currentAlloc": runs}), capacity(1000), optimizer(),
    ]  # fmt: skip
    system = build_system(map(parse, things)).system
    return optimize(system).allocations["S"].accelerator


def test_an_accelerator_is_not_left_because_it_was_measured() -> None:
    confidences = [number / 100 for number in range(0, 40, 3)]

    assert {choice(20, confidence) for confidence in confidences} == {"A"}
    assert "B" in {choice(0, confidence) for confidence in confidences}  # what the error is for


BACKENDS = [{"name": "large", "accelerator": "H100"}, {"name": "small", "accelerator": "L4"}]
WORKLOADS = [{"name": "large", "accelerator": "H100"}, {"name": "small", "accelerator": "A"}]


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, ()),
        ({"workloads": WORKLOADS}, ("H100", "A")),
        ({"modelBooster": {"name": "m", "backends": BACKENDS}}, ("H100", "L4")),
    ],
    ids=["any", "workloads", "backends"],
)
def test_a_server_may_use_the_accelerators_for_which_something_runs_it(
    spec: Manifest, names: tuple[str, ...]
) -> None:
    (found,) = snapshot(server(spec=spec)).system.servers

    assert found.accelerators == names


@pytest.mark.parametrize(("priority", "seconds"), [(1, 2120.0), (100, 140.0)])
def test_the_examples_of_the_guide(priority: int, seconds: float) -> None:
    """A replica for 180 cents/hour that starts in two minutes."""
    assert find_break_even_s(120.0, 0.0, 180.0, priority) == pytest.approx(seconds)


def test_requests_that_come_meanwhile_wait_for_half_of_the_start_on_average() -> None:
    alone, several = (find_break_even_s(60.0, rate, 100.0, 1) for rate in (0.0, 0.1))

    assert several - 60 == pytest.approx((1 + 0.1 * 60 / 2) * (alone - 60))


def test_a_replica_that_costs_nothing_never_sleeps() -> None:
    assert find_break_even_s(60.0, 0.0, 0.0, 1) == math.inf
