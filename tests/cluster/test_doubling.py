"""Loads that double while a replica takes a minute to start: seen late, ahead, or beforehand."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cluster.motion import (
    ITL_MS,
    TTFT_MS,
    Manifest,
    Motion,
    Mover,
    PodTimes,
    Rate,
    manifests,
    moving,
)
from tests.cluster.scene import Scene
from tests.conftest import StartOperator
from tests.controlplane.waiting import wait_until
from tests.day.objects import queries

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "deployment_controllers"),
    pytest.mark.slow,
]

RATES: Mapping[float, int] = {8.0: 1, 12.0: 2}
"""Rates before they double [requests/s], and the replicas that serve them."""

ACCELERATOR = "A100"
CARDS = {ACCELERATOR: 40}
POD_TIMES = PodTimes(cold_start_s=60.0, ending_s=5.0)
INTERVAL_S, MEASURE_S, SCRAPE_S, RATE_S = 10, 5, 2.0, 16

BEFORE_S, AFTER_S = 100.0, 180.0
"""Time before the loads double, and after it: what waits has ended by then."""

PATIENCE_S = 150.0

WAYS = ("reactive", "ahead", "scheduled")


def movers(doubles: Rate) -> list[Mover]:
    """Return a server for each way and rate; the rate is multiplied by what is given."""
    return [
        Mover(f"{way}-{rate:g}", _times(rate, doubles), (ACCELERATOR,), replicas)
        for way in WAYS
        for rate, replicas in RATES.items()
    ]


def _times(rate: float, doubles: Rate) -> Rate:
    return lambda elapsed: rate * doubles(elapsed)


def doubling_manifests(known: list[Mover], moment: datetime) -> Iterator[Manifest]:
    """Yield all objects; who has a schedule knows the load that comes at a moment."""
    for manifest in manifests(known, CARDS, INTERVAL_S):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Server":
            spec["startupSeconds"] = round(POD_TIMES.cold_start_s)
            spec["measure"] = {"source": "Custom", "queries": queries(spec["name"], RATE_S)}
            way, _, rate = spec["name"].partition("-")
            if way == "scheduled":
                window = {"start": f"{moment:%M %H} * * *", "duration": "1h"}
                spec["schedule"] = [{**window, "minArrivalRate": 2 * 60 * float(rate)}]
        yield manifest


def follow_only(scene: Scene, names: list[str]) -> None:
    """Let the status of servers say that an operator before found no growth of their loads."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    ahead = {"seconds": POD_TIMES.cold_start_s, "growth": 1.0, "historySeconds": 86400}
    status = {"measured": {"time": now, "quality": "Missing", "ahead": ahead}}
    for name in names:
        patch = json.dumps({"status": status})
        where = ("--namespace", scene.namespace, "--subresource=status", "--type=merge")
        scene.control_plane.kubectl("patch", "server", name, *where, "--patch", patch)


def next_minute(seconds: float) -> datetime:
    """Return the first full minute that is so far away [s]."""
    later = datetime.now(UTC) + timedelta(seconds=seconds)
    return later.replace(second=0, microsecond=0) + timedelta(minutes=1)


def within(motion: Motion, start: float, end: float) -> dict[str, tuple[int, int]]:
    """Requests within targets and all requests, by server."""
    return {
        name: server.within_targets(start, end, ttft_ms=TTFT_MS, itl_ms=ITL_MS)
        for name, server in motion.servers.items()
    }


def share_of(way: str, counts: Mapping[str, tuple[int, int]]) -> float:
    """Share of the requests within targets, of the servers of a way."""
    pairs = [pair for name, pair in counts.items() if name.startswith(way)]
    return sum(good for good, _ in pairs) / sum(total for _, total in pairs)


@pytest.mark.soak("it takes nine minutes")
def test_a_load_that_doubles_hurts_less_who_looks_ahead_and_not_who_knew(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    moment = next_minute(POD_TIMES.cold_start_s + PATIENCE_S + BEFORE_S)
    known = movers(lambda _: 2.0 if datetime.now(UTC) >= moment else 1.0)
    with moving(scene, prometheus_program, known, scrape_s=SCRAPE_S, pods=POD_TIMES) as motion:
        scene.apply(*doubling_manifests(known, moment))
        follow_only(scene, [mover.name for mover in known if mover.name.startswith("reactive")])
        wait_until(motion.all_serve, bool, "replicas that serve", PATIENCE_S)
        operator(environment=motion.environment(MEASURE_S))
        end = moment + timedelta(seconds=AFTER_S)
        left = (end - datetime.now(UTC)).total_seconds()
        wait_until(lambda: datetime.now(UTC), lambda now: now >= end, "the end", left + 60.0)
        doubled = motion.time_of(moment)
        counts = within(motion, doubled, doubled + AFTER_S)
        shares = {way: share_of(way, counts) for way in WAYS}
        print(f"\nwithin targets in the {AFTER_S:g} s after the load doubled")
        for way, share in shares.items():
            print(f"{way:10} {share:.4f}")
            for name, seen in motion.seen.items():
                if name.startswith(way):
                    placements = [(round(t), dict(p)) for t, p in seen.placements]
                    print(f"    {name:14}", counts[name], placements)

    assert shares["reactive"] < shares["ahead"] < shares["scheduled"]
    assert shares["scheduled"] >= 0.97
