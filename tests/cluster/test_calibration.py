"""Calibrated parameters on a real control plane: written beside what others write, and used."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

import pytest

from inferno_operator.controllers.calibration.controller import Context, reconcile
from inferno_operator.controllers.calibration.windows import Pair
from inferno_optimizer.calibration.windows import Window
from tests.cluster.connection import connected
from tests.cluster.scene import Manifest, Scene, condition, decided
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane

pytestmark = pytest.mark.usefixtures("crds_installed")

MODEL = "granite-13b"
SLOW_MS = 60.0
"""Between tokens, on G2: more than any target of the sample allows."""


class Seen:
    """Windows of replicas on G2, at batches of 2 to 31."""

    def __init__(self, namespace: str) -> None:
        self._pair = Pair(namespace, MODEL, "G2")

    async def read(self, at: float | None = None) -> Mapping[Pair, Sequence[Window]]:
        if at is not None:
            return {}
        now = datetime.now(UTC).timestamp()
        return {self._pair: [self._window(2.0 + n * 7 % 30, now - 60.0 * n) for n in range(60)]}

    @staticmethod
    def _window(batch: float, end: float) -> Window:
        return Window(
            end=end,
            itl_ms=SLOW_MS + 0.3 * batch,
            intervals=5000.0,
            batch=batch,
            prefill_ms=2.0 + 0.0001 * 300 * batch,
            prefills=50.0,
            input_tokens=300.0,
            output_tokens=200.0,
        )


@pytest.fixture
async def cycle(control_plane: ControlPlane, scene: Scene) -> AsyncIterator[Context]:
    """What a calibration cycle needs, in the test's namespace."""

    def now() -> datetime:
        return datetime.now(UTC)

    async with connected(control_plane.kubeconfig, now) as api:
        yield Context(api, Seen(scene.namespace), (scene.namespace,), now)


def model(scene: Scene) -> Manifest:
    return scene.get("models", MODEL)


def use(scene: Scene, mode: str) -> None:
    scene.patch("models", MODEL, {"spec": {"calibrate": mode}})


async def test_a_calibration_and_an_optimization_leave_each_others_status_alone(
    scene: Scene, cycle: Context, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    use(scene, "Use")
    await reconcile(cycle)
    operator()

    scene.optimize()

    premium = scene.servers()["premium-granite-13b"]
    assert decided(premium)[0] == "A100"  # G2 is too slow, as measured
    found = model(scene)
    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "Calibrated")["status"] == "True"
    await reconcile(cycle)
    assert condition(model(scene), "Ready")["status"] == "True"


async def test_what_was_calibrated_is_shown_and_removed_again(scene: Scene, cycle: Context) -> None:
    scene.apply_sample("small")

    await reconcile(cycle)

    table = scene.kubectl("get", "models")
    assert table.splitlines()[1].split()[:3] == [MODEL, MODEL, "Calibrated"]
    found = model(scene)
    (row,) = found["status"]["calibration"]
    assert (row["acc"], row["reason"], row["rows"]) == ("G2", "Calibrated", 60)
    assert row["decode"]["alpha"] == pytest.approx(SLOW_MS, rel=0.05)
    use(scene, "Off")
    await reconcile(cycle)
    after = model(scene)
    assert "calibration" not in after.get("status", {})
    assert condition(after, "Calibrated") == {}
