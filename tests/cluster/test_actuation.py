"""Decisions reach ModelBoosters, step by step, and what runs comes back."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client import CustomObjectsApi

from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Kind
from tests.cluster.actuated import BOOSTERS, SERVINGS, Actuated, backend, booster
from tests.cluster.background import client_of
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.scene import Scene
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.tiers import extended

Manifest = dict[str, Any]

KINDS = (KTHENA.serving, KTHENA.route)


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood after an event.

    Attributes
    ----------
    available, asked
        Replicas by ModelServing.
    led_to
        ModelServings that the route leads to; none if there is no route.
    """

    available: Mapping[str, int]
    asked: Mapping[str, int]
    led_to: tuple[str, ...]

    @property
    def is_gap(self) -> bool:
        """Whether something can serve, and the route leads only elsewhere."""
        serves = any(map(self.available.get, self.led_to))
        return bool(self.led_to) and any(self.available.values()) and not serves

    @property
    def fails_some(self) -> bool:
        """Whether requests go to what is asked to have no replica, beside what serves."""
        return any(map(self.available.get, self.led_to)) and not all(
            map(self.asked.get, self.led_to)
        )


class Recording:
    """Remembers how things stand, to tell later of everything that happened since."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._objects: dict[tuple[str, str], Manifest] = {}
        self._since = {kind: self._take(kind) for kind in KINDS}

    def moments(self) -> Iterator[Moment]:
        """Every state since the beginning, over both kinds in the order of their versions."""
        objects = dict(self._objects)
        events = [changed for kind in KINDS for changed in self._replay(kind)]
        for changed in sorted(events, key=_version):
            objects[_place(changed)] = changed
            yield _moment(objects)

    def wait_for_route(self, led_to: tuple[str, ...]) -> list[Moment]:
        """Return every state since the beginning, once the route leads to these servings."""
        return wait_until(
            lambda: list(self.moments()), lambda found: found[-1].led_to == led_to, "the route"
        )

    def _take(self, kind: Kind) -> str:
        """Take the objects as they are; returns their version."""
        listed = self._list(kind)
        self._objects |= {_place(item): item for item in listed["items"]}
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _replay(self, kind: Kind) -> Iterator[Manifest]:
        """Each change that led to the objects as they are, however long it takes to tell."""
        awaited = {_place(item): _version(item) for item in self._list(kind)["items"]}
        seen = {place: _version(item) for place, item in self._objects.items()}
        events = self._events(kind)
        while any(seen.get(place, 0) < version for place, version in awaited.items()):
            changed = next(events)
            seen[_place(changed)] = _version(changed)
            yield changed

    def _events(self, kind: Kind) -> Iterator[Manifest]:
        """What the API server tells of all changes; what does not come hangs."""
        with client_of(self._scene.control_plane.kubeconfig) as api:
            follow = watch.Watch("object").stream  # type: ignore[no-untyped-call]  # nobody typed it
            for event in follow(  # type: ignore[no-untyped-call]
                CustomObjectsApi(api).list_namespaced_custom_object,
                *(kind.group, kind.version, self._scene.namespace, kind.plural),
                resource_version=self._since[kind],
                timeout_seconds=round(PATIENCE_S),
            ):
                assert event["type"] in ("ADDED", "MODIFIED"), event
                yield event["raw_object"]
        raise AssertionError(f"not all changes of {kind} were told within {PATIENCE_S:g} s")

    def _list(self, kind: Kind) -> Manifest:
        place = f"/apis/{kind.api_version}/namespaces/{self._scene.namespace}/{kind.plural}"
        listed: Manifest = json.loads(
            self._scene.control_plane.kubectl("get", "--raw", place).stdout
        )
        return listed


def _place(item: Manifest) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _version(item: Manifest) -> int:
    return int(item["metadata"]["resourceVersion"])


def _moment(objects: Mapping[tuple[str, str], Manifest]) -> Moment:
    servings = {name: item for (kind, name), item in objects.items() if kind == "ModelServing"}
    targets = [
        target["modelServerName"]
        for (kind, _), item in objects.items()
        if kind == "ModelRoute"
        for target in item["spec"]["rules"][0]["targetModels"]
    ]
    return Moment(
        {name: s.get("status", {}).get("availableReplicas", 0) for name, s in servings.items()},
        {name: s["spec"]["replicas"] for name, s in servings.items()},
        tuple(targets),
    )


pytestmark = pytest.mark.usefixtures("crds_installed", "kthena_installed")

KTHENA_CRDS = ROOT / "crds" / "kthena"
MATRIXINFER_CRDS = ROOT / "crds" / "matrixinfer"
BINDINGS = "autoscalingpolicybindings.workload.serving.volcano.sh"


@pytest.fixture(scope="session")
def kthena_installed(control_plane: ControlPlane) -> None:
    """Kthena's custom resources are served."""
    control_plane.install_crds(KTHENA_CRDS)


@pytest.fixture
def fleet(control_plane: ControlPlane, namespace: str) -> Iterator[Fleet]:
    """What runs boosters in the test's namespace."""
    with running_fleet(control_plane.kubeconfig, namespace) as fleet:
        yield fleet


@pytest.fixture
def actuated(scene: Scene) -> Actuated:
    """A server on a booster with two backends, and cards for it."""
    return Actuated(scene)


def start(
    actuated: Actuated, operator: StartOperator, wanted: int = 2, target: str = "ModelBooster"
) -> None:
    """Start an operator, and wait until the decided replicas run on A100."""
    actuated.boost()
    operator()
    actuated.apply(wanted=wanted, target=target)
    actuated.wait_for("Actuated", text=f"{wanted} x A100")
    actuated.wait_until_runs("A100", wanted)


def lowest(fleet: Fleet, since: int) -> int:
    """Fewest replicas that were available at once since then."""
    return min(sum(state.values()) for state in fleet.history[since - 1 :])


@pytest.mark.parametrize("controller", [*extended("off"), "kthena"], ids=["another's", "ours"])
def test_a_booster_follows_load_and_capacity_without_a_gap(
    actuated: Actuated, fleet: Fleet, operator: StartOperator, controller: str
) -> None:
    fleet.makes_servings = controller == "off"
    recording = Recording(actuated.scene)
    actuated.boost()
    operator(environment={"INFERNO_MODEL_BOOSTER": controller})
    actuated.apply(wanted=2)

    actuated.wait_for("Actuated", text="2 x A100")
    actuated.wait_until_runs("A100", 2)
    served = len(fleet.history)
    actuated.wait_for_bounds(a100=(2, 2), h100=(0, 1))

    actuated.load(4)
    actuated.wait_for("Actuated", text="4 x A100")
    assert lowest(fleet, served) == 2

    server = actuated.wait_until_runs("A100", 4)
    assert server["spec"]["currentAlloc"]["cost"] == 40
    assert server["spec"]["currentAlloc"]["load"]["arrivalRate"] == 210

    served = len(fleet.history)
    actuated.have_only_h100()
    actuated.ask()
    actuated.wait_for("Actuated", text="4 x H100")
    server = actuated.wait_until_runs("H100", 4)
    assert server["spec"]["currentAlloc"]["cost"] == 80
    actuated.wait_for_bounds(a100=(0, 1), h100=(4, 4))
    assert lowest(fleet, served) == 4
    assert max(sum(state.values()) for state in fleet.history[served - 1 :]) == 8
    end = ("m-h100",) if controller == "kthena" else ()
    moments = recording.wait_for_route(end)
    assert [moment for moment in moments if moment.is_gap] == []


@pytest.mark.parametrize("target", [*extended("ModelBooster"), "ModelServing"])
def test_our_own_controller_passes_decisions_on(
    actuated: Actuated, fleet: Fleet, operator: StartOperator, target: str
) -> None:
    fleet.makes_servings = False
    recording = Recording(actuated.scene)
    actuated.boost()
    operator(environment={"INFERNO_MODEL_BOOSTER": "kthena"})
    actuated.apply(wanted=2, target=target)
    actuated.wait_until_runs("A100", 2)
    served, move = len(fleet.history), Recording(actuated.scene)
    actuated.have_only_h100()

    actuated.load(3)

    actuated.wait_for("Actuated", text="3 x H100")
    actuated.wait_until_runs("H100", 3)
    assert lowest(fleet, served) == 2
    actuated.wait_for_replicas(a100=0, h100=3)
    moments = move.wait_for_route(("m-h100",))
    assert [moment for moment in recording.moments() if moment.is_gap] == []
    if target == "ModelBooster":  # else the operator sets replicas before the route changes
        assert not any(moment.fails_some for moment in moments)
    led_to = [servings for servings, _ in groupby(moment.led_to for moment in moments)]
    assert led_to == [("m-a100",), ("m-a100", "m-h100"), ("m-h100",)]


@pytest.mark.parametrize(
    ("numbers", "two", "none"),
    [
        ({"replicas": 1}, {"replicas": 2}, {"replicas": 0}),
        pytest.param(
            {"minReplicas": 1, "maxReplicas": 1},
            {"minReplicas": 2, "maxReplicas": 2},
            {"minReplicas": 0, "maxReplicas": 1},
            marks=pytest.mark.extended,
        ),
    ],
    ids=["v1.0.0", "before it"],
)
def test_the_one_backend_of_later_releases_follows(
    actuated: Actuated,
    fleet: Fleet,
    operator: StartOperator,
    numbers: Manifest,
    two: Manifest,
    none: Manifest,
) -> None:
    fleet.makes_servings = False
    one = {k: v for k, v in backend("a100").items() if k not in ("minReplicas", "maxReplicas")}
    actuated.scene.apply({**booster("m"), "spec": {"backend": {**one, **numbers}}})
    operator(environment={"INFERNO_MODEL_BOOSTER": "kthena"})
    actuated.apply(wanted=2, backends=[{"name": "a100", "accelerator": "A100"}])

    def written() -> Manifest:
        spec = actuated.get(BOOSTERS, "m")["spec"]["backend"]
        return {name: spec[name] for name in two if name in spec}

    actuated.wait_for("Actuated", text="2 x A100")
    assert written() == two
    assert "backendStatuses" not in actuated.get(BOOSTERS, "m")["status"]
    actuated.wait_until_runs("A100", 2)

    actuated.take_load_away()
    actuated.wait_for("Actuated", text="no replicas")
    assert written() == none
    actuated.wait_until_runs("", 0)

    actuated.patch("server", "s", {"spec": {"modelBooster": None}})
    actuated.wait_for("Released")
    assert owned_by_us(managed(actuated, BOOSTERS, "m")) == set()
    assert written() == none


def test_an_idle_server_goes_to_zero_and_comes_back(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    start(actuated, operator)

    actuated.take_load_away()

    actuated.wait_for("Actuated", text="no replicas")
    actuated.wait_until_runs("", 0)
    actuated.wait_for_bounds(a100=(0, 1), h100=(0, 1))

    actuated.load(3)

    actuated.wait_until_runs("A100", 3)
    fleet.wait_for(a100=3)


def test_nothing_is_written_when_nothing_changes(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    actuated.boost()
    first = operator()
    actuated.apply(wanted=2)
    actuated.wait_for("Actuated", text="2 x A100")
    actuated.wait_until_runs("A100", 2)
    actuated.ask()
    first.stop()

    def versions() -> dict[str, str]:
        kinds = "servers", BOOSTERS, SERVINGS
        items = [i for k in kinds for i in actuated.scene.control_plane.items(k, ns)]
        return {i["kind"] + i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in items}

    ns = actuated.scene.namespace
    before = versions()
    operator()
    actuated.ask()  # done only when it has seen and told everything

    assert versions() == before
    fleet.wait_for(a100=2)


@pytest.mark.extended
def test_a_mix_runs_on_its_backends_and_is_known_to_the_next_optimization(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    actuated.boost()
    operator()
    actuated.apply(wanted=5, a100=3, parameters={"heterogeneous": True, "milpSolver": True})
    actuated.wait_for("Actuated", text="3 x A100")
    actuated.wait_until_runs("A100", 5)
    before = actuated.get("server", "s")

    actuated.ask()

    after = actuated.get("server", "s")
    mix = [(p["accelerator"], p["numReplicas"]) for p in before["spec"]["currentAlloc"]["mix"]]
    assert mix == [("A100", 3), ("H100", 2)]
    assert after["spec"] == before["spec"]
    fleet.wait_for(a100=3, h100=2)


def test_fields_of_others_stay_theirs_and_ours_are_given_up_with_their_values(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    start(actuated, operator)
    assert owned_by_us(managed(actuated, BOOSTERS, "m")) == {"minReplicas", "maxReplicas", "name"}

    actuated.patch("server", "s", {"spec": {"modelBooster": None}})
    actuated.wait_for("Released")

    assert owned_by_us(managed(actuated, BOOSTERS, "m")) == set()
    assert actuated.bounds()["a100"] == (2, 2)
    assert owned_by_us(managed(actuated, "server", "s")) == set()
    fleet.wait_for(a100=2)


@pytest.mark.extended
def test_another_target_or_fewer_backends_give_up_what_is_not_needed_any_more(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    start(actuated, operator)
    only = [{"name": "a100", "accelerator": "A100"}]
    actuated.patch("server", "s", {"spec": {"modelBooster": {"backends": only}}})

    actuated.load(3)
    actuated.wait_for("Actuated", text="3 x A100")
    actuated.wait_for_bounds(a100=(3, 3), h100=(0, 1))

    actuated.patch("server", "s", {"spec": {"modelBooster": {"target": "ModelServing"}}})

    wait_until(
        lambda: owned_by_us(managed(actuated, BOOSTERS, "m")),
        lambda owned: not owned,
        "nothing ours in the booster",
    )
    actuated.wait_for_bounds(a100=(3, 3), h100=(0, 1))
    fleet.wait_for(a100=3)


def managed(actuated: Actuated, resource: str, name: str) -> list[Manifest]:
    arguments = "get", resource, name, "--namespace", actuated.scene.namespace
    completed = actuated.scene.control_plane.kubectl(
        *arguments, "--show-managed-fields", "--output=json"
    )
    entries: list[Manifest] = json.loads(completed.stdout)["metadata"]["managedFields"]
    return entries


def owned_by_us(entries: list[Manifest]) -> set[str]:
    """Names of the fields of the spec that we own."""
    found: set[str] = set()

    def collect(fields: Manifest) -> None:
        for key, inner in fields.items():
            if key.startswith("f:") and not inner:
                found.add(key.removeprefix("f:"))
            collect(inner)

    for entry in entries:
        if entry["manager"] == "inferno-actuation" and "subresource" not in entry:
            collect(entry["fieldsV1"])
    return found


@pytest.mark.extended
def test_a_deleted_child_comes_back_with_what_was_decided(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    start(actuated, operator, wanted=3, target="ModelServing")

    actuated.scene.control_plane.kubectl(
        "delete", SERVINGS, "m-a100", "--namespace", actuated.scene.namespace
    )
    served = len(fleet.history)
    wait_until(lambda: fleet.history[served:], bool, "the loss noticed")

    # What the Server says may be of before the loss.
    wait_until(lambda: actuated.replicas().get("m-a100"), lambda n: n == 3, "the replicas")
    actuated.wait_until_runs("A100", 3)
    actuated.wait_for("Actuated", text="3 x A100")


def test_a_backend_that_is_not_there_is_named(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    actuated.boost("m", backend("a100"))
    operator()
    actuated.apply(wanted=2)

    told = actuated.wait_for("NoBackend")

    assert "'h100'" in told["message"]
    assert fleet.available.get("m-a100", 0) == 0


def test_a_ceiling_leaves_the_minimum_to_its_user(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    policy = {"metrics": [{"metricName": "load", "targetValue": 1}]}
    a100 = backend("a100", 1, 2, autoscalingPolicy=policy)
    actuated.boost("m", a100, backend("h100", 1, 2, autoscalingPolicy=policy))
    operator()
    actuated.apply(wanted=4, bounds="Ceiling")

    actuated.wait_for("Actuated")

    actuated.wait_for_bounds(a100=(1, 4), h100=(1, 1))
    fleet.wait_for(a100=1)


@pytest.mark.parametrize("whole", [True, *extended(False)], ids=["of the model", "of each backend"])
def test_bounds_in_bindings_follow(
    actuated: Actuated, fleet: Fleet, operator: StartOperator, *, whole: bool
) -> None:
    actuated.boost()
    actuated.scene.apply(*(bindings_of_the_model() if whole else bindings_of_backends()))
    operator()
    actuated.apply(wanted=2, target="Binding")

    def bounds() -> dict[str, tuple[int, int]]:
        items = actuated.scene.control_plane.items(BINDINGS, actuated.scene.namespace)
        found: list[Manifest] = []
        for item in items:
            spec = item["spec"]
            found += [spec["scalingConfiguration"]] if not whole else []
            found += spec["optimizerConfiguration"]["params"] if whole else []
        return {
            f["target"]["targetRef"]["name"]: (f["minReplicas"], f["maxReplicas"]) for f in found
        }

    decided = {"m-a100": (2, 2), "m-h100": (0, 1)}
    wait_until(bounds, lambda found: found == decided, "the bounds")
    actuated.wait_for("Moving", text="0 x A100 (2 wanted)")

    def servings() -> list[Manifest]:
        return actuated.scene.control_plane.items(SERVINGS, actuated.scene.namespace)

    wait_until(servings, lambda found: len(found) == len(decided), "the ModelServings")
    actuated.patch(SERVINGS, "m-a100", {"spec": {"replicas": 2}})  # as its autoscaler would
    actuated.wait_for("Actuated", text="2 x A100")
    assert bounds() == decided
    fleet.wait_for(a100=2)


def bindings_of_the_model() -> list[Manifest]:
    params = [{"target": target(name), "cost": 1, **bounds(0, 9)} for name in ("a100", "h100")]
    return [binding("m", {"optimizerConfiguration": {"params": params}})]


def bindings_of_backends() -> list[Manifest]:
    return [
        binding(f"m-{name}", {"scalingConfiguration": {"target": target(name), **bounds(0, 2)}})
        for name in ("a100", "h100")
    ]


def target(backend: str) -> Manifest:
    return {"targetRef": {"kind": "ModelServing", "name": f"m-{backend}"}}


def bounds(least: int, most: int) -> Manifest:
    return {"minReplicas": least, "maxReplicas": most}


def binding(name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "AutoscalingPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyRef": {"name": "policy"}, **spec},
    }


def test_kinds_that_are_missing_are_named_and_found_later(
    actuated: Actuated, operator: StartOperator
) -> None:
    plane = actuated.scene.control_plane
    plane.kubectl("delete", "--ignore-not-found", "--filename", MATRIXINFER_CRDS)
    group = ("get", "--raw", "/apis/registry.matrixinfer.ai/v1alpha1")
    try:
        wait_until(lambda: plane.kubectl(*group, check=False).returncode, bool, "no models")
        operator()
        actuated.apply(wanted=2, dialect="matrixinfer")
        told = actuated.wait_for("CRDMissing")
    finally:
        plane.install_crds(MATRIXINFER_CRDS)  # and there they stay: other tests need them

    assert "models.registry.matrixinfer.ai" in told["message"]
    actuated.wait_for("NoModelBooster")
