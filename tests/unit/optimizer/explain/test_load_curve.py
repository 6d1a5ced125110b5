"""The curve of a replica, in agreement with what optimization predicts of a plan."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.explain.load_curve import BEYOND, POINTS, LoadCurve, load_curve
from inferno_optimizer.explain.options import explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Allocation, Load, Options, Server, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet


@pytest.fixture(scope="module")
def carried_out() -> System:
    """A fleet that runs what an unlimited plan decides."""
    system = decode_system(fleet(15, 10, seed=8, demand=1))
    system = replace(system, options=Options(unlimited=True))
    planned = optimize(system).allocations
    servers = tuple(
        replace(s, current=replace(planned[s.name], load=s.current.load))
        for s in system.servers
        if s.name in planned
    )
    return replace(system, servers=servers)


def busy(system: System) -> list[Server]:
    return [s for s in system.servers if not s.load.idle and s.current.replicas > 0]


def curve_of(system: System, server: Server) -> LoadCurve:
    found = load_curve(system, server.name)
    assert found is not None
    return found


def test_at_the_load_of_a_replica_the_curve_has_what_the_plan_predicts(carried_out: System) -> None:
    system = carried_out
    assert len(busy(system)) > 5

    for server in busy(system):
        curve = curve_of(system, server)
        assert curve.accelerator == server.current.accelerator
        assert curve.itl_ms[curve.now] == pytest.approx(server.current.itl_ms)
        assert curve.wait_ms[curve.now] == pytest.approx(server.current.wait_ms, abs=1e-9)
        assert curve.rate <= curve.max_rate * (1 + 1e-9)
        best = next(o for o in explain(system, server.name) if o.accelerator == curve.accelerator)
        assert curve.max_rate == pytest.approx(best.max_rate)
        assert curve.rates[-1] == pytest.approx(curve.max_rate * BEYOND)


@pytest.mark.parametrize("place", [0, POINTS // 3, POINTS // 2])
def test_a_point_is_what_is_predicted_of_a_server_that_has_this_load(
    carried_out: System, place: int
) -> None:
    for server in busy(carried_out)[:4]:
        curve = curve_of(carried_out, server)
        rate = float(curve.rates[place])
        load = replace(server.current.load, arrival_rate=rate, throughput=0)
        alone = replace(server, min_replicas=1, current=replace(server.current, load=load))
        options = explain(replace(carried_out, servers=(alone,)), server.name)

        option = next(o for o in options if o.accelerator == curve.accelerator)
        assert (option.replicas, option.itl_ms, option.wait_ms) == pytest.approx(
            (1, curve.itl_ms[place], curve.wait_ms[place]), rel=1e-9, abs=1e-9
        )


def test_latencies_grow_with_the_load(carried_out: System) -> None:
    for server in busy(carried_out):
        curve = curve_of(carried_out, server)
        assert len(curve.rates) == POINTS
        assert (np.diff(curve.itl_ms) >= -1e-9).all()
        assert (np.diff(curve.wait_ms) >= -1e-9).all()
        assert curve.itl_ms[-1] + curve.wait_ms[-1] > curve.itl_ms[0] + curve.wait_ms[0]


@pytest.mark.parametrize(
    "current",
    [
        Allocation(),
        Allocation("no such accelerator", 1, load=Load(60, 100)),
        Allocation(mix=(Allocation("a", 1), Allocation("b", 1)), load=Load(60, 100)),
    ],
)
def test_a_server_without_a_replica_of_one_kind_has_no_curve(
    carried_out: System, current: Allocation
) -> None:
    system = carried_out
    server = replace(system.servers[0], current=current)

    assert load_curve(replace(system, servers=(server,)), server.name) is None
    assert load_curve(system, "no such server") is None
