"""The account of a Server on a real control plane, across a restart of the operator."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.scene import Manifest, Scene
from tests.conftest import StartOperator
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until
from tests.engines.prometheus import Prometheus
from tests.plugin import Plugin
from tests.unit.operator.objects import (
    running,
    server,
    system,
)

pytestmark = pytest.mark.usefixtures("crds_installed")

OTHERS = {"static-peak", "hpa", "keda-slo"}


@pytest.fixture
def prometheus(prometheus_program: Path) -> Iterator[Prometheus]:
    """A Prometheus that knows nothing: the queries are constants."""
    with Processes() as processes, Prometheus(processes, prometheus_program) as started:
        yield started


def measured_server() -> Manifest:
    queries = {
        "arrivalRate": "vector(0.5)",
        "avgInTokens": "vector(0)",
        "avgOutTokens": "vector(1)",
    }
    measure = {"source": "Custom", "queries": queries}
    return server(spec={"measure": measure, "currentAlloc": running(2, 1)})


def savings(scene: Scene) -> Manifest:
    found: Manifest = scene.servers()["s"].get("status", {}).get("savings", {})
    return found


def test_an_account_goes_on_after_a_restart_and_is_shown(
    scene: Scene, operator: StartOperator, prometheus: Prometheus, tmp_path: Path
) -> None:
    scene.apply(*system(100), measured_server())
    environment = {"INFERNO_PROMETHEUS_URL": prometheus.url, "INFERNO_MEASURE_INTERVAL": "0.1"}
    first = operator(environment=environment)
    written = wait_until(
        lambda: savings(scene), lambda s: s.get("countedSeconds", 0) > 1, "an account"
    )
    first.kill()
    before = savings(scene)

    operator(environment=environment)
    after = wait_until(
        lambda: savings(scene),
        lambda s: s["countedSeconds"] > before["countedSeconds"],
        "a longer account",
    )

    assert after["since"] == written["since"]
    assert after["paid"] == pytest.approx(20.0 * after["countedSeconds"] / 3600, rel=1e-3)
    plugin = Plugin(scene.control_plane, scene.namespace, tmp_path)
    (shown,) = json.loads(plugin.output("savings", "-o", "json"))["servers"]
    assert set(shown["cents"]) == {"paid", "planned", *OTHERS}
    assert {name.upper() for name in OTHERS} <= set(plugin.output("savings").split())


def test_without_an_account_one_line_tells_what_is_needed(scene: Scene, tmp_path: Path) -> None:
    scene.apply(server())

    done = Plugin(scene.control_plane, scene.namespace, tmp_path).run("savings")

    assert (done.returncode, done.stdout) == (2, "")
    assert "no savings data yet" in done.stderr
    assert done.stderr.count("\n") == 1
