"""What happened to the route of a booster, event by event."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes import watch
from kubernetes.client import CustomObjectsApi

from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Kind
from tests.cluster.following import client_of
from tests.cluster.scene import Scene
from tests.controlplane.waiting import PATIENCE_S

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
