"""Objects that the version before has written: statuses with fields that are gone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.scene import Scene, decided
from tests.conftest import ROOT, new_namespace
from tests.controlplane import ControlPlane
from tests.unit.operator.objects import optimizer, running, server, system

GONE = {
    "savings": {
        "since": "2026-11-22T18:00:00Z",
        "time": "2026-11-24T12:00:00Z",
        "paid": 20.5,
        "policies": [{"policy": "hpa", "cost": 30}],
    },
}
"""Fields of the status of Servers that the version before had."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane with the definitions of the version before."""
    before = tmp_path / "crds"
    before.mkdir()
    for path in (ROOT / "crds").glob("*.yaml"):
        (before / path.name).write_text(yaml.safe_dump(with_gone_fields(path)))
    with ControlPlane() as plane:
        plane.install_crds(before)
        yield plane


def with_gone_fields(path: Path) -> dict[str, Any]:
    """A definition; that of Servers takes the fields that are gone as well."""
    definition: dict[str, Any] = yaml.safe_load(path.read_text())
    if definition["metadata"]["name"].startswith("servers."):
        (version,) = definition["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        status["properties"] |= dict.fromkeys(GONE, anything)
    return definition


def gone_fields(scene: Scene) -> dict[str, Any]:
    return {k: v for k, v in scene.servers()["s"]["status"].items() if k in GONE}


def test_servers_of_the_version_before_are_decided_with_new_definitions(
    plane: ControlPlane,
) -> None:
    with new_namespace(plane, "upgraded") as namespace:
        scene = Scene(plane, namespace)
        scene.apply(*system(100), server(spec={"currentAlloc": running(2, 1)}), optimizer())
        scene.patch("server", "s", {"status": GONE}, "status")
        assert gone_fields(scene) == GONE
        plane.install_crds(ROOT / "crds")

        process = scene.start_operator("operator")
        scene.wait_until_done("inferno")

        assert decided(scene.servers()["s"])[1] > 0
        assert gone_fields(scene) == {}
        assert process.stop() == 0
