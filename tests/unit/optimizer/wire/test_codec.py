"""The wire's documents: field names and rules are those of the published REST API."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import Option
from inferno_optimizer.solution import (
    CapacityUse,
    Certificate,
    Decision,
    Gain,
    Reason,
    Solution,
    SolverStatus,
)
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Generation,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    SaturationPolicy,
    Server,
    ServiceClass,
    StepParameters,
    System,
    Tail,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.wire.codec import (
    check_system,
    decode_system,
    encode_explanation,
    encode_solution,
    encode_system,
    is_system,
)
from inferno_optimizer.wire.tables import CERTIFICATE, SERVER, SYSTEM
from tests.calls import calls
from tests.generate import fleet

SMALL = json.loads((Path(__file__).parents[3] / "data/systems/small.json").read_text())


def servers(*items: object) -> dict[str, Any]:
    """A document with these servers alone."""
    return {"system": {"serverData": {"servers": list(items)}}}


def test_every_field_of_the_small_system_arrives() -> None:
    system = decode_system(SMALL)

    assert system.accelerators == (Accelerator("A100", "A100", 40), Accelerator("G2", "G2", 25))
    assert system.profiles[1] == PerformanceProfile(
        "granite-13b", "G2", DecodeParameters(17.15, 0.34), 38, 512
    )
    assert system.classes[0] == ServiceClass("Premium", 1, {"granite-13b": Target(40, 500)})
    assert system.servers[0] == Server(
        "Premium-granite-13b",
        "Premium",
        "granite-13b",
        Allocation("A100", 4, 16, 160, 22.6, load=Load(40, 1024, 1, 1)),
    )
    assert system.capacity == {"A100": 4, "G2": 8}
    assert system.options == Options(unlimited=True)


ODD_OPTIONS = {"useCplex": True, "colour": "red", "saturationPolicy": "roundrobin"}


@pytest.mark.parametrize(
    ("document", "system"),
    [
        (None, System()),
        ({}, System()),
        ({"system": None}, System()),
        ({"system": {}}, System()),
        (
            {"system": {"serverData": None, "capacityData": {}, "modelData": {"models": None}}},
            System(),
        ),
        ({"optimizerData": {"optimizer": ODD_OPTIONS}}, System()),  # what nobody knows
        (
            {"OptimizerData": {"optimizer": {"milpsolver": True}}},
            System(options=Options(milp=True)),
        ),
        (
            servers({"name": "a", "model": None}, {"name": "b", "class": ""}),
            System(servers=(Server("a", "Free", ""), Server("b", "Free", ""))),
        ),
        (SMALL["system"], decode_system(SMALL)),  # the inner object alone
        *(
            (
                {"modelData": {"models": [{"name": "m", "accCount": count}]}},
                System(profiles=(PerformanceProfile("m", "", DecodeParameters(0, 0), 0, 0, 1),)),
            )
            for count in (0, -3)
        ),
    ],
)
def test_what_is_absent_has_its_default_and_keys_match_regardless_of_case(
    document: object, system: System
) -> None:
    assert decode_system(document) == system


def test_of_repeated_names_the_last_one_counts() -> None:
    system = decode_system(
        {
            "acceleratorData": {"accelerators": [{"name": "A", "cost": 1}, {"name": "A"}]},
            "modelData": {
                "models": [
                    {"name": "m", "acc": "A", "alpha": 1},
                    {"name": "m", "acc": "B", "alpha": 2},
                    {"name": "m", "acc": "A", "alpha": 3},
                ]
            },
            "serviceClassData": {
                "serviceClasses": [
                    {"name": "C", "priority": 1, "modelTargets": [{"model": "m"}]},
                    {"name": "C", "priority": 2},
                ]
            },
            "capacityData": {"count": [{"type": "T", "count": 1}, {"type": "T", "count": 2}]},
        }
    )

    assert system.accelerators == (Accelerator("A", "", 0),)
    assert {p.accelerator: p.parameters.alpha for p in system.profiles} == {"A": 3, "B": 2}
    assert system.classes == (ServiceClass("C", 2, {}),)
    assert system.capacity == {"T": 2}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "expected an object, not a list"),
        ({"system": []}, "system: expected an object, not a list"),
        ({"serverData": 5}, "serverData: expected an object, not 5"),
        (
            {"system": {"serverData": {"servers": {}}}},
            "system.serverData.servers: expected a list, not an object",
        ),
        (servers(None), "server [0]: expected an object, not null"),
        (servers({"name": 7}), "server [0]: name: expected a string, not 7"),
        (
            servers({"name": "Premium-a", "currentAlloc": {"numReplicas": "2"}}),
            "server 'Premium-a': currentAlloc.numReplicas: expected an integer, not \"2\"",
        ),
        (
            servers({"name": "a", "minNumReplicas": 1.0}),
            "server 'a': minNumReplicas: expected an integer, not 1.0",
        ),
        (
            servers({"name": "a", "maxBatchSize": True}),
            "server 'a': maxBatchSize: expected an integer, not true",
        ),
        (
            servers({"name": "a", "maxBatchSize": 2**63}),
            "server 'a': maxBatchSize: expected an integer, not 9223372036854775808",
        ),
        (
            servers({"name": "a", "keepAccelerator": "yes"}),
            "server 'a': keepAccelerator: expected true or false, not \"yes\"",
        ),
        (
            servers({"name": "a", "currentAlloc": {"load": {"arrivalRate": float("nan")}}}),
            "server 'a': currentAlloc.load.arrivalRate: expected a finite number, not NaN",
        ),
        (
            servers({"name": "a", "currentAlloc": {"cost": 10**400}}),
            f"server 'a': currentAlloc.cost: expected a finite number, not 1{'0' * 39}...",
        ),
        (
            {"acceleratorData": {"accelerators": [{"name": "A", "cost": "40"}]}},
            "accelerator 'A': cost: expected a number, not \"40\"",
        ),
        (
            {"modelData": {"models": [{"name": "m", "acc": "A", "beta": [1]}]}},
            "performance data 'm/A': beta: expected a number, not a list",
        ),
        (
            {
                "serviceClassData": {
                    "serviceClasses": [
                        {"name": "C", "modelTargets": [{"model": "m", "slo-itl": {}}]}
                    ]
                }
            },
            "class 'C': target of model 'm': slo-itl: expected a number, not an object",
        ),
        (
            {"capacityData": {"count": [{"type": "T", "count": "4"}]}},
            "capacity 'T': count: expected an integer, not \"4\"",
        ),
        (
            {"optimizerData": {"optimizer": {"saturationPolicy": 3}}},
            "optimizerData.optimizer.saturationPolicy: expected a string, not 3",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_object_and_field(document: object, message: str) -> None:
    with pytest.raises(InputError) as raised:
        decode_system(document)

    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("record", "parameters"),
    [
        ({"alpha": 1, "beta": 2}, DecodeParameters(1, 2)),
        ({}, DecodeParameters(0, 0)),
        ({"decodeParms": {"alpha": 1, "beta": 2}}, PrefillDecodeParameters(1, 2, 0, 0)),
        (
            {"DecodeParms": {"Alpha": 1}, "prefillParms": {"gamma": 3, "delta": 4}},
            PrefillDecodeParameters(1, 0, 3, 4),
        ),
        ({"prefillParms": {"gamma": 3}, "alpha": 9}, PrefillDecodeParameters(0, 0, 3, 0)),
        ({"perfParms": {"alpha": 1, "beta": 2, "gamma": 3}}, TokenBudgetParameters(1, 2, 3)),
        ({"stepParms": {"alpha": 1, "kappa": 2, "delta": 3}}, StepParameters(1, 2, 3)),
        (
            {"stepParms": {"alpha": 1, "minInTokens": 9, "maxOutTokens": 7}},
            StepParameters(1, 0, 0, min_input_tokens=9, max_output_tokens=7),
        ),
        ({"perfParms": None, "alpha": 9}, DecodeParameters(9, 0)),
    ],
)
def test_each_record_tells_its_generation_by_its_keys(
    record: dict[str, Any], parameters: PerformanceParameters
) -> None:
    system = decode_system({"modelData": {"models": [{"name": "m", "acc": "A", **record}]}})

    assert system.profiles[0].parameters == parameters


def test_what_a_server_keeps_has_all_keys_of_the_first_generation_and_those_sent() -> None:
    role = {"accelerator": "A", "numReplicas": 2, "coldReplicas": 1, "maxBatch": 3, "cost": 4.0}
    sent = {"name": "a", "CLASS": "", "colour": "red", "destination": "A"}

    kept = SERVER.keep({**sent, "currentAlloc": {"roles": {"decode": role}}})

    assert kept["currentAlloc"]["roles"]["decode"] == role
    assert kept["desiredAlloc"]["load"]["avgLength"] == 0
    assert kept["destination"] == "A"
    assert kept.keys() - SERVER.empty.keys() == {"destination"}


def test_the_system_that_a_server_keeps_is_the_one_that_was_sent() -> None:
    system = decode_system(SMALL)

    kept = SYSTEM.fill(check_system(SMALL, is_kept=True))

    assert kept["acceleratorData"]["accelerators"][0]["power"].keys() >= {"idle", "full"}
    assert SYSTEM.build(kept) == system


def test_what_a_client_reads_back_must_have_the_right_type_in_a_server_alone() -> None:
    document = {"acceleratorData": {"accelerators": [{"name": "A", "memSize": "80"}]}}

    assert decode_system(document).accelerators == (Accelerator("A", "", 0),)
    with pytest.raises(InputError, match="accelerator 'A': memSize: expected an integer"):
        check_system(document, is_kept=True)


def test_what_later_generations_say_of_servers_and_targets_arrives() -> None:
    load = {"arrivalRate": 60, "avgInTokens": 9, "avgOutTokens": 128, "throughput": 58.5}
    percentiles = {"slo-itl": 95, "slo-ttw": 90, "slo-ttft": 99.9}
    target = {"model": "m", "slo-ttft": 300}
    target |= {f"{name}-percentile": share for name, share in percentiles.items()}
    document = servers({"name": "a", "maxQueueSize": 7, "currentAlloc": {"load": load}})
    document["system"]["serviceClassData"] = {
        "serviceClasses": [{"name": "C", "modelTargets": [target]}]
    }

    system = decode_system(document)

    assert system.servers[0].max_queue_size == 7
    assert system.servers[0].load == Load(60, 0, 0, 0, 9, 128, 58.5)
    expected = Target(ttft_ms=300, wait_percentile=90, ttft_percentile=99.9, itl_percentile=95)
    assert system.classes[0].targets == {"m": expected}


def test_a_system_is_told_by_its_keys() -> None:
    assert is_system(SMALL)
    assert is_system({"CapacityData": {}})
    assert not is_system({"kind": "Server", "spec": {}})
    assert not is_system([SMALL])


LOAD = Load(80, 512, 1, 1)
SOLUTION = Solution(
    decisions=(
        Decision("b", Reason.ALLOCATED, "", Allocation("G2", 1, 38, 25, 22.5, 0.5, LOAD)),
        Decision("c", Reason.NO_CAPACITY, "not enough cards"),
        Decision("a", Reason.ALLOCATED, "", Allocation("A100", 2, 16, 80)),
    ),
    certificate=Certificate("greedy", SolverStatus.FEASIBLE, 10.0, None, 0.25),
    capacity=(),
)


def test_a_solution_has_the_field_names_of_the_wire() -> None:
    document = encode_solution(SOLUTION)

    assert document["allocations"]["b"] == {
        "accelerator": "G2",
        "numReplicas": 1,
        "maxBatch": 38,
        "cost": 25.0,
        "itlAverage": 22.5,
        "waitAverage": 0.5,
        "load": {"arrivalRate": 80.0, "avgLength": 512, "arrivalCOV": 1.0, "serviceCOV": 1.0},
    }
    assert list(document["allocations"]) == ["a", "b"]
    written = json.loads(json.dumps(document))["allocations"]["b"]
    assert isinstance(written["numReplicas"], int)  # for readers that refuse decimals
    assert isinstance(written["load"]["avgLength"], int)
    assert document["unserved"] == {"c": {"reason": "NoCapacity", "message": "not enough cards"}}
    assert document["certificate"] == {
        "solver": "greedy",
        "status": "Feasible",
        "objective": 10.0,
        "bound": None,
        "gap": None,
        "levels": [],
        "seconds": 0.25,
        "phases": {},
    }


def test_failures_of_the_solver_go_over_the_wire() -> None:
    failed = replace(SOLUTION.certificate, failures=("proof: OSError: gone",))
    document = encode_solution(replace(SOLUTION, certificate=failed))

    assert document["certificate"]["failures"] == ["proof: OSError: gone"]
    assert CERTIFICATE.read(document["certificate"]).failures == ("proof: OSError: gone",)


def test_what_of_the_worth_of_a_card_is_estimated_goes_over_the_wire() -> None:
    uses = (
        CapacityUse("A", 1, 1, price=7.5, estimated=True),
        CapacityUse("B", 1, 1, gain=Gain(2, 30.0)),
    )

    certificate = encode_solution(replace(SOLUTION, capacity=uses))["certificate"]

    assert certificate["prices"] == {"A": 7.5}
    assert certificate["gains"] == {"B": {"priority": 2, "load": 30.0}}
    assert certificate["estimated"] == ["A"]


@pytest.mark.parametrize("generation", [Generation.PREFILL_DECODE, Generation.TOKEN_BUDGET])
def test_later_generations_are_answered_in_their_own_words(generation: Generation) -> None:
    load = Load(80, input_tokens=64, output_tokens=512)
    tail = Tail(1, 2, 3, 41, 42, 43)
    allocation = Allocation("G2", 1, 38, 25, 22.5, 0.5, load, 40.5, tail, generation)
    decisions = (Decision("b", Reason.ALLOCATED, "", allocation),)

    document = encode_solution(replace(SOLUTION, decisions=decisions))

    assert document["allocations"]["b"] == {
        "accelerator": "G2",
        "numReplicas": 1,
        "maxBatch": 38,
        "cost": 25.0,
        "itlAverage": 22.5,
        "ttftAverage": 40.5,
        "load": {"arrivalRate": 80.0, "avgInTokens": 64, "avgOutTokens": 512},
        "percentiles": {
            "wait": {"p90": 1, "p95": 2, "p99": 3},
            "ttft": {"p90": 41, "p95": 42, "p99": 43},
        },
    }


def test_an_option_has_the_field_names_of_an_allocation() -> None:
    (document,) = encode_explanation([Option("G2", "G2", 2, 19, 2, 50, -89, 19.5, 0.5, 31.25)])

    assert document == {
        "accelerator": "G2",
        "numReplicas": 2,
        "maxBatch": 19,
        "type": "G2",
        "cards": 2,
        "cost": 50.0,
        "value": -89.0,
        "itlAverage": 19.5,
        "waitAverage": 0.5,
        "maxRate": 31.25,
        "reason": "",
    }


names = st.text(min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(-(2**31), 2**31)
rarely = st.just(0) | counts
maybe = st.just(0.0) | numbers
loads = st.builds(
    Load,
    *(numbers, rarely, maybe, numbers, rarely, rarely, maybe),
    cached_tokens=rarely,
    tokens_per_step=maybe,
)
allocations = st.builds(
    Allocation,
    *(st.text(max_size=8), counts, counts, numbers, numbers, numbers, loads, numbers),
    cold_replicas=rarely,
)
targets = st.dictionaries(names, st.builds(Target, *[numbers] * 6), max_size=3)
parameters = (
    st.builds(DecodeParameters, numbers, numbers)
    | st.builds(PrefillDecodeParameters, numbers, numbers, numbers, numbers)
    | st.builds(TokenBudgetParameters, numbers, numbers, numbers)
    | st.builds(StepParameters, *[numbers] * 7)
)


def unique(values: st.SearchStrategy[Any], *by: str) -> st.SearchStrategy[tuple[Any, ...]]:
    """Tuples of values that differ in these attributes."""
    return st.lists(
        values, max_size=4, unique_by=lambda value: tuple(getattr(value, name) for name in by)
    ).map(tuple)


systems = st.builds(
    System,
    accelerators=unique(st.builds(Accelerator, names, names, numbers, counts), "name"),
    profiles=unique(
        st.builds(
            PerformanceProfile,
            names,
            names,
            parameters,
            counts,
            counts,
            st.integers(1, 64),
            max_tokens=rarely,
            max_sequences=rarely,
        ),
        "model",
        "accelerator",
    ),
    classes=unique(st.builds(ServiceClass, names, counts, targets), "name"),
    servers=unique(
        st.builds(
            Server,
            names,
            names,
            names,
            allocations,
            st.booleans(),
            counts,
            counts,
            counts,
            load_spread=numbers,
            least_rate=numbers,
            accelerators=st.lists(names, max_size=2).map(tuple),
        ),
        "name",
    ),
    capacity=st.dictionaries(names, counts, max_size=4).map(MappingProxyType),
    options=st.builds(
        Options,
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from(SaturationPolicy),
        st.booleans(),
        st.booleans(),
    ),
)


@given(systems)
def test_a_system_survives_the_wire(system: System) -> None:
    sent = json.dumps(encode_system(system))

    assert decode_system(json.loads(sent)) == system


def test_what_is_not_told_has_no_key() -> None:
    """Readers of the first generation do not know these keys."""
    load = Load(60, 100, cached_tokens=9, tokens_per_step=2.5)
    profile = PerformanceProfile("m", "A", DecodeParameters(1, 1), 8, 9)
    told = System(
        profiles=(replace(profile, max_tokens=7, max_sequences=6),),
        servers=(Server("s", "C", "m", Allocation("A", 2, load=load, cold_replicas=1)),),
    )
    named = replace(told, servers=(replace(told.servers[0], accelerators=("A",)),))
    plain = System(profiles=(profile,), servers=(Server("s", "C", "m", Allocation("A", 2)),))

    def keys(system: System) -> set[str]:
        document = encode_system(system)["system"]
        (data,), (served,) = document["modelData"]["models"], document["serverData"]["servers"]
        return {*data, *served, *served["currentAlloc"], *served["currentAlloc"]["load"]}

    new = {"maxTokens", "maxNumSeqs", "coldReplicas", "cachedTokens", "tokensPerStep"}
    assert keys(named) - keys(plain) == new | {"accelerators"}


def test_a_server_is_decoded_in_few_calls() -> None:
    """10,000 servers take a fifth of a second; a clock would tell of other work, too."""
    few, many = (fleet(number, 20, seed=1, demand=1.0) for number in (1_000, 3_000))

    of_servers = calls(partial(decode_system, many)) - calls(partial(decode_system, few))

    assert of_servers / 2_000 < 65
