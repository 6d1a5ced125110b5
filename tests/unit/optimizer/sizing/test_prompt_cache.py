"""Prompts that are cached in part: how many replicas compute the rest of them."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Server,
    StepParameters,
    System,
    Target,
    TokenBudgetParameters,
)
from tests.examples import several
from tests.unit.optimizer.systems import one_server

STEPS = StepParameters(8.0, 5.5e-5, 0.02, ahead=1.0, budget=2048.0)
PREFILL = PrefillDecodeParameters(9.0, 0.1, 10.0, 0.01)
BUDGET = TokenBudgetParameters(9.0, 0.02, 1e-5)
INPUTS = 2000
TARGET = Target(itl_ms=40, ttft_ms=500)


@dataclass(frozen=True)
class Chat:
    """A server with prompts of 2,000 tokens; what runs, and how much of it is in caches."""

    cached: int = 0
    running: int = 0
    cold: int = 0
    rate: float = 6000.0
    inputs: int = INPUTS
    fewest: int = 0
    accelerator: str = "H100"
    parameters: PerformanceParameters = STEPS
    target: Target = TARGET

    @property
    def system(self) -> System:
        """It alone, on an accelerator with as many cards as it likes."""
        load = Load(
            self.rate, input_tokens=self.inputs, output_tokens=128, cached_tokens=self.cached
        )
        current = Allocation(self.accelerator, self.running, load=load, cold_replicas=self.cold)
        served = Server("chat", "Premium", "llm", current, min_replicas=self.fewest)
        profile = PerformanceProfile("llm", "H100", self.parameters, 64, 128)
        return one_server(served, profile, target=self.target)

    @property
    def option(self) -> Option:
        """What it needs."""
        (option,) = explain(self.system, "chat")
        return option

    @property
    def replicas(self) -> float:
        """The replicas that it needs; infinitely many where no number is enough."""
        return self.option.replicas if not self.option.reason else float("inf")


def test_warm_caches_save_replicas_and_a_restart_of_half_of_them_takes_most_of_that_back() -> None:
    assert Chat().replicas == 8
    assert Chat(cached=1200, running=8).replicas == 5
    assert Chat(cached=1200, running=6, cold=3).replicas == 7


@pytest.mark.parametrize("parameters", [STEPS, PREFILL, BUDGET])
@pytest.mark.parametrize(
    "cold",
    [
        pytest.param(Allocation("", 0), id="a first plan"),
        pytest.param(Allocation("A100", 9), id="a move"),
        pytest.param(Allocation("H100", 9, cold_replicas=9), id="a restart of all"),
    ],
)
def test_replicas_that_are_all_cold_compute_whole_prompts(
    parameters: PerformanceParameters, cold: Allocation
) -> None:
    chat = Chat(
        running=cold.replicas,
        cold=cold.cold_replicas,
        accelerator=cold.accelerator,
        parameters=parameters,
        target=Target(ttft_ms=2000),
    )

    without, found = chat.option, replace(chat, cached=1200).option

    assert found == without
    warm = replace(chat, accelerator="H100", running=99, cold=0, cached=1200)
    assert warm.replicas < without.replicas


CHATS = st.builds(
    Chat,
    cached=st.integers(0, INPUTS),
    running=st.integers(0, 20),
    cold=st.integers(0, 40),
    rate=st.floats(100, 15_000),
    fewest=st.integers(0, 20),
    parameters=st.sampled_from([STEPS, replace(STEPS, u=1e-4), PREFILL, BUDGET]),
    target=st.sampled_from([TARGET, Target(ttft_ms=400, ttft_percentile=95), Target(itl_ms=14)]),
)
some = several(25)


@some
@given(CHATS, st.integers(0, INPUTS))
def test_more_cached_tokens_never_need_more_replicas(chat: Chat, more: int) -> None:
    cached = min(chat.cached + more, INPUTS)

    assert replace(chat, cached=cached).replicas <= chat.replicas


@some
@given(CHATS, st.integers(1, 40))
def test_more_cold_replicas_never_need_fewer_replicas(chat: Chat, more: int) -> None:
    assert replace(chat, cold=chat.cold + more).replicas >= chat.replicas


@some
@given(CHATS)
def test_it_is_the_least_number_whose_replicas_carry_the_load_with_their_share_of_caches(
    chat: Chat,
) -> None:
    """With nothing read from caches, requests perform as shorter ones, which are sized alone."""
    blind = PREFILL if chat.parameters is PREFILL else replace(STEPS, kappa=0.0)
    chat = replace(chat, parameters=blind)
    warm = max(chat.running - chat.cold, 0)

    @cache  # the share of caches is the same for many numbers of replicas
    def alone(inputs: int) -> float:
        return replace(chat, cached=0, fewest=0, inputs=inputs).replicas

    def enough(replicas: int) -> bool:
        cached = min(chat.cached, INPUTS - 1) * min(warm, replicas) // replicas
        return replicas >= alone(INPUTS - cached)

    fewest = max(chat.fewest, 1)
    found = next((n for n in range(fewest, fewest + 400) if enough(n)), float("inf"))
    assert chat.replicas == found


def test_an_engine_reads_cached_tokens_but_does_not_compute_them() -> None:
    warm = Chat(cached=1200, running=9, rate=0.06)
    step = 8.0 + 5.5e-5 * (2000 + 128) * 127 / 130

    # the rest of a step, one that is queued, and its own, besides the work on the prompt
    assert warm.option.itl_ms == pytest.approx(step, rel=0.01)
    assert warm.option.ttft_ms == pytest.approx(2.5 * 8.0 + 0.02 * 800, rel=0.02)


def test_generation_3_reads_cached_tokens_in_every_iteration() -> None:
    alpha, beta, gamma = 9.0, 0.02, 1e-5
    prompt = (beta + gamma) * 800 + gamma * 1200
    answer = (beta + gamma * (2000 + 129 / 2)) * 128

    found = Chat(cached=1200, running=9, rate=0.06, parameters=BUDGET).option

    assert found.itl_ms == pytest.approx(alpha + answer / 128, rel=1e-3)
    # without others, less the mean share of the work in an iteration
    others = alpha - (prompt + answer) / 129
    assert found.ttft_ms == pytest.approx(others + prompt + found.itl_ms, rel=1e-3)


def test_a_model_without_prefill_times_needs_as_many_with_a_cache() -> None:
    chat = Chat(parameters=DecodeParameters(9.0, 0.1), rate=60)

    assert replace(chat, cached=1200, running=9).option == replace(chat, running=9).option


def test_a_target_that_needs_the_cache_is_out_of_reach_where_replicas_are_cold() -> None:
    chat = Chat(cached=1900, running=20, target=Target(ttft_ms=45))

    assert chat.replicas == 4
    assert replace(chat, cold=20).option.reason.startswith("cannot meet slo-ttft: ")


def test_a_minimum_beyond_the_warm_replicas_dilutes_their_caches() -> None:
    """A replica more that must run brings prompts that must be computed."""
    tight = Chat(cached=1200, running=5)

    rate = tight.option.max_rate * 5 * 0.9999
    assert replace(tight, rate=rate).replicas == 5
    assert replace(tight, rate=rate, fewest=6).replicas == 6
    assert replace(tight, rate=rate, fewest=6).option.max_rate < tight.option.max_rate


def test_each_part_of_a_mix_has_its_own_caches() -> None:
    chat = Chat(cached=1200, running=8)
    parts = (Allocation("A100", 3), Allocation("H100", 5))
    system, (server,) = chat.system, chat.system.servers
    mixed = replace(server.current, accelerator="A100", mix=parts)
    units = (*system.accelerators, Accelerator("A100", "A100", 5.0))

    found = explain(
        replace(system, servers=(replace(server, current=mixed),), accelerators=units), "chat"
    )

    assert [option.replicas for option in found] == [5]


def test_more_tokens_cached_than_there_are_make_a_server_invalid() -> None:
    (decision,) = optimize(Chat(cached=2001, running=9).system).decisions

    assert decision.reason is Reason.INVALID_SPEC
    assert decision.message == (
        "currentAlloc.load.cachedTokens: 2001 is more than the 2000 tokens of avgInTokens, which"
        " includes them"
    )
