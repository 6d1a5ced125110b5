"""Numbers of replicas are the same whether or not their rates are searched to the end."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.demands import Demands, replicas_needed
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.rates import size
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.system import Load, Options, StepParameters, System, Target
from tests.unit.optimizer.random_systems import Kind, random_system
from tests.unit.optimizer.sizing.test_step_model import wild

STEPS = StepParameters(alpha=8.0, kappa=1e-4, delta=0.02, u=2e-5, ahead=1.0, budget=2048.0)


def busy_system(random: Random) -> System:
    """Half of the profiles are of generation 4; some servers have prompts in caches."""
    system = random_system(random, Kind(servers=12, batches=(4, 32, 300)), Options())
    profiles = [
        replace(profile, parameters=STEPS) if random.random() < 0.5 else profile
        for profile in system.profiles
    ]
    servers = [
        replace(server, current=replace(server.current, load=load_of(random)))
        for server in system.servers
    ]
    return replace(system, profiles=tuple(profiles), servers=tuple(servers))


def load_of(random: Random) -> Load:
    """Between 1 and 300,000 requests/min."""
    inputs, outputs = random.choice((64, 512, 3000)), random.choice((16, 128, 700))
    cached = random.choice((0, 0, inputs // 2))
    rate = 10.0 ** random.uniform(0.0, 5.5)
    return Load(rate, outputs, input_tokens=inputs, output_tokens=outputs, cached_tokens=cached)


def table(system: System, *, rates: bool) -> Candidates:
    """The table of all servers that can be sized."""
    catalogue = Catalogue(system.by_name())
    found = (catalogue.case(server) for server in catalogue.system.servers)
    cases = [case for case in found if isinstance(case, Case)]
    return build_candidates(catalogue, cases, rates=rates)


def test_a_table_without_rates_differs_in_the_rates_only() -> None:
    random = Random(7)  # noqa: S311 - no secret
    fewer, rows = 0, 0
    for _ in range(20):
        system = busy_system(random)

        whole, quick = table(system, rates=True), table(system, rates=False)

        for name in ("usable", "replicas", "value", "stays"):
            assert np.array_equal(getattr(quick, name), getattr(whole, name))
        assert (quick.sizing.max_rate <= whole.sizing.max_rate * (1 + 1e-9)).all()
        assert (quick.sizing.max_rate[whole.usable] > 0).all()
        rows += len(whole.usable)
        fewer += int(np.sum(quick.sizing.max_rate < whole.sizing.max_rate))
    assert fewer > rows / 10


@pytest.mark.parametrize("percentile", [0.0, 95.0])
def test_replicas_that_may_miss_targets_at_lower_rates_are_the_same(percentile: float) -> None:
    model = wild(600)
    idle = 4.0 * model.idle_ttft_ms()
    targets = [Target(ttft_ms=limit, ttft_percentile=percentile) for limit in idle.tolist()]
    replicas = Replicas(model, TargetLimits.of(targets))
    rows = np.arange(3 * len(idle)) // 3
    demand = 10.0 ** np.random.default_rng(1).uniform(-3.0, 1.0, len(rows))

    whole, quick = size(replicas), size(replicas, Demands(demand, rows))

    needed = replicas_needed(demand, whole.max_rate[rows])
    assert np.array_equal(replicas_needed(demand, quick.max_rate[rows]), needed)
    assert (quick.max_rate < 0.99 * whole.max_rate).any()
    assert model.may_fall(quick.max_rate).any()


@pytest.mark.parametrize(
    ("demand", "rate", "replicas"),
    [(0.0, 2.0, 0), (1e-300, 2.0, 1), (6.0, 2.0, 3), (6.1, 2.0, 4), (6.000000001, 2.0, 3)],
)
def test_a_demand_is_shared_by_the_least_whole_number_of_replicas(
    demand: float, rate: float, replicas: int
) -> None:
    assert replicas_needed(np.array([demand]), np.array([rate])) == replicas


def test_replicas_that_take_nothing_are_never_enough() -> None:
    assert np.isinf(replicas_needed(np.ones(1), np.zeros(1)))
