"""Every reason, and words that name the cause and the remedy."""

import math
from dataclasses import replace

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Decision, Reason
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    PrefillDecodeParameters,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)

SYSTEM = System(
    accelerators=(Accelerator("G2", "G2", 25), Accelerator("4xA100", "A100", 160, 4)),
    profiles=(
        PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 38, 512),
        PerformanceProfile("llm", "4xA100", DecodeParameters(6.0, 0.1), 120, 512),
    ),
    classes=(ServiceClass("Premium", 1, {"llm": Target(itl_ms=20, wait_ms=500)}),),
    servers=(Server("chat", "Premium", "llm", Allocation(load=Load(3000, 512))),),
    capacity={"G2": 9, "A100": 400},
)
CHAT, PREMIUM = SYSTEM.servers[0], SYSTEM.classes[0]


def with_server(server: Server) -> System:
    return replace(SYSTEM, servers=(server,))


def with_target(target: Target) -> System:
    return replace(SYSTEM, classes=(replace(PREMIUM, targets={"llm": target}),))


def with_parameters(*parameters: DecodeParameters) -> System:
    pairs = zip(SYSTEM.profiles, parameters, strict=True)
    return replace(SYSTEM, profiles=tuple(replace(p, parameters=new) for p, new in pairs))


def with_rate(rate: float) -> System:
    return with_server(replace(CHAT, current=Allocation(load=Load(rate, 512))))


def decision(system: System) -> Decision:
    return optimize(system).decisions[0]


def test_a_server_that_gets_all_it_needs_is_allocated() -> None:
    made = decision(SYSTEM)

    assert made.allocation is not None
    assert (made.reason, made.allocation.load) == (Reason.ALLOCATED, CHAT.load)
    assert made.message == f"{made.allocation.replicas} x {made.allocation.accelerator}"


def test_a_server_without_room_is_told_what_it_takes_and_what_is_left() -> None:
    made = decision(replace(SYSTEM, capacity={"G2": 9, "A100": 7}))
    needs = optimize(replace(SYSTEM, options=Options(unlimited=True)))
    replicas = needs.allocations["chat"].replicas

    assert (made.reason, made.allocation) == (Reason.NO_CAPACITY, None)
    assert f"{replicas} x 4xA100" in made.message
    for word in ("A100", "G2", f"{4 * replicas}", " 7", " 9", "add capacity"):
        assert word in made.message


def test_of_many_options_the_best_ones_are_named_and_the_others_counted() -> None:
    units = tuple(Accelerator(f"card{i}", f"type{i}", 10 + i) for i in range(6))
    profiles = tuple(replace(SYSTEM.profiles[0], accelerator=unit.name) for unit in units)

    made = decision(replace(SYSTEM, accelerators=units, profiles=profiles))

    assert [name for name in (u.name for u in units) if name in made.message] == [
        "card0",
        "card1",
        "card2",
    ]
    assert "3 other options" in made.message


def test_a_server_with_a_share_is_told_how_much_it_lacks_and_what_to_expect() -> None:
    options = Options(saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE)
    made = decision(replace(SYSTEM, capacity={"A100": 5}, options=options))

    assert (made.reason, made.allocation is not None) == (Reason.BEST_EFFORT, True)
    assert made.allocation is not None
    assert made.allocation.replicas == 1
    assert made.message.startswith("gets 1 of the ")
    assert " x 4xA100 it needs: not enough cards;" in made.message
    for word in (f"{made.allocation.itl_ms:.4g} ms", f"{made.allocation.wait_ms:.0f} ms"):
        assert word in made.message
    assert "at 3000 requests/min expect" in made.message


def test_a_forecast_for_a_throughput_is_not_one_for_the_load() -> None:
    options = Options(saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE)
    system = replace(with_target(Target(tokens_per_second=51200)), options=options)
    slow = with_rate(20).servers

    made = decision(replace(system, capacity={"A100": 5}, servers=slow))

    # 51,200 tokens/s are 100 requests/s of 512 tokens.
    assert made.reason is Reason.BEST_EFFORT
    assert (
        "at the 6000 requests/min that slo-tps asks for (the load is 20 requests/min) expect"
        in made.message
    )


ALONE_MS = 512 * 6.1 / 0.999
"""A request of a batch of one, at a thousandth of the capacity: one in a thousand waits."""


@pytest.mark.parametrize(
    ("target", "batch", "words"),
    [
        # With next to no load a request has the batch almost to itself: 6.0 + 0.1 ms.
        (Target(itl_ms=6.05, wait_ms=500), 0, ("slo-itl", "6.05 ms", "6.1 ms")),
        (Target(ttft_ms=6.05), 0, ("slo-ttft", "6.05 ms", "6.1 ms")),
        (Target(wait_ms=0.5), 1, ("slo-ttw", "0.5 ms", f"{ALONE_MS / 1000 * math.log(20):.4g} ms")),
        (
            Target(wait_ms=0.5, wait_percentile=99.95),  # half of those that wait
            1,
            ("slo-ttw", "0.5 ms", f"{ALONE_MS * math.log(2):.4g} ms"),
        ),
    ],
)
def test_the_target_out_of_reach_is_named_with_the_best_accelerator_and_its_floor(
    target: Target, batch: int, words: tuple[str, ...]
) -> None:
    server = replace(CHAT, max_batch_size=batch)

    made = decision(replace(with_target(target), servers=(server,)))

    assert (made.reason, made.allocation) == (Reason.UNATTAINABLE_SLO, None)
    assert [word for word in ("4xA100", *words) if word not in made.message] == []


def test_a_share_of_a_later_generation_is_told_its_time_to_first_token() -> None:
    later = PrefillDecodeParameters(6.0, 0.1, 50.0, 0.01)
    profiles = (replace(SYSTEM.profiles[1], parameters=later),)
    options = Options(saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE)
    made = decision(replace(SYSTEM, profiles=profiles, capacity={"A100": 5}, options=options))

    assert made.allocation is not None
    assert f"a time to first token of {made.allocation.ttft_ms:.0f} ms" in made.message


CASES: dict[str, tuple[System, Reason, tuple[str, ...]]] = {
    "unknown model": (
        with_server(replace(CHAT, model="gone")),
        Reason.UNKNOWN_MODEL,
        ("model", "'gone'", "performance data"),
    ),
    "unknown class": (
        with_server(replace(CHAT, service_class="gone")),
        Reason.UNKNOWN_CLASS,
        ("class", "'gone'"),
    ),
    "no target": (
        replace(SYSTEM, classes=(replace(PREMIUM, targets={}),)),
        Reason.NO_TARGET,
        ("'Premium'", "'llm'", "target", "add"),
    ),
    "performance not measured": (
        with_parameters(DecodeParameters(0, 0), DecodeParameters(0, 0)),
        Reason.NO_PERFORMANCE_DATA,
        ("'llm'", "G2", "4xA100", "alpha", "beta", "not measured"),
    ),
    "performance on unknown accelerators alone": (
        replace(SYSTEM, accelerators=()),
        Reason.NO_PERFORMANCE_DATA,
        ("'llm'", "no accelerator", "'G2'"),
    ),
    "kept on an accelerator without data": (
        with_server(
            replace(CHAT, current=Allocation("H100", 1, load=CHAT.load), keep_accelerator=True)
        ),
        Reason.NO_PERFORMANCE_DATA,
        ("'llm'", "'H100'", "keepAccelerator", "add", "drop"),
    ),
    "negative rate": (
        with_rate(-3),
        Reason.INVALID_SPEC,
        ("currentAlloc.load.arrivalRate", "-3", "negative"),
    ),
    "negative target": (
        with_target(Target(wait_ms=-1)),
        Reason.INVALID_SPEC,
        ("'Premium'", "llm", "slo-ttw", "-1", "negative"),
    ),
}


@pytest.mark.parametrize(("system", "reason", "words"), CASES.values(), ids=CASES.keys())
def test_without_a_decision_the_message_names_the_cause(
    system: System, reason: Reason, words: tuple[str, ...]
) -> None:
    made = decision(system)

    assert (made.reason, made.allocation) == (reason, None)
    assert [word for word in words if word not in made.message] == []
    assert "\n" not in made.message
    assert not made.message.endswith(".")


@pytest.mark.parametrize("reason", Reason)
def test_only_what_was_weighed_counts_as_decided(reason: Reason) -> None:
    weighed = {Reason.ALLOCATED, Reason.BEST_EFFORT, Reason.NO_CAPACITY}

    assert reason.decided == (reason in weighed)
