"""Decisions reach ModelBoosters, step by step, and what runs comes back."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client import CustomObjectsApi

from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Kind
from tests.cluster.actuated import BOOSTERS, Actuated, backend, booster
from tests.cluster.background import client_of
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.scene import Scene
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S, wait_until

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


pytestmark = pytest.mark.usefixtures("crds_installed", "boosters_installed")

OURS = {"INFERNO_MODEL_BOOSTER": "kthena"}
"""The operator makes the servings of boosters, too."""


@pytest.fixture
def fleet(control_plane: ControlPlane, namespace: str) -> Iterator[Fleet]:
    """What runs servings in the test's namespace."""
    with running_fleet(control_plane.kubeconfig, namespace) as fleet:
        fleet.makes_servings = False
        yield fleet


@pytest.fixture
def actuated(scene: Scene) -> Actuated:
    """A server on a booster with two backends, and cards for it."""
    return Actuated(scene)


def lowest(fleet: Fleet, since: int) -> int:
    """Fewest replicas that were available at once since then."""
    return min(sum(state.values()) for state in fleet.history[since - 1 :])


def start(actuated: Actuated, operator: StartOperator, target: str = "ModelBooster") -> None:
    """Start an operator, and wait until two replicas run on A100."""
    actuated.boost()
    operator(environment=OURS)
    actuated.apply(wanted=2, target=target)
    actuated.wait_for("Actuated", text="2 x A100")
    actuated.wait_until_runs("A100", 2)


@pytest.mark.parametrize("target", ["ModelBooster", "ModelServing"])
def test_a_model_follows_load_and_capacity_without_a_gap(
    actuated: Actuated, fleet: Fleet, operator: StartOperator, target: str
) -> None:
    recording = Recording(actuated.scene)
    start(actuated, operator, target)
    served = len(fleet.history)

    actuated.load(4)
    actuated.wait_for("Actuated", text="4 x A100")
    assert lowest(fleet, served) == 2
    server = actuated.wait_until_runs("A100", 4)
    assert server["spec"]["currentAlloc"]["cost"] == 40
    assert server["spec"]["currentAlloc"]["load"]["arrivalRate"] == 210

    served, move = len(fleet.history), Recording(actuated.scene)
    actuated.have_only_h100()
    actuated.scene.optimize()
    actuated.wait_for("Actuated", text="4 x H100")
    server = actuated.wait_until_runs("H100", 4)
    assert server["spec"]["currentAlloc"]["cost"] == 80
    actuated.wait_for_replicas(a100=0, h100=4)
    assert lowest(fleet, served) == 4
    assert max(sum(state.values()) for state in fleet.history[served - 1 :]) == 8

    moments = move.wait_for_route(("m-h100",))
    assert [moment for moment in recording.moments() if moment.is_gap] == []
    if target == "ModelBooster":  # else the operator sets replicas before the route changes
        actuated.wait_for_bounds(a100=(0, 1), h100=(4, 4))
        assert not any(moment.fails_some for moment in moments)
    led_to = [servings for servings, _ in groupby(moment.led_to for moment in moments)]
    assert led_to == [("m-a100",), ("m-a100", "m-h100"), ("m-h100",)]


@pytest.mark.extended
def test_no_replica_that_is_needed_goes_whenever_operators_are_killed(
    actuated: Actuated, fleet: Fleet, operator: StartOperator
) -> None:
    running, chance, clock = operator(), Random(1), threading.Event()  # noqa: S311 - the same moments each run
    fleet.makes_servings = True
    actuated.boost()
    actuated.apply(wanted=2)
    actuated.wait_for("Actuated", "2 x A100")
    actuated.wait_until_runs("A100", 2)

    for accelerator, replicas, least in (("A100", 4, 2), ("H100", 4, 4)):
        served = len(fleet.history)
        if accelerator == "H100":
            actuated.have_only_h100()
        actuated.load(replicas)
        for _ in range(3):
            clock.wait(chance.uniform(0.05, 0.6))
            running.kill()
            running = operator()
        actuated.wait_for("Actuated", f"{replicas} x {accelerator}")
        actuated.wait_until_runs(accelerator, replicas)
        assert lowest(fleet, served) == least


@pytest.mark.usefixtures("fleet")
def test_the_one_backend_of_later_releases_follows(
    actuated: Actuated, operator: StartOperator
) -> None:
    one = {k: v for k, v in backend("a100").items() if k not in ("minReplicas", "maxReplicas")}
    actuated.scene.apply({**booster("m"), "spec": {"backend": {**one, "replicas": 1}}})
    operator(environment=OURS)
    actuated.apply(wanted=2, backends=[{"name": "a100", "accelerator": "A100"}])

    def written() -> int:
        replicas: int = actuated.scene.get(BOOSTERS, "m")["spec"]["backend"]["replicas"]
        return replicas

    actuated.wait_for("Actuated", text="2 x A100")
    assert written() == 2
    assert "backendStatuses" not in actuated.scene.get(BOOSTERS, "m")["status"]
    actuated.wait_until_runs("A100", 2)

    actuated.take_load_away()
    actuated.wait_for("Actuated", text="no replicas")
    assert written() == 0
    actuated.wait_until_runs("", 0)

    actuated.load(3)
    actuated.wait_until_runs("A100", 3)


@pytest.mark.usefixtures("fleet")
def test_fields_of_others_stay_theirs_and_ours_are_given_up_with_their_values(
    actuated: Actuated, operator: StartOperator
) -> None:
    start(actuated, operator)
    assert owned_by_us(managed(actuated, BOOSTERS, "m")) == {"minReplicas", "maxReplicas", "name"}

    actuated.scene.patch("server", "s", {"spec": {"modelBooster": None}})
    actuated.wait_for("Released")

    assert owned_by_us(managed(actuated, BOOSTERS, "m")) == set()
    assert actuated.bounds()["a100"] == (2, 2)
    assert owned_by_us(managed(actuated, "server", "s")) == set()


def managed(actuated: Actuated, resource: str, name: str) -> list[Manifest]:
    shown = actuated.scene.kubectl("get", resource, name, "--show-managed-fields", "--output=json")
    entries: list[Manifest] = json.loads(shown)["metadata"]["managedFields"]
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
