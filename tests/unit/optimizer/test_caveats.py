"""Warnings: a plan that follows from the data, and yet cannot be trusted."""

from dataclasses import replace

import pytest

from inferno_optimizer.caveats import (
    cost_problem,
    find_reversed_priorities,
    implausible_loads,
    implausible_numbers,
    warned,
)
from inferno_optimizer.explain.options import explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason
from inferno_optimizer.system import (
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Server,
    ServiceClass,
    StepParameters,
    System,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.wire.codec import (
    decode_solution,
    decode_system,
    encode_explanation,
    encode_solution,
    encode_system,
)
from tests.unit.optimizer.systems import NO_TARGET, one_server

DECODE = DecodeParameters(17.15, 0.34)
PREFILL = PrefillDecodeParameters(17.15, 0.34, 50.0, 0.01)
NO_PREFILL = PrefillDecodeParameters(17.15, 0.34, 0, 0)
BUDGET = TokenBudgetParameters(6.0, 0.05, 0.0005)

LONG_INPUT = Load(60, input_tokens=1500, output_tokens=100)


def system(
    load: Load, parameters: PerformanceParameters, batch: int = 0, target: Target = NO_TARGET
) -> System:
    """A server on an accelerator whose memory holds 384 requests of 512 tokens."""
    profile = PerformanceProfile("llm", "G2", parameters, 384, 512)
    server = Server("chat", "Premium", "llm", Allocation(load=load), max_batch_size=batch)
    return one_server(server, profile, target=target)


def decision(of: System) -> Decision:
    return optimize(of).decisions[0]


@pytest.mark.parametrize("parameters", [PREFILL, BUDGET, DECODE])
def test_a_batch_that_counts_the_output_alone_is_warned_of(
    parameters: PerformanceParameters,
) -> None:
    found = decision(system(LONG_INPUT, parameters))

    # 384 * 512 // 100 = 1966 requests, as the original has it; of 1,600 tokens each.
    assert found.allocation is not None
    assert found.allocation.max_batch_size == 1966
    (warning,) = found.warnings
    for word in ("1966", "G2", f"{1966 * 1600}", "1600", f"{384 * 512}", "'llm'"):
        assert word in warning
    (own,) = decision(system(LONG_INPUT, PREFILL, batch=123)).warnings
    assert "a batch of 123 on G2" in own


@pytest.mark.parametrize(
    ("load", "parameters", "batch"),
    [
        pytest.param(Load(60, 512), DECODE, 0, id="all tokens counted"),
        pytest.param(Load(60, 512), DECODE, 384, id="own batch that fits"),
        pytest.param(LONG_INPUT, PREFILL, 122, id="own batch that fits input and output"),
        pytest.param(Load(0, 512), PREFILL, 1000, id="idle"),
        pytest.param(Load(60, 512), NO_PREFILL, 0, id="no prefill measured"),
        pytest.param(
            Load(60, input_tokens=1, output_tokens=99999), PREFILL, 0, id="one request of a batch"
        ),
    ],
)
def test_numbers_that_fit_are_no_reason_to_warn(
    load: Load, parameters: PerformanceParameters, batch: int
) -> None:
    assert decision(system(load, parameters, batch)).warnings == ()


@pytest.mark.parametrize("parameters", [PREFILL, BUDGET])
@pytest.mark.parametrize("load", [Load(60, 512), Load(60, output_tokens=512)])
def test_latencies_without_input_tokens_are_warned_of(
    load: Load, parameters: PerformanceParameters
) -> None:
    (warning,) = decision(system(load, parameters)).warnings

    for word in ("avgInTokens", "G2", "prefill"):
        assert word in warning


STEPS = StepParameters(8.0, 0.001, 0.02, 0, 1, 2048, 0, 250, 1150, 60, 270)


@pytest.mark.parametrize(("inputs", "outputs"), [(250, 60), (1150, 270), (512, 128), (0, 128)])
def test_lengths_for_which_steps_hold_are_no_reason_to_warn(inputs: int, outputs: int) -> None:
    load = Load(60, input_tokens=inputs, output_tokens=outputs)

    found = decision(system(load, STEPS, batch=8)).warnings

    assert [warning for warning in found if "stepParms" in warning] == []


@pytest.mark.parametrize(
    ("inputs", "outputs"), [(249, 128), (1151, 128), (512, 59), (512, 271), (4000, 2000)]
)
def test_lengths_beyond_those_of_the_steps_are_warned_of_in_one_line(
    inputs: int, outputs: int
) -> None:
    load = Load(60, input_tokens=inputs, output_tokens=outputs)

    (warning,) = decision(system(load, STEPS, batch=8)).warnings

    assert warning == (
        f"the load ({inputs} in, {outputs} out) is outside the range in which stepParms of model"
        " 'llm' on G2 were measured (250 to 1150 in, 60 to 270 out): calibrate with such requests"
    )
    unbounded = replace(STEPS, max_input_tokens=0, max_output_tokens=0)
    assert inputs < 250 or outputs < 60 or decision(system(load, unbounded, 8)).warnings == ()


def test_a_percentile_that_the_data_cannot_tell_is_warned_of() -> None:
    target = Target(itl_ms=500, itl_percentile=95)
    load = Load(60, input_tokens=512, output_tokens=128)

    (warning,) = decision(system(load, PREFILL, batch=8, target=target)).warnings

    assert warning.startswith("slo-itl-percentile counts as the mean on G2: only stepParms tell")
    assert decision(system(load, STEPS, batch=8, target=target)).warnings == ()


def test_every_accelerator_of_an_explanation_has_its_own_warnings() -> None:
    short = system(LONG_INPUT, PREFILL)
    long = replace(short.profiles[0], accelerator="A100", max_batch_size=384, at_tokens=51200)
    both = one_server(short.servers[0], short.profiles[0], replace(long, parameters=NO_PREFILL))

    found = {option["accelerator"]: option for option in encode_explanation(explain(both, "chat"))}

    assert "a batch of 1966 on G2" in found["G2"]["warnings"][0]
    assert "a batch of 65536 on A100" in found["A100"]["warnings"][0]


def test_warnings_go_with_the_answer_and_are_found_anew_by_who_reads_it() -> None:
    asked = system(LONG_INPUT, PREFILL)
    solution = optimize(asked)
    document = encode_solution(solution)

    assert document["allocations"]["chat"]["warnings"] == list(solution.decisions[0].warnings)
    del document["allocations"]["chat"]["warnings"]
    (read,) = decode_solution(document, asked).decisions
    assert read.warnings == solution.decisions[0].warnings


def test_a_plan_without_warnings_says_nothing_of_them() -> None:
    options = Options(unlimited=True)
    plain = replace(system(Load(60, 512), DECODE), options=options)

    assert "warnings" not in encode_solution(optimize(plain))["allocations"]["chat"]
    assert "warnings" not in encode_explanation(explain(plain, "chat"))[0]


FAST = DecodeParameters(8.0, 0.2)


def implausible(of: System) -> list[str]:
    return list(map(str, implausible_numbers(of)))


@pytest.mark.parametrize(
    ("target", "told", "right"),
    [
        (Target(itl_ms=0.04), "slo-itl: 0.04 ms, where the shortest step takes 8.2 ms; targ", "40"),
        (Target(wait_ms=0.5), "slo-ttw: 0.5 ms, where the shortest step takes 8.2 ms; targ", "500"),
        (Target(ttft_ms=0.5), "slo-ttft: 0.5 ms, where the shortest time to first token", "500"),
        (Target(itl_ms=24_000), "slo-itl: 24000 ms are 24 seconds", "24"),
        (Target(wait_ms=500_000), "slo-ttw: 500000 ms are 500 seconds", "500"),
        (Target(ttft_ms=2_000_000), "slo-ttft: 2000000 ms are 2000 seconds", "2000"),
        (Target(tokens_per_second=0.025), "slo-tps: 0.025 tokens/s of a server are less", "25"),
    ],
)
def test_a_target_that_nothing_or_everything_meets_may_be_in_another_unit(
    target: Target, told: str, right: str
) -> None:
    (found,) = implausible(system(LONG_INPUT, FAST, target=target))

    assert found.startswith(f"service class 'Premium' (llm): {told}")
    assert found.endswith(f"write {right}")


def test_a_class_with_targets_in_several_units_is_told_of_each() -> None:
    one = system(LONG_INPUT, FAST, target=Target(itl_ms=0.04, wait_ms=900_000, ttft_ms=0.3))

    assert [each.rpartition("write ")[2] for each in implausible(one)] == [
        "900",
        "40 (so in 1 more place)",
    ]


@pytest.mark.parametrize("field", ["arrival_cov", "service_cov"])
def test_a_variation_may_be_in_percent(field: str) -> None:
    wire = {"arrival_cov": "arrivalCOV", "service_cov": "serviceCOV"}[field]
    percent = replace(LONG_INPUT, **{field: 150.0})  # type: ignore[arg-type]

    (found,) = implausible(system(percent, FAST))

    assert f"currentAlloc.load.{wire}: 150 is the 150-fold of the mean" in found
    assert found.endswith("if it is in %, write 1.5")
    assert implausible(system(replace(LONG_INPUT, arrival_cov=3.0), FAST)) == []


def test_a_time_to_first_token_is_compared_with_the_prompts_that_come() -> None:
    prefill = PrefillDecodeParameters(2.0, 0.1, 5.0, 0.05)
    seconds = Target(ttft_ms=2.0)

    (found,) = implausible(system(LONG_INPUT, prefill, target=seconds))

    assert "takes 80 ms" in found  # 5 + 0.05 * 1500
    assert implausible(system(Load(60, 10, 0, 0, 20, 100), prefill, target=seconds)) == []


@pytest.mark.parametrize(
    "target", [NO_TARGET, Target(itl_ms=4), Target(itl_ms=8.3, wait_ms=1, ttft_ms=9)]
)
def test_a_strict_target_is_no_mistake(target: Target) -> None:
    assert implausible(system(LONG_INPUT, FAST, target=target)) == []


@pytest.mark.parametrize(
    ("alpha", "beta", "told", "right"),
    [
        (0.02058, 0.41, "alpha: 0.02058 ms is below beta, 0.41 ms", "20.58"),
        (
            0.008,
            0.0002,
            "alpha: a step of 0.0082 ms is faster than any card",
            "1000 times as much, such as alpha 8",
        ),
        (
            8_000,
            200,
            "alpha: a step of 8200 ms is slower than any card",
            "a 1000th, such as alpha 8",
        ),
        (8, 200, "beta: 200 ms is above alpha, 8 ms", "0.2"),
    ],
)
def test_times_of_a_model_in_another_unit_are_told_and_not_the_targets(
    alpha: float, beta: float, told: str, right: str
) -> None:
    parameters = DecodeParameters(alpha, beta)

    (found,) = implausible(system(LONG_INPUT, parameters, target=Target(itl_ms=40)))

    assert found.startswith(f"model 'llm' (G2): {told}")
    assert found.endswith(f"write {right}")


@pytest.mark.parametrize(
    ("cost", "multiplicity", "told"),
    [
        (2.5, 1, "250"),
        (20, 8, "2000"),
        (9.99, 1, "999"),
        (0, 1, ""),
        (10, 1, ""),
        (75, 4, ""),
        (2000, 1, ""),
        (248_200, 1, "340"),
        (4_964_000, 8, "6800"),
    ],
)
def test_an_absurd_price_of_a_card_may_be_in_dollars_or_per_month(
    cost: float, multiplicity: int, told: str
) -> None:
    found = cost_problem("H200", cost, multiplicity)

    assert (found.message.rpartition("write ")[2] if found else "") == told


def running(*servers: tuple[str, float, int]) -> System:
    """Servers by name, with a rate [requests/min] and replicas, of which each carries about 500."""
    one = system(Load(60, 100), DecodeParameters(10.0, 0.5), batch=8, target=Target(itl_ms=30))
    current = Allocation("G2", cost=25)
    return replace(
        one,
        servers=tuple(
            replace(
                one.servers[0],
                name=name,
                current=replace(
                    current, replicas=replicas, cost=25.0 * replicas, load=Load(rate, 100)
                ),
            )
            for name, rate, replicas in servers
        ),
    )


def told_of_loads(of: System) -> list[str]:
    return [p.name for p in implausible_loads(Catalogue(of), of.servers)]


@pytest.mark.parametrize(
    ("rates", "told", "end"),
    [
        ((7, 900, 3), "the load is below 2 % of what its replicas carry; rates are", ""),
        (
            (54_000, 9_000, 30_000),
            "the load is above 10 times what its replicas carry; rates",
            "if it is per hour, write a 60th",
        ),
    ],
)
def test_a_load_that_what_runs_does_not_fit_may_be_of_another_time(
    rates: tuple[int, int, int], told: str, end: str
) -> None:
    whole = running(*zip(("chat", "code", "small"), rates, (3, 3, 1), strict=True))

    (problem,) = implausible_loads(Catalogue(whole), whole.servers)

    assert (problem.name, problem.field) == ("chat", "currentAlloc.load.arrivalRate")
    assert problem.message.startswith(told)
    assert problem.message.endswith(end)


def test_single_replicas_are_told_only_where_all_servers_are_as_empty() -> None:
    assert told_of_loads(running(("a", 7, 3), ("b", 3, 1))) == ["a", "b"]
    assert told_of_loads(running(("a", 5, 1), ("b", 3, 1))) == ["a", "b"]
    assert told_of_loads(running(("a", 5, 1), ("b", 400, 1))) == []
    assert told_of_loads(running(("a", 700, 2), ("b", 3, 1))) == []


def test_a_measured_load_and_an_idle_one_are_right_however_small() -> None:
    whole = running(("chat", 7, 3), ("idle", 0, 3))
    measured = replace(
        whole, servers=tuple(replace(server, load_spread=0.3) for server in whole.servers)
    )

    assert told_of_loads(measured) == []


def of_origin(of: System, origin: str, error: float) -> System:
    data = tuple(replace(p, origin=origin, error_percent=error) for p in of.profiles)
    return replace(of, profiles=data)


def test_predictions_say_where_their_data_come_from_through_every_document() -> None:
    estimated = of_origin(system(LONG_INPUT, PREFILL, batch=8), "estimated", 20)
    solution = optimize(estimated)
    document = encode_solution(solution)
    (option,) = explain(estimated, "chat")
    (read,) = decode_solution(document, estimated).decisions

    assert document["allocations"]["chat"]["origin"] == "estimated"
    assert document["allocations"]["chat"]["errorPercent"] == 20
    assert read.allocation is not None
    assert (read.allocation.origin, read.allocation.error_percent) == ("estimated", 20)
    assert encode_explanation([option])[0]["origin"] == "estimated"
    assert decode_system(encode_system(estimated)).profiles == estimated.profiles
    assert "origin" not in encode_solution(optimize(system(LONG_INPUT, PREFILL)))["allocations"]


def test_an_allocation_of_several_parts_is_as_uncertain_as_the_worst_of_them() -> None:
    parts = (Allocation("G2", 1), Allocation("H1", 2))
    whole = Allocation("G2", 3, mix=parts)
    one = of_origin(system(LONG_INPUT, PREFILL), "measured", 5)
    other = replace(one.profiles[0], accelerator="H1", origin="estimated", error_percent=20)
    both = replace(one, profiles=(*one.profiles, other))
    (told,) = warned(Catalogue(both), [Decision("chat", Reason.ALLOCATED, "", whole)])

    assert told.allocation is not None
    assert (told.allocation.origin, told.allocation.error_percent) == ("estimated", 20)
    assert [part.origin for part in told.allocation.mix] == ["measured", "estimated"]


@pytest.mark.parametrize(
    ("priorities", "told"),
    [((5, 0), False), ((0, 7), True), ((2, 1), True), ((1, 2), False), ((3, 3), False)],
)
def test_a_strict_class_is_doubted_where_it_is_served_last(
    priorities: tuple[int, int], told: bool
) -> None:
    strict, lax = (
        ServiceClass(name, priority, {"M": Target(itl_ms=itl)})
        for name, priority, itl in zip(("Strict", "Lax"), priorities, (20, 200), strict=True)
    )

    found = [*find_reversed_priorities(System(classes=(strict, lax)))]

    assert [problem.name for problem in found] == ["Strict"] * told


def test_targets_of_other_percentiles_are_not_compared() -> None:
    mean, tail = Target(wait_ms=400), Target(wait_ms=500, wait_percentile=99.9)
    classes = (ServiceClass("P", 1, {"M": tail}), ServiceClass("F", 2, {"M": mean}))

    assert not [*find_reversed_priorities(System(classes=classes))]
