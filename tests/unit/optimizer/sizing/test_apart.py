"""Prefill and decode apart: latencies against steps, numbers against all numbers there are."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from inferno_optimizer.sizing.queueing import BoolArray, IntArray
from inferno_optimizer.system import Allocation, Load, Role, Target, Transfer
from tests.tiers import extended
from tests.unit.optimizer.apart_simulation import Pools, requests_of, simulate
from tests.unit.optimizer.apart_systems import STEPS, one_server, roles_of, sized
from tests.unit.optimizer.systems import NOTHING

PREFILL_REPLICAS = 3
BATCH = 128
TRANSFER = Transfer(5.0, 0.002)


def running(prefill: int, decode: int, cold: int = 0, accelerator: str = "H") -> Allocation:
    """Replicas of both roles, of which some that compute prompts have just started."""
    parts = (
        Allocation(accelerator, prefill, role=Role.PREFILL, cold_replicas=cold),
        Allocation(accelerator, decode, role=Role.DECODE),
    )
    return Allocation(accelerator, prefill + decode, roles=parts)


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize(("inputs", "cached"), [(8192, 0.75), (2048, 0.5)])
def test_latencies_with_cached_prompts_are_those_of_a_simulation_of_steps(
    inputs: int, cached: float, load: float
) -> None:
    outputs, computed = 256, inputs * (1 - cached)
    rate = (
        PREFILL_REPLICAS * load / (STEPS.alpha * computed / STEPS.budget + STEPS.delta * computed)
    )
    step = STEPS.alpha + STEPS.kappa * 40 * (inputs + outputs / 2)
    decode_replicas = int(np.ceil(1.1 * rate * step * outputs / 40))
    pools = Pools(STEPS, PREFILL_REPLICAS, STEPS, decode_replicas, BATCH, TRANSFER, cached)
    rng = np.random.default_rng(3)
    seen = simulate(rng, pools, requests_of(rng, rate, inputs, outputs, 0.3, 30_000))

    load_of = Load(
        60_000 * rate,
        input_tokens=inputs,
        output_tokens=outputs,
        service_cov=0.3,
        cached_tokens=int(inputs * cached),
    )
    warm = running(PREFILL_REPLICAS, decode_replicas)
    roles = roles_of("m", "H", STEPS, batch=BATCH, prompts=10**6)
    apart = sized(one_server(roles, load_of, current=warm, H=1.0)).apart
    found = apart.latencies(np.array([rate / PREFILL_REPLICAS]), np.array([rate / decode_replicas]))

    assert found.ttft_ms[0] == pytest.approx(seen.ttft.mean(), rel=0.09)
    assert found.itl_ms[0] == pytest.approx(seen.itl.mean(), rel=0.03)
    assert found.ttft_percentiles[0, 1] == pytest.approx(np.percentile(seen.ttft, 95), rel=0.20)


@pytest.mark.parametrize("load", [0.8, *extended(0.3, 0.6)])
@pytest.mark.parametrize(
    ("inputs", "outputs", "cov", "budget"),
    [
        pytest.param(8192, 256, 0.01, 8192, id="a prompt fills a step"),
        pytest.param(8192, 256, 0.5, 8192, id="long prompts that vary"),
        pytest.param(512, 128, 0.3, 8192, id="many prompts in a step"),
        pytest.param(512, 128, 0.01, 1024, id="two prompts in a step"),
        pytest.param(2048, 256, 1.0, 2048, id="prompts that vary as exponential times"),
        pytest.param(512, 512, 0.5, 2048, id="long answers"),
    ],
)
def test_latencies_are_those_of_a_simulation_of_steps(
    inputs: int, outputs: int, cov: float, budget: int, load: float
) -> None:
    law = replace(STEPS, budget=budget)
    rate = PREFILL_REPLICAS * load / (law.alpha * inputs / budget + law.delta * inputs)
    step = law.alpha + law.kappa * 40 * (inputs + outputs / 2)
    decode_replicas = int(np.ceil(1.1 * rate * step * outputs / 40))
    pools = Pools(law, PREFILL_REPLICAS, law, decode_replicas, BATCH, TRANSFER)
    rng = np.random.default_rng(1)
    system = one_server(
        roles_of("m", "H", law, batch=BATCH * outputs // 256, prompts=10**6),
        Load(60_000 * rate, input_tokens=inputs, output_tokens=outputs, service_cov=cov),
        H=1.0,
    )

    seen = simulate(rng, pools, requests_of(rng, rate, inputs, outputs, cov, 30_000))
    rates = np.array([rate / PREFILL_REPLICAS]), np.array([rate / decode_replicas])
    found = sized(system).apart.latencies(*rates)

    assert found.ttft_ms[0] == pytest.approx(seen.ttft.mean(), rel=0.08)
    assert found.itl_ms[0] == pytest.approx(seen.itl.mean(), rel=0.03)
    assert found.ttft_percentiles[0, 1] == pytest.approx(np.percentile(seen.ttft, 95), rel=0.20)


@pytest.mark.parametrize("rate", [300, *extended(30, 900)])
@pytest.mark.parametrize("prices", [(1.0, 1.0), (9.0, 1.0), (1.0, 9.0)])
@pytest.mark.parametrize(
    "target",
    [
        Target(itl_ms=14, ttft_ms=700),
        Target(ttft_ms=450),
        Target(itl_ms=20),
        Target(ttft_ms=900, ttft_percentile=95),
        Target(wait_ms=400, wait_percentile=90),
        Target(itl_ms=16, tokens_per_second=3000),
    ],
)
def test_no_cheaper_numbers_meet_the_targets(
    target: Target, prices: tuple[float, float], rate: float
) -> None:
    prefill, decode = roles_of("m", "P")[0], roles_of("m", "D")[1]
    load = Load(rate, input_tokens=4096, output_tokens=256)
    system = one_server((prefill, decode), load, target, P=prices[0], D=prices[1])

    found = sized(system)

    demand = max(rate / 60_000, target.tokens_per_second / 256_000)

    def meet(pairs: IntArray) -> BoolArray:
        same = found.apart.take(np.zeros(len(pairs), np.int64))
        met: BoolArray = same.excess(*(demand / pairs).T) <= 0
        return met

    chosen = np.array([[found.prefill[0], found.decode[0]]])
    pairs = np.array([*product(range(1, 25), repeat=2)])
    cheaper = pairs[pairs @ prices < chosen @ prices]
    assert np.all(meet(chosen))
    assert not np.any(meet(cheaper))


def test_an_attainable_target_is_met_by_the_numbers_that_are_found() -> None:
    load = Load(600, input_tokens=8192, output_tokens=256)
    target = Target(itl_ms=15, ttft_ms=1500)
    found = sized(one_server(roles_of("m", "H"), load, target, H=1.0))

    latencies = found.latencies(np.array([0]), found.units.astype(np.float64))

    assert latencies.itl_ms[0] <= 15
    assert latencies.ttft_ms[0] <= 1500


def test_out_of_reach_is_out_of_reach() -> None:
    load = Load(60, input_tokens=8192, output_tokens=256)
    found = sized(one_server(roles_of("m", "H"), load, Target(ttft_ms=180), H=1.0))

    assert (found.prefill[0], found.decode[0]) == (0, 0)
    assert found.ttft_floor[0] > 180


def test_an_idle_server_has_its_minimum_in_each_role() -> None:
    found = sized(one_server(roles_of("m", "H"), Load(), min_replicas=2, H=1.0))

    assert (found.prefill[0], found.decode[0]) == (2, 2)


def test_groups_are_what_both_roles_make_up() -> None:
    load = Load(600, input_tokens=8192, output_tokens=256)
    found = sized(one_server(roles_of("m", "H"), load, Target(itl_ms=15, ttft_ms=900), H=1.0))
    a, b = int(found.prefill[0]), int(found.decode[0])
    units = int(found.units[0])
    runs = [
        Allocation("H", 3 * a // units, role=Role.PREFILL),
        Allocation("H", 3 * b // units + 1, role=Role.DECODE),
    ]

    assert found.groups(0, runs) == 3
    assert found.groups(0, ()) == 0


CACHED = Load(900, input_tokens=8192, output_tokens=256, cached_tokens=6144)
PATIENT = Target(itl_ms=15, ttft_ms=900)


@pytest.mark.parametrize(
    ("current", "warm"),
    [
        pytest.param(NOTHING, 0, id="nothing runs"),
        pytest.param(running(8, 8), 8, id="all are warm"),
        pytest.param(running(8, 8, cold=5), 3, id="some have just started"),
        pytest.param(running(8, 8, accelerator="X"), 0, id="they run elsewhere"),
        pytest.param(Allocation("H", 8), 0, id="they do both"),
        pytest.param(running(1, 8), 1, id="most of them decode"),
    ],
)
def test_prefill_replicas_are_the_fewest_for_the_prompts_that_so_many_compute(
    current: Allocation, warm: int
) -> None:
    system = one_server(roles_of("m", "H"), CACHED, PATIENT, current, H=1.0)

    found = sized(system)

    prefill, decode = int(found.prefill[0]), int(found.decode[0])

    def needed(number: int) -> int:
        """Prefill replicas that are enough if they compute what so many do."""
        whole = replace(CACHED, cached_tokens=0)
        cached = CACHED.cached_tokens * min(warm, number) // number
        plain = sized(one_server(roles_of("m", "H"), whole, PATIENT, H=1.0)).apart
        requests = np.array([whole.input_tokens - cached]) / whole.input_tokens
        model = replace(
            plain.prefill,
            work_ms=plain.prefill.work_ms * requests,
            most=np.minimum(64, STEPS.budget / (requests * whole.input_tokens)),
            chunks=np.maximum(requests * whole.input_tokens / STEPS.budget + 0.5, 1.0),
        )
        apart, demand = replace(plain, prefill=model), whole.arrival_rate / 60_000
        rates = (np.array([demand / a]) for a in range(1, 30))
        met = [apart.excess(rate, np.array([demand / decode]))[0] <= 0 for rate in rates]
        return met.index(True) + 1

    assert prefill == next(n for n in range(1, 30) if needed(n) <= n)


def test_cached_prompts_need_fewer_prefill_replicas_and_as_many_that_decode() -> None:
    plans = [
        sized(
            one_server(
                roles_of("m", "H"),
                replace(CACHED, cached_tokens=cached),
                PATIENT,
                running(8, 8),
                H=1.0,
            )
        )
        for cached in (0, 3000, 6144)
    ]

    counts = [int(plan.prefill[0]) for plan in plans]
    assert counts == sorted(counts, reverse=True)
    assert counts[2] < counts[0] / 2
    assert len({int(plan.decode[0]) for plan in plans}) == 1
