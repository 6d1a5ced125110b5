"""What one replica carries, in agreement with the options of each server."""

from dataclasses import replace

import pytest

from inferno_optimizer.explain.options import explain
from inferno_optimizer.explain.rates import rates
from inferno_optimizer.system import Options
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet


def test_the_rates_are_those_of_the_options() -> None:
    system = replace(decode_system(fleet(20, 8, seed=8, demand=1)), options=Options(unlimited=True))

    found = rates(system)

    for server in system.servers:
        for option in explain(system, server.name):
            rate = found.replica.get((server.name, option.accelerator), 0.0)
            assert rate == pytest.approx(option.max_rate)
            if option.replicas:
                assert (option.replicas - 1) * rate <= found.demand[server.name]
                assert option.replicas * rate >= found.demand[server.name] * (1 - 1e-9)
