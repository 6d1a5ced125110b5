"""Replicas that are slower than their Model says: plans grow until they keep the targets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.motion import Manifest, Motion, Mover, PodTimes, manifests, moving
from tests.cluster.scene import Scene, condition
from tests.conftest import StartOperator
from tests.controlplane.waiting import wait_until
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.history import Change, Scraping, scraped
from tests.engines.workload import Uniform, Workload

pytestmark = pytest.mark.usefixtures("crds_installed")

ACCELERATOR, SLOWER = "A100", 1.5
ENGINE = Engine(alpha=8.0, beta=1.0, gamma=1.0, delta=0.00005, max_batch_size=24)
"""What the Model says; a step takes 20 ms with 12 requests, of 200 tokens each."""

RATE = 6.5
BELIEVED, NEEDED = 3, 5
"""Replicas that the Model wants for the rate and 15 % more; and the fewest whose steps take less
than a tenth more than 20 ms, as n = rate / replicas x 200 x 1.5 (8 + n) ms: with 4 replicas they
take 23.4 ms, with 5 it is 19.7 ms."""

SHORT_S, LONG_S, INTERVAL_S, MEASURE_S = 10, 30, 2, 2.0
POD_TIMES = PodTimes(cold_start_s=3.0, ending_s=2.0)
PATIENCE_S, CALM_S = 240.0, 90.0
MOVERS = [
    Mover("slow", lambda _: RATE, (ACCELERATOR,), BELIEVED, ENGINE.slowed(SLOWER)),
    Mover("right", lambda _: RATE, (ACCELERATOR,), BELIEVED, ENGINE),
]


def believed() -> Iterator[Manifest]:
    """Yield all objects; the Model says of both servers what is true of one."""
    decode = {"alpha": ENGINE.alpha, "beta": ENGINE.beta}
    prefill = {"gamma": ENGINE.gamma, "delta": ENGINE.delta}
    for manifest in manifests(MOVERS, {ACCELERATOR: 20}, INTERVAL_S):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Model":
            (data,) = (item for item in spec["data"] if item["acc"] == ACCELERATOR)
            data |= {"decodeParms": decode, "prefillParms": prefill}
            data["maxBatchSize"] = ENGINE.max_batch_size
        if manifest["kind"] == "Server":
            spec["measure"]["windows"] = {"shortSeconds": SHORT_S, "longSeconds": LONG_S}
            spec["scaleDown"] = {"windowSeconds": LONG_S}
        yield manifest


SHORT_ANSWERS = Workload(Uniform(50, 150), Uniform(10, 30))
MANY_PER_S = 60.0
"""Ten times the rate with a tenth of the tokens: 600 requests in a window of 10 s."""

PAST_S = 60.0


def typed() -> Iterator[Manifest]:
    """Yield the same objects without workloads: what runs, a person has typed."""
    for manifest in believed():
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Model":
            spec["data"] = [{**item, "atTokens": 20} for item in spec["data"]]
        if manifest["kind"] == "Server":
            del spec["workloads"]
            spec |= {"minNumReplicas": BELIEVED, "currentAlloc": typed_replicas(BELIEVED)}
            windows = {"shortSeconds": SHORT_S, "longSeconds": SHORT_S}
            spec["measure"] |= {"windows": windows, "catchUpSeconds": SHORT_S}
        if manifest["kind"] not in ("Deployment", "ServiceAccount"):
            yield manifest


def typed_replicas(count: int) -> Manifest:
    return {"accelerator": ACCELERATOR, "numReplicas": count}


def populate(fleet: Fleet) -> Change:
    for mover in MOVERS:
        engine, labels = mover.engine or ENGINE, {"namespace": "prod"}
        settings = Settings(engine, SHORT_ANSWERS, mover.name, labels=labels)
        fleet.add(mover.name, settings, BELIEVED, MANY_PER_S)
    return lambda _: None


@pytest.mark.slow
def test_a_target_that_is_missed_changes_a_plan(
    scene: Scene, operator: StartOperator, prometheus_program: Path, promtool: Path
) -> None:
    """What happened before the operator began is in Prometheus; a miss must last for 10 s."""
    programs, scraping = (prometheus_program, promtool), Scraping(1, 1, goes_on=True)
    processes, name = scene.control_plane.processes, f"past-{scene.namespace}"
    with scraped(
        processes, programs, PAST_S, populate, buckets=True, name=name, scraping=scraping
    ) as prometheus:
        scene.apply(*typed())
        operator(
            environment={
                "INFERNO_PROMETHEUS_URL": prometheus.url,
                "INFERNO_MEASURE_INTERVAL": "1",
            }
        )
        first = wait_until(
            lambda: replicas(scene, "slow"), lambda n: n >= BELIEVED, "a plan", PATIENCE_S
        )
        larger = wait_until(
            lambda: scene.servers()["slow"],
            lambda found: replicas_of(found) > BELIEVED,
            "a larger one",
            PATIENCE_S,
        )
        scene.wait_for_words("slow", "Corrected", "3 replicas that should be enough")

    assert (first, replicas_of(larger)) == (BELIEVED, BELIEVED + 1)
    assert factor_of(larger) == pytest.approx(1 + 1 / BELIEVED)
    assert condition(scene.servers()["slow"], "Corrected")["reason"] == "TargetsMissed"
    assert replicas(scene, "right") == BELIEVED


def replicas(scene: Scene, name: str) -> int:
    return replicas_of(scene.servers()[name])


def replicas_of(server: Manifest) -> int:
    return int((server["spec"].get("desiredAlloc") or {}).get("numReplicas", 0))


def factor(scene: Scene) -> float:
    return factor_of(scene.servers()["slow"])


def factor_of(server: Manifest) -> float:
    measured = server.get("status", {}).get("measured", {})
    return float(measured.get("correction", {}).get("factor", 1.0))


@pytest.mark.usefixtures("deployment_controllers")
@pytest.mark.slow
@pytest.mark.soak("it takes five minutes")
def test_slower_replicas_get_more_until_they_keep_the_target_also_when_the_operator_is_killed(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    with moving(scene, prometheus_program, MOVERS, scrape_s=1.0, pods=POD_TIMES) as motion:
        scene.apply(*believed())
        wait_until(motion.all_serve, bool, "replicas that serve", PATIENCE_S)
        motion.begin()
        running = operator(environment=motion.environment(MEASURE_S))
        wait_until(lambda: factor(scene), lambda f: f > 1, "a first correction", PATIENCE_S)
        running.kill()
        before = factor(scene)
        running = operator(environment=motion.environment(MEASURE_S))
        wait_until(
            lambda: replicas(scene, "slow"), lambda n: n >= NEEDED, "enough replicas", PATIENCE_S
        )
        ends = motion.elapsed + CALM_S
        wait_until(lambda: motion.elapsed, lambda t: t > ends, "a quiet time", CALM_S + 60.0)
        show(motion)

        told = condition(scene.servers()["slow"], "Corrected")
        assert before >= 1 + 1 / NEEDED
        assert factors_rise(motion)
        assert replicas(scene, "slow") in (NEEDED, NEEDED + 1)  # 30 s are few requests
        assert motion.seen["slow"].changes(ends - CALM_S / 2, ends) == 0
        assert condition(scene.servers()["right"], "Corrected") == {}
        assert told["reason"] == "TargetsMissed"
        assert "calibrate Model 'llama'" in told["message"]
        assert len(scene.events("TargetsMissed")) == 1


def factors_rise(motion: Motion) -> bool:
    """Whether no plan for the slow server was smaller than the one before, all the time."""
    counts = [sum(placed.values()) for _, placed in motion.seen["slow"].placements]
    return counts == sorted(counts)


def show(motion: Motion) -> None:
    """Print when each server got which replicas, for people."""
    for name, seen in motion.seen.items():
        print(f"\n{name}", [(round(time), dict(placed)) for time, placed in seen.placements])
