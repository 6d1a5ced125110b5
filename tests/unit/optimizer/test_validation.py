"""Senseless values, and the words in which they are reported."""

import math
from dataclasses import replace

import pytest

from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Server,
    ServiceClass,
    System,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.validation import find_problems

ACCELERATOR = Accelerator("G2", "G2", 25)
PROFILE = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 38, 512)
CLASS = ServiceClass("Premium", 1, {"llm": Target(40, 500)})
LOAD = Load(60, 512)
SERVER = Server("chat", "Premium", "llm", Allocation("G2", 1, cost=25, load=LOAD))
SYSTEM = System((ACCELERATOR,), (PROFILE,), (CLASS,), (SERVER,), {"G2": 4})


Changed = Accelerator | PerformanceProfile | Target | Server | Allocation | Load


def having(changed: Changed) -> System:
    """The system with this in place of what it has of the kind."""
    match changed:
        case Accelerator():
            return replace(SYSTEM, accelerators=(changed,))
        case PerformanceProfile():
            return replace(SYSTEM, profiles=(changed,))
        case Target():
            return replace(SYSTEM, classes=(replace(CLASS, targets={"llm": changed}),))
        case Server():
            return replace(SYSTEM, servers=(changed,))
        case Allocation():
            return having(replace(SERVER, current=changed))
        case Load():
            return having(replace(SERVER.current, load=changed))


def measured(alpha: float | PerformanceParameters, beta: float = 0.0) -> System:
    """The system with these performance parameters, of any generation."""
    parameters = DecodeParameters(alpha, beta) if isinstance(alpha, int | float) else alpha
    return having(replace(PROFILE, parameters=parameters))


PROMISING = replace(CLASS, targets={"llm": Target(ttft_ms=100)})
NO_PERCENTILE = "is no percentile: give a number above 0 and below 100"
UNMEASURED = "0: the performance is not measured yet"
NO_NUMBER, NO_END = math.nan, math.inf
ON_G2 = "model 'llm' (G2)"
IN_PREMIUM = "service class 'Premium' (llm)"
CHAT = "server 'chat'"

TABLE: list[tuple[System, str]] = [
    (
        having(replace(LOAD, arrival_cov=-1)),
        f"{CHAT}: currentAlloc.load.arrivalCOV: -1 is negative",
    ),
    (
        having(replace(LOAD, service_cov=1e30)),
        f"{CHAT}: currentAlloc.load.serviceCOV: 1e+30 is more than 1e+15",
    ),
    (having(replace(ACCELERATOR, cost=-1)), "accelerator 'G2': cost: -1 is negative"),
    (
        having(replace(ACCELERATOR, cost=NO_NUMBER)),
        "accelerator 'G2': cost: nan is not a finite number",
    ),
    (
        having(replace(ACCELERATOR, cost=NO_END)),
        "accelerator 'G2': cost: inf is not a finite number",
    ),
    (
        having(replace(ACCELERATOR, multiplicity=0)),
        "accelerator 'G2': multiplicity: 0 is less than 1 card",
    ),
    (
        having(replace(ACCELERATOR, multiplicity=-2)),
        "accelerator 'G2': multiplicity: -2 is less than 1 card",
    ),
    (measured(-0.5, 1), f"{ON_G2}: alpha: -0.5 is negative"),
    (measured(1, -0.5), f"{ON_G2}: beta: -0.5 is negative"),
    (
        measured(NO_NUMBER, 1),
        f"{ON_G2}: alpha: nan is not a finite number",
    ),
    (
        measured(1, NO_END),
        f"{ON_G2}: beta: inf is not a finite number",
    ),
    (
        measured(0, 0),
        f"{ON_G2}: alpha: alpha and beta are both 0: the performance is not measured yet",
    ),
    (having(replace(PROFILE, max_batch_size=-1)), f"{ON_G2}: maxBatchSize: -1 is negative"),
    (having(replace(PROFILE, max_tokens=-1)), f"{ON_G2}: maxTokens: -1 is negative"),
    (having(replace(PROFILE, max_sequences=-1)), f"{ON_G2}: maxNumSeqs: -1 is negative"),
    (having(replace(PROFILE, at_tokens=-512)), f"{ON_G2}: atTokens: -512 is negative"),
    (having(Target(itl_ms=-1)), f"{IN_PREMIUM}: slo-itl: -1 is negative"),
    (having(Target(wait_ms=-0.1)), f"{IN_PREMIUM}: slo-ttw: -0.1 is negative"),
    (having(Target(ttft_ms=-3)), f"{IN_PREMIUM}: slo-ttft: -3 is negative"),
    (
        having(Target(wait_percentile=100)),
        f"{IN_PREMIUM}: slo-ttw-percentile: 100 {NO_PERCENTILE}",
    ),
    (
        having(Target(ttft_percentile=-5)),
        f"{IN_PREMIUM}: slo-ttft-percentile: -5 {NO_PERCENTILE}",
    ),
    (
        measured(PrefillDecodeParameters(1, 1, -2, 1)),
        f"{ON_G2}: prefillParms.gamma: -2 is negative",
    ),
    (
        measured(PrefillDecodeParameters(0, 0, 2, 1)),
        f"{ON_G2}: decodeParms.alpha: alpha and beta of decodeParms are both {UNMEASURED}",
    ),
    (
        measured(TokenBudgetParameters(1, NO_END, 1)),
        f"{ON_G2}: perfParms.beta: inf is not a finite number",
    ),
    (
        measured(TokenBudgetParameters(0, 0, 0)),
        f"{ON_G2}: perfParms.alpha: alpha, beta and gamma of perfParms are all {UNMEASURED}",
    ),
    (
        having(replace(LOAD, input_tokens=-1)),
        f"{CHAT}: currentAlloc.load.avgInTokens: -1 is negative",
    ),
    (
        having(replace(LOAD, output_tokens=-1)),
        f"{CHAT}: currentAlloc.load.avgOutTokens: -1 is negative",
    ),
    (having(replace(SERVER, max_queue_size=-1)), f"{CHAT}: maxQueueSize: -1 is negative"),
    (having(Target(tokens_per_second=-9)), f"{IN_PREMIUM}: slo-tps: -9 is negative"),
    (having(Target(itl_ms=NO_NUMBER)), f"{IN_PREMIUM}: slo-itl: nan is not a finite number"),
    (
        having(replace(LOAD, arrival_rate=-60)),
        f"{CHAT}: currentAlloc.load.arrivalRate: -60 is negative",
    ),
    (
        having(replace(LOAD, arrival_rate=NO_NUMBER)),
        f"{CHAT}: currentAlloc.load.arrivalRate: nan is not a finite number",
    ),
    (
        having(replace(LOAD, tokens_per_request=-1)),
        f"{CHAT}: currentAlloc.load.avgLength: -1 is negative",
    ),
    (
        having(replace(SERVER.current, replicas=-1)),
        f"{CHAT}: currentAlloc.numReplicas: -1 is negative",
    ),
    (having(replace(SERVER.current, cost=-25)), f"{CHAT}: currentAlloc.cost: -25 is negative"),
    (having(replace(SERVER, min_replicas=-1)), f"{CHAT}: minNumReplicas: -1 is negative"),
    (having(replace(SERVER, max_batch_size=-8)), f"{CHAT}: maxBatchSize: -8 is negative"),
    (
        replace(measured(PrefillDecodeParameters(9, 1, 0, 0.1)), classes=(PROMISING,)),
        (
            f"{CHAT}: currentAlloc.load.avgInTokens: is missing, but class 'Premium' has a"
            " slo-ttft for model 'llm', whose data have a prefill time; give avgInTokens and"
            " avgOutTokens"
        ),
    ),
    (replace(SYSTEM, capacity={"G2": -4}), "capacity 'G2': count: -4 is negative"),
]


@pytest.mark.parametrize(("system", "text"), TABLE, ids=[text for _, text in TABLE])
def test_a_senseless_value_is_reported_with_its_object_and_field(system: System, text: str) -> None:
    problems = find_problems(system)

    assert [str(problem) for problem in problems] == [text]
    assert [problem.reason for problem in problems] == ["InvalidSpec"]


@pytest.mark.parametrize(
    ("system", "kind", "field", "name", "reason"),
    [
        (having(replace(SERVER, model="gone")), "server", "model", "gone", "UnknownModel"),
        (having(replace(SERVER, service_class="gone")), "server", "class", "gone", "UnknownClass"),
        (
            having(replace(PROFILE, accelerator="gone")),
            "model",
            "acc",
            "gone",
            "UnknownAccelerator",
        ),
    ],
)
def test_a_name_that_nothing_answers_to_is_reported_by_who_uses_it(
    system: System, kind: str, field: str, name: str, reason: str
) -> None:
    (problem,) = find_problems(system)

    assert (problem.kind, problem.field, problem.reason) == (kind, field, reason)
    assert f"'{name}'" in problem.message


def test_data_for_an_unknown_accelerator_ask_for_no_input_tokens() -> None:
    prefill = replace(PROFILE, accelerator="gone", parameters=PrefillDecodeParameters(9, 1, 9, 1))
    system = replace(SYSTEM, profiles=(PROFILE, prefill), classes=(PROMISING,))

    assert [problem.kind for problem in find_problems(system)] == ["model"]


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(SYSTEM, id="ordinary"),
        pytest.param(System(), id="empty"),
        pytest.param(having(replace(ACCELERATOR, cost=0)), id="for nothing"),
        pytest.param(having(Target()), id="no target"),
        pytest.param(having(replace(LOAD, arrival_rate=0, tokens_per_request=0)), id="idle"),
        pytest.param(measured(20, 0), id="flat"),
        pytest.param(measured(PrefillDecodeParameters(9, 1, 0, 0)), id="no prefill"),
        pytest.param(measured(PrefillDecodeParameters(9, 1, 0, 1)), id="no input tokens"),
        pytest.param(
            replace(measured(PrefillDecodeParameters(9, 1, 0, 0)), classes=(PROMISING,)),
            id="no prefill, and a time to first token",
        ),
        pytest.param(
            replace(measured(TokenBudgetParameters(9, 1, 0)), classes=(PROMISING,)),
            id="a first token is an iteration at least",
        ),
        pytest.param(
            replace(
                having(replace(LOAD, arrival_rate=0)),
                classes=(PROMISING,),
                profiles=(replace(PROFILE, parameters=PrefillDecodeParameters(9, 1, 9, 1)),),
            ),
            id="idle, and a time to first token",
        ),
        pytest.param(
            replace(
                having(Load(60, input_tokens=100, output_tokens=100)),
                classes=(PROMISING,),
                profiles=(replace(PROFILE, parameters=PrefillDecodeParameters(9, 1, 9, 1)),),
            ),
            id="input tokens, and a time to first token",
        ),
        pytest.param(measured(TokenBudgetParameters(0, 0, 0.001)), id="reading alone"),
        pytest.param(having(Target(300, wait_percentile=99.99)), id="percentile of nothing"),
        pytest.param(measured(0, 1), id="proportional"),
        pytest.param(having(replace(PROFILE, max_batch_size=0, at_tokens=0)), id="batch of one"),
        pytest.param(replace(SYSTEM, capacity={"G2": 0}), id="no cards"),
        pytest.param(replace(SYSTEM, servers=()), id="no server"),
    ],
)
def test_unusual_values_that_make_sense_are_no_problem(system: System) -> None:
    assert find_problems(system) == ()


def test_every_problem_is_found_and_in_the_order_of_the_objects() -> None:
    system = replace(
        having(replace(LOAD, arrival_rate=-1, tokens_per_request=-1)),
        accelerators=(replace(ACCELERATOR, cost=-1, multiplicity=0),),
        capacity={"G2": -1, "b": 1, "c": -2},
    )

    found = [(problem.kind, problem.name, problem.field) for problem in find_problems(system)]

    assert found == [
        ("accelerator", "G2", "cost"),
        ("accelerator", "G2", "multiplicity"),
        ("server", "chat", "currentAlloc.load.arrivalRate"),
        ("server", "chat", "currentAlloc.load.avgLength"),
        ("capacity", "G2", "count"),
        ("capacity", "c", "count"),
        ("capacity", "b", "type"),
        ("capacity", "c", "type"),
    ]
