"""Prefill and decode apart: latencies against steps, numbers against all numbers there are."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from inferno_optimizer.system import Allocation, Load, Role, Target, Transfer
from tests.unit.optimizer.apart_simulation import Pools, requests_of, simulate
from tests.unit.optimizer.apart_systems import STEPS, one_server, roles_of, sized

PREFILL_REPLICAS = 3
BATCH = 128
TRANSFER = Transfer(5.0, 0.002)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
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


@pytest.mark.parametrize("rate", [30, 300, 900])
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

    def meets(a: int, b: int) -> bool:
        excess: float = found.apart.excess(np.array([demand / a]), np.array([demand / b]))[0]
        return excess <= 0

    def cost(a: int, b: int) -> float:
        return a * prices[0] + b * prices[1]

    chosen = int(found.prefill[0]), int(found.decode[0])
    cheaper = [pair for pair in product(range(1, 25), repeat=2) if cost(*pair) < cost(*chosen)]
    assert meets(*chosen)
    assert not any(meets(*pair) for pair in cheaper)


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
