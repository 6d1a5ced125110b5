"""Replicas that are slower than their Model says: plans grow until they keep the targets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.motion import Manifest, Mover, manifests
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
BELIEVED = 3
"""Replicas that the Model wants for the rate and 15 % more."""

SHORT_S, LONG_S, INTERVAL_S = 10, 30, 2
PATIENCE_S = 240.0
MOVERS = [
    Mover("slow", lambda _: RATE, (ACCELERATOR,), BELIEVED, ENGINE.slowed(SLOWER)),
    Mover("right", lambda _: RATE, (ACCELERATOR,), BELIEVED, ENGINE),
]
SHORT_ANSWERS = Workload(Uniform(50, 150), Uniform(10, 30))
MANY_PER_S = 60.0
"""Ten times the rate with a tenth of the tokens: 600 requests in a window of 10 s."""

PAST_S = 60.0


def believed() -> Iterator[Manifest]:
    """Yield all objects; the Model says of both servers what is true of one.

    They have no workloads: what runs, a person has typed.
    """
    decode = {"alpha": ENGINE.alpha, "beta": ENGINE.beta}
    prefill = {"gamma": ENGINE.gamma, "delta": ENGINE.delta}
    for manifest in manifests(MOVERS, {ACCELERATOR: 20}, INTERVAL_S):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Model":
            batch = {"maxBatchSize": ENGINE.max_batch_size, "atTokens": 20}
            (data,) = (item for item in spec["data"] if item["acc"] == ACCELERATOR)
            data |= {"decodeParms": decode, "prefillParms": prefill, **batch}
        if manifest["kind"] == "Server":
            del spec["workloads"]
            spec |= {"minNumReplicas": BELIEVED, "currentAlloc": typed_replicas(BELIEVED)}
            spec["scaleDown"] = {"windowSeconds": LONG_S}
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
        scene.apply(*believed())
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


def factor_of(server: Manifest) -> float:
    measured = server.get("status", {}).get("measured", {})
    return float(measured.get("correction", {}).get("factor", 1.0))
