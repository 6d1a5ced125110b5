"""The controller with the definitions of the original: whole pod specs and lists with keys."""

from collections.abc import Iterator

import pytest
import yaml

from inferno_operator.boosters.dialects import KTHENA
from tests.cluster.scene import Scene, condition
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until

DEFINITIONS = ROOT.parent / "shared" / "conformance" / "kthena" / "crds"
SAMPLES = [
    ROOT / "samples/model-booster" / f"{name}.yaml" for name in ("adapters", "disaggregated")
]
NAMESPACE = "boosters"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not DEFINITIONS.is_dir(), reason="no recordings beside the project"),
]


@pytest.fixture(scope="module")
def originals() -> Iterator[ControlPlane]:
    """A control plane of its own: both sets of definitions have the same names."""
    with ControlPlane() as control_plane:
        control_plane.install_crds(ROOT / "crds")
        control_plane.install_crds(DEFINITIONS)
        control_plane.create_namespace(NAMESPACE)
        yield control_plane


def run(originals: ControlPlane, name: str) -> OperatorProcess:
    environment = {"INFERNO_MODEL_BOOSTER": "kthena"}
    process = OperatorProcess(
        originals.processes, name, originals.kubeconfig, NAMESPACE, environment
    )
    process.wait_until_ready()
    return process


def versions(originals: ControlPlane) -> dict[str, str]:
    kinds = (KTHENA.booster, *KTHENA.children)
    items = [item for kind in kinds for item in originals.items(str(kind), NAMESPACE)]
    return {f"{i['kind']}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in items}


def wait_until_initialized(originals: ControlPlane, count: int) -> None:
    def initialized() -> int:
        boosters = originals.items(str(KTHENA.booster), NAMESPACE)
        return sum(condition(b, "Initialized").get("status") == "True" for b in boosters)

    wait_until(initialized, lambda n: n == count, f"{count} boosters", 60.0)


def test_children_settle_and_a_new_operator_writes_nothing(originals: ControlPlane) -> None:
    scene = Scene(originals, NAMESPACE)
    scene.apply(*(yaml.safe_load(path.read_text()) for path in SAMPLES))
    first = run(originals, "first")
    wait_until_initialized(originals, 2)
    before = versions(originals)
    assert first.stop() == 0

    second = run(originals, "second")
    last = yaml.safe_load(SAMPLES[0].read_text())
    scene.apply({**last, "metadata": {"name": "last"}})  # its turn comes after the others
    wait_until_initialized(originals, 3)
    after = versions(originals)

    assert second.stop() == 0
    assert {name: after[name] for name in before} == before
    assert scene.events("Updated") == []
