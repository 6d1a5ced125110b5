"""Names of a megabyte and counts of 2^62: refused, and harmless where an older schema took them."""

import json
from functools import partial
from operator import eq
from typing import Any

import httpx
import pytest

from tests.cluster.scene import Scene
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.errors import ApiError
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.unit.operator import objects
from tests.unit.operator.resources.test_bounds import SPECS, WRONG, Path, changed

pytestmark = pytest.mark.usefixtures("crds_installed")

Manifest = dict[str, Any]

KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
LIMITS = ("maxLength", "maximum", "x-kubernetes-validations", *KEYS)


@pytest.mark.parametrize(("kind", "path", "value"), WRONG, ids=lambda value: str(value)[:40])
def test_the_api_server_refuses_what_is_beyond_a_bound(
    control_plane: ControlPlane, kind: str, path: Path, value: object
) -> None:
    beyond = objects.manifest(kind, changed(SPECS[kind], path, value), name="x")

    with pytest.raises(ApiError, match=r"Too long|should be less than or equal to|may not be more"):
        control_plane.api.apply([beyond], "default")


def without_limits(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """A schema as it was before names and counts had bounds, and lists had keys."""
    if isinstance(schema, dict):
        return {k: without_limits(v) for k, v in schema.items() if k not in LIMITS}
    return [*map(without_limits, schema)] if isinstance(schema, list) else schema


def test_a_neighbour_beyond_all_bounds_delays_nobody(
    scene: Scene, other: Scene, operator: StartOperator, control_plane: ControlPlane
) -> None:
    plurals = ("servers", "models", "accelerators", "serviceclasses", "capacities")
    names = [f"{plural}.inferno.platform.ai" for plural in plurals]
    for name in names:
        definition = control_plane.get("crd", name)
        spec = json.dumps(
            [{"op": "replace", "path": "/spec", "value": without_limits(definition["spec"])}]
        )
        control_plane.kubectl(
            "patch", "crd", name, "--type=json", "--patch-file=/dev/stdin", input=spec
        )
    try:
        scene.apply(
            *objects.system(10), objects.server(spec={"currentAlloc": objects.running(1, 2)})
        )
        other.apply(
            *objects.system(10), objects.server(spec={"currentAlloc": objects.running(1, 2)})
        )
        for number, (kind, path, value) in enumerate(WRONG):
            spec = changed(SPECS[kind], path, value)
            wrong = objects.manifest(kind, spec, name=f"wrong-{number}")
            apply = partial(try_apply, other, wrong)
            wait_until(apply, lambda problem: not problem, "the older schema")
        process = operator(namespace=f"{scene.namespace},{other.namespace}")
        for place in (scene, other):
            place.apply(objects.optimizer())
        scene.wait_until_done("inferno")  # else the first one may have read the load before
        for wanted in (3, 4, 5):
            load = {"spec": {"currentAlloc": objects.running(1, wanted)}}
            control_plane.patch("server", "s", load, scene.namespace)
            scene.request("inferno")
            other.request("inferno")
            scene.wait_until_done("inferno")
            wait_until(partial(decided, scene), partial(eq, wanted), "the decision")
            answer = httpx.get(f"{process.health_url}/healthz", timeout=PATIENCE_S, trust_env=False)
            assert answer.is_success
    finally:
        control_plane.install_crds(ROOT / "crds")

    assert "OverflowError" not in process.log
    assert max(map(len, process.log.splitlines())) < 5000


def decided(scene: Scene) -> int:
    server = scene.servers()["s"]
    replicas: int = server["spec"].get("desiredAlloc", {}).get("numReplicas", -1)
    return replicas


def try_apply(scene: Scene, manifest: Manifest) -> str:
    try:
        scene.apply(manifest)
    except ApiError as error:
        return str(error)[:300]
    return ""
