"""What runs is not moved or stopped because a name is missing; only where that is asked for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.validation import find_problems

HOLD = Options(hold_undecided=True)
H100, A100 = Accelerator("H100", "H100", 90), Accelerator("A100", "A100", 40)
RUNNING = Allocation("H100", 3, cost=270, load=Load(60, 100))
SERVER = Server("chat", "Premium", "llm", RUNNING)
OTHER = Server("mail", "Premium", "llm", Allocation(load=Load(60, 100)))
PROFILES = tuple(
    PerformanceProfile("llm", name, DecodeParameters(10, 1), 8, 100) for name in ("A100", "H100")
)
SYSTEM = System(
    (A100, H100),
    PROFILES,
    (ServiceClass("Premium", 1, {"llm": Target()}),),
    (SERVER, OTHER),
    {"A100": 8, "H100": 8},
    HOLD,
)

Change = Callable[[System], System]


def with_capacity(**cards: int) -> Change:
    return lambda system: replace(system, capacity=cards)


def without_profile(accelerator: str, *others: PerformanceProfile) -> Change:
    def change(system: System) -> System:
        kept = (p for p in system.profiles if p.accelerator != accelerator)
        return replace(system, profiles=(*kept, *others))

    return change


MISTAKES: dict[str, tuple[Change, Reason, str]] = {
    "no Capacity": (with_capacity(), Reason.UNKNOWN_CAPACITY, "no Capacity lists card type 'H100'"),
    "mistyped Capacity": (
        with_capacity(A100=8, h100=8),
        Reason.UNKNOWN_CAPACITY,
        "it runs 3 x H100, and no Capacity lists card type 'H100'; did you mean h100?",
    ),
    "mistyped type of the accelerator": (
        lambda s: replace(s, accelerators=(A100, replace(H100, type="h100"))),
        Reason.UNKNOWN_CAPACITY,
        "no Capacity lists card type 'h100'; did you mean H100?",
    ),
    "deleted accelerator": (
        lambda s: replace(s, accelerators=(A100,)),
        Reason.UNKNOWN_ACCELERATOR,
        "no accelerator is named 'H100' (known: A100)",
    ),
    "renamed accelerator": (
        lambda s: replace(s, accelerators=(A100, replace(H100, name="h100"))),
        Reason.UNKNOWN_ACCELERATOR,
        "no accelerator is named 'H100'; did you mean h100?",
    ),
    "senseless accelerator": (
        lambda s: replace(s, accelerators=(A100, replace(H100, cost=-1))),
        Reason.NO_PERFORMANCE_DATA,
        "accelerator 'H100': cost: -1 is negative",
    ),
    "senseless data": (
        without_profile("H100", replace(PROFILES[1], parameters=DecodeParameters(0, 0))),
        Reason.NO_PERFORMANCE_DATA,
        "alpha and beta are both 0",
    ),
    "data of a mistyped accelerator": (
        without_profile("H100", replace(PROFILES[1], accelerator="H10O")),
        Reason.NO_PERFORMANCE_DATA,
        "no accelerator is named 'H10O'",
    ),
    "no workload where it runs": (
        lambda s: replace(s, servers=(replace(SERVER, accelerators=("A100", "h100")), OTHER)),
        Reason.INVALID_SPEC,
        "names no workload or backend for 'H100'; did you mean h100?",
    ),
}


def told(solution: Solution, server: str = "chat") -> Decision:
    return next(d for d in solution.decisions if d.server == server)


@pytest.mark.parametrize("milp", [False, True], ids=["greedy", "milp"])
@pytest.mark.parametrize(("change", "reason", "words"), MISTAKES.values(), ids=MISTAKES)
def test_no_decision_is_made_for_a_server_that_runs_where_a_mistake_was_made(
    change: Change, reason: Reason, words: str, milp: bool
) -> None:
    system = change(replace(SYSTEM, options=replace(HOLD, milp=milp)))

    decision = told(optimize(system))

    assert (decision.reason, decision.reason.decided) == (reason, False)
    assert words in decision.message
    assert "\n" not in decision.message
    with pytest.raises(InputError, match=reason) as explained:
        explain(system, "chat")
    assert words in str(explained.value)
    as_in_the_original = replace(system, options=Options(milp=milp))
    assert told(optimize(as_in_the_original)).reason.decided


@pytest.mark.parametrize("options", [HOLD, Options()], ids=["held", "as in the original"])
def test_what_keeps_running_without_a_decision_still_costs(options: Options) -> None:
    """3 H100 for 270 keep running under an unknown class; the other gets 1 A100 for 40."""
    servers = (replace(SERVER, service_class="gone"), OTHER)

    solution = optimize(replace(SYSTEM, servers=servers, options=options))

    assert (solution.held_cost, solution.cost) == (270, 310)


def test_what_servers_outside_the_system_cost_counts_too() -> None:
    solution = optimize(replace(SYSTEM, servers=(OTHER,), held_cost=80))

    assert solution.cost == 120


def test_a_count_of_0_is_a_decision() -> None:
    system = with_capacity(A100=8, H100=0)(SYSTEM)

    decision = told(optimize(system))

    assert decision.allocation is not None
    assert decision.allocation.accelerator == "A100"


def test_unlimited_cards_need_no_names() -> None:
    system = replace(with_capacity()(SYSTEM), options=replace(HOLD, unlimited=True))

    assert {d.reason for d in optimize(system).decisions} == {Reason.ALLOCATED}
    assert find_problems(system) == ()


def test_other_servers_get_no_cards_of_a_type_without_a_name() -> None:
    solution = optimize(with_capacity(A100=8, h100=8)(SYSTEM))

    allocation = told(solution, "mail").allocation
    assert allocation is not None
    assert allocation.accelerator == "A100"


def test_cards_of_a_deleted_accelerator_with_the_name_of_its_type_are_held() -> None:
    also_h100 = Accelerator("H100-SXM", "H100", 80)
    profile = replace(PROFILES[1], accelerator="H100-SXM")
    system = replace(SYSTEM, accelerators=(also_h100,), profiles=(*PROFILES[1:], profile))

    solution = optimize(replace(system, capacity={"H100": 3}))

    assert told(solution).reason is Reason.UNKNOWN_ACCELERATOR
    assert told(solution, "mail").reason is Reason.NO_CAPACITY
    (use,) = solution.capacity
    assert (use.held, use.used) == (3, 0)


def test_a_server_that_runs_nothing_and_could_only_use_such_cards_is_not_decided() -> None:
    decision = told(optimize(with_capacity()(SYSTEM)), "mail")

    assert decision.reason is Reason.UNKNOWN_CAPACITY
    assert decision.message == "no Capacity lists card type 'A100'"


def test_a_server_for_which_the_named_cards_are_too_few_is_told_of_the_missing_name() -> None:
    decision = told(optimize(with_capacity(A100=0, h100=8)(SYSTEM)), "mail")

    assert decision.reason is Reason.NO_CAPACITY
    assert "1 x A100 (cards of A100: 1, left 0)" in decision.message
    assert "no Capacity lists card type 'H100'; did you mean h100?" in decision.message


def test_both_sides_of_a_mistyped_type_are_problems_that_name_the_nearest_type() -> None:
    problems = find_problems(with_capacity(A100=8, h100=8)(SYSTEM))

    assert [str(problem) for problem in problems] == [
        (
            "capacity 'h100': type: no accelerator has type 'h100'; did you mean H100?"
            " (known: A100, H100)"
        ),
        (
            "capacity 'H100': type: no Capacity lists card type 'H100'; did you mean h100?"
            " (known: A100, h100); add one (count: 0 if you have none)"
        ),
    ]


def test_a_type_that_no_server_runs_on_needs_no_capacity() -> None:
    assert find_problems(with_capacity(H100=8)(SYSTEM)) == ()


def test_a_server_uses_only_the_accelerators_that_it_names() -> None:
    """A100 is cheaper, but nothing runs the server there."""
    server = replace(OTHER, accelerators=("H100",))
    system = replace(SYSTEM, servers=(server,))

    allocation = told(optimize(system), "mail").allocation
    free = told(optimize(replace(system, servers=(OTHER,))), "mail").allocation

    assert allocation is not None
    assert free is not None
    assert (allocation.accelerator, free.accelerator) == ("H100", "A100")
    reasons = {option.accelerator: option.reason for option in explain(system, "mail")}
    assert reasons["H100"] == ""
    assert reasons["A100"].startswith("no workload or backend")
