"""Two recorded days in 20 minutes, beside what hindsight, an HPA and the peak would have cost."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.replay.trace import Trace
from tests.cluster.motion import Manifest, Mover, PodTimes, manifests, moving
from tests.cluster.scene import Scene
from tests.conftest import StartOperator
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import wait_until
from tests.day.account import Bill, compared, counted
from tests.day.course import SECONDS_PER_HOUR, Role, rate_of
from tests.day.objects import system_at_start
from tests.day.show import policies_table, servers_table

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "deployment_controllers"),
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]

LONG_S = 1200.0
FIRST_HOUR, HOURS = 24.0, 24.0

ROLES: Mapping[str, Mapping[str, Role]] = {
    "servegen-m-mid": {
        "mid-1": Role("1", 36.0, ("MI300X", "A100", "H100"), 1),
        "mid-2": Role("2", 24.0, ("A100", "L40S"), 1),
        "mid-4": Role("4", 30.0, ("A100", "L40S", "H100"), 1),
        "mid-5": Role("5", 8.0, ("A100", "L40S"), 1),
    },
    "servegen-m-large": {
        "large-1": Role("1", 30.0, ("MI300X", "A100", "H100"), 2),
        "large-3": Role("3", 20.0, ("A100", "L40S", "H100"), 2),
        "large-4": Role("4", 24.0, ("A100", "MI300X", "H100"), 3),
        "large-9": Role("9", 12.0, ("A100", "L40S"), 1),
    },
}
"""What runs at the beginning is what costs least for the first load."""

CARDS = {"L40S": 30, "A100": 24, "H100": 8, "MI300X": 8}
POD_TIMES = PodTimes(cold_start_s=30.0, ending_s=5.0)
INTERVAL_S, MEASURE_S = 10, 5
WINDOW_S = 60
"""Two lead times; an hour of the recorded day passes in 50 s."""

SCRAPE_S = 2.0
FIRST_RATE_S = 20 * SCRAPE_S
"""How long servers have served before a first rate is known."""

FIRST_WINDOWS_S = 600.0
"""Patience until measurements cover their longest window, five minutes: that is no part of a day,
of which they would be six hours."""

POLICIES = ("clairvoyant", "hpa", "static-peak")
"""The first one has the optimal plan of each 50 s, at once: nobody can have that."""

LEAST_WITHIN, MOST_CHANGES = 0.975, 40


def recorded_movers() -> list[Mover]:
    """The servers with their loads."""
    return [
        Mover(name, rate_of(role, recorded, LONG_S), role.accelerators, role.running)
        for trace, roles in ROLES.items()
        for recorded in (recorded_day(trace),)
        for name, role in roles.items()
    ]


def recorded_day(name: str) -> Trace:
    start, end = (SECONDS_PER_HOUR * hour for hour in (FIRST_HOUR, FIRST_HOUR + HOURS))
    return read_trace(str(ROOT / "samples/traces" / f"{name}.csv")).between(start, end)


def trace_manifests(movers: list[Mover]) -> Iterator[Manifest]:
    """Yield all objects of the namespace; reductions wait for as long as two replicas start."""
    for manifest in manifests(movers, CARDS, INTERVAL_S):
        if manifest["kind"] == "Server":
            spec = manifest["spec"]
            spec["startupSeconds"] = round(POD_TIMES.cold_start_s)
            spec["scaleDown"] = {"windowSeconds": WINDOW_S}
        yield manifest


@pytest.mark.soak("it takes 27 minutes on a quiet machine")
def test_two_recorded_days_keep_their_targets_for_less_than_an_hpa(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    movers = recorded_movers()
    with moving(scene, prometheus_program, movers, scrape_s=SCRAPE_S, pods=POD_TIMES) as motion:
        scene.apply(*trace_manifests(movers))
        served = partial(motion.all_have_served, FIRST_RATE_S)
        wait_until(served, bool, "replicas that serve")
        operator(environment=motion.environment(MEASURE_S))
        wait_until(motion.all_decided, bool, "a decision for each server")
        wait_until(motion.all_measured, bool, "measurements over whole windows", FIRST_WINDOWS_S)
        motion.begin()
        bill = Bill(motion)
        wait_until(lambda: motion.elapsed, lambda t: t > LONG_S, "the end", LONG_S + 60.0)
        outcomes = bill.outcomes()
        load = counted(motion, LONG_S, faster=1.0)

    system = system_at_start(movers, trace_manifests(movers))
    others = compared(system, load, POD_TIMES, POLICIES, faster=1.0)
    run, (hindsight, hpa, peak) = outcomes[-1], others
    print(
        f"\n{servers_table(outcomes)}\n{policies_table([replace(run, name='this run'), *others])}"
    )
    print(f"{run.cost / hindsight.cost:.1%} of the cost of hindsight")

    assert run.share >= LEAST_WITHIN
    assert run.changes <= MOST_CHANGES
    assert run.cost < min(hpa.cost, peak.cost)
