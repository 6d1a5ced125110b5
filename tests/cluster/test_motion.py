"""The loop in motion: loads that double, ramp, fall and rise, and noise that changes nothing."""

import math
import time
from pathlib import Path

import pytest

from tests.cluster.motion import (
    ITL_MS,
    TTFT_MS,
    Motion,
    Mover,
    Rate,
    manifests,
    moving,
)
from tests.cluster.scene import Scene
from tests.conftest import StartOperator
from tests.controlplane.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "deployment_controllers"),
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

LONG_S = 1260.0
"""How long the loads move."""

CALM_S = 600.0
"""Time at the end in which noise must change nothing.

What is decided from the first, short windows stays until it is known for 5 minutes that less is
enough, and the window of reductions takes 5 more: so this time begins 11 minutes after the start.
"""

CARDS = {"L40S": 16, "A100": 10, "H100": 4, "MI300X": 4}
WINDOWS = (20.0, 60.0, 300.0)
"""Those in which the operator measures, with a scrape every 5 s."""

MOST_MEASURED = 1.15
"""How many times the true load is measured at most."""

LEAST_WITHIN = 0.95
"""Share of the requests within targets, at least."""


def constant(rate: float) -> Rate:
    """Return a load that does not move."""
    return lambda _: rate


def moved(before: float, after: float, start: float, seconds: float = 0.0) -> Rate:
    """Return a load that goes from one rate to another within some seconds."""

    def rate(elapsed: float) -> float:
        share = (elapsed - start) / seconds if seconds else math.inf * (elapsed - start or 1)
        return before + (after - before) * min(max(share, 0.0), 1.0)

    return rate


def movers(length: float) -> list[Mover]:
    """Return eight servers: two are constant, and have a type of card of their own."""
    begin = length / 6
    return [
        Mover("steady-a", constant(8.0), ("L40S",), 3),
        Mover("steady-b", constant(5.0), ("L40S",), 2),
        Mover("doubles", moved(12.0, 24.0, begin), ("A100", "H100", "MI300X"), 2),
        Mover("ramps", moved(6.0, 18.0, begin, length / 3), ("A100", "H100", "MI300X"), 1),
        Mover("falls", moved(30.0, 12.0, begin, length / 6), ("H100", "MI300X", "A100"), 2),
        Mover("rises", moved(8.0, 16.0, length / 2), ("MI300X", "A100", "H100"), 1),
        Mover(
            "waves",
            lambda t: 9.0 + 4.0 * math.sin(2 * math.pi * t / max(length / 2, 300.0)),
            ("A100", "MI300X", "H100"),
            1,
        ),
        Mover("late", moved(3.0, 9.0, 2 * length / 3), ("A100", "L40S"), 1),
    ]


@pytest.mark.soak("it takes 23 minutes on a quiet machine")
def test_moving_loads_keep_their_targets_and_noise_changes_nothing(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    length, fleet_of = LONG_S, movers(LONG_S)
    with moving(scene, prometheus_program, fleet_of, scrape_s=5.0) as motion:
        scene.apply(*manifests(fleet_of, CARDS, interval=15))
        wait_until(motion.all_serve, bool, "replicas that serve")
        motion.begin()
        operator(environment=motion.environment(10))
        wait_until(lambda: motion.elapsed, lambda t: t > length, "the end", length + 60.0)
        _show(motion, length)

        assert {name: seen.idle_s for name, seen in motion.seen.items() if seen.idle_s} == {}
        assert _overestimates(motion) == {}
        assert _within(motion, length) >= LEAST_WITHIN
        assert _noise(motion, length) == {"steady-a": 0, "steady-b": 0}


def _overestimates(motion: Motion) -> dict[str, list[tuple[float, float, float]]]:
    """Measurements above what is allowed: time, measured, largest true rate [requests/s]."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for name, seen in motion.seen.items():
        pairs = [
            (moment, measured, max(motion.true_rates(name, moment, WINDOWS)))
            for moment, measured in seen.measured.items()
            if moment > motion.began
        ]
        wrong = [pair for pair in pairs if pair[1] > MOST_MEASURED * pair[2] + 0.1]
        found |= {name: wrong} if wrong else {}
    return found


def _within(motion: Motion, length: float, *names: str, after: float = 0.0) -> float:
    """Share of the requests within targets, of all servers or of some."""
    start, end = motion.began + after, motion.began + length
    counts = [
        motion.servers[name].within_targets(start, end, ttft_ms=TTFT_MS, itl_ms=ITL_MS)
        for name in names or motion.servers
    ]
    return sum(good for good, _ in counts) / max(sum(total for _, total in counts), 1)


def _noise(motion: Motion, length: float) -> dict[str, int]:
    """Changes of the replicas of servers whose load does not move, in the last ten minutes."""
    start = length - CALM_S
    return {name: motion.seen[name].changes(start, length) for name in ("steady-a", "steady-b")}


def _show(motion: Motion, length: float) -> None:
    """Print what happened to each server, for people."""
    print(f"\n{time.strftime('%H:%M:%S')} within targets: {_within(motion, length):.4f}")
    for name, seen in motion.seen.items():
        share = _within(motion, length, name)
        minutes = (
            _within(motion, 60.0 * minute + 60.0, name, after=60.0 * minute)
            for minute in range(round(length / 60))
        )
        print(f"{name:10} within {share:.4f} idle {seen.idle_s:.0f} s; by minute:")
        print("    " + " ".join(f"{share:.2f}" for share in minutes))
        for moment, replicas in seen.placements:
            print(f"    {moment:6.0f} s  {dict(replicas)}")
        for moment, measured in seen.measured.items():
            true = motion.true_rates(name, moment, WINDOWS)
            shown = " / ".join(f"{rate:.2f}" for rate in true)
            print(f"    {moment - motion.began:6.0f} s  measured {measured:.2f}, true {shown}")
