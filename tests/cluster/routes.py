"""What happened to the route of a booster, event by event."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Kind
from tests.cluster.scene import Scene

Manifest = dict[str, Any]

KINDS = (KTHENA.serving, KTHENA.route)

REPLAY_SECONDS = 1
"""How long the API server tells of what happened; it does so at once."""


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
        self._since = {kind: self._list(kind) for kind in KINDS}

    def moments(self) -> Iterator[Moment]:
        """Every state since the beginning, over both kinds in the order of their versions."""
        objects = dict(self._objects)
        events = [event["object"] for kind in KINDS for event in self._replay(kind)]
        for changed in sorted(events, key=lambda item: int(item["metadata"]["resourceVersion"])):
            objects[_place(changed)] = changed
            yield _moment(objects)

    def _list(self, kind: Kind) -> str:
        listed = json.loads(self._read(kind, ""))
        for item in listed["items"]:
            self._objects[_place(item)] = item
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _replay(self, kind: Kind) -> Iterator[Manifest]:
        since = self._since[kind]
        query = f"?watch=1&resourceVersion={since}&timeoutSeconds={REPLAY_SECONDS}"
        for line in self._read(kind, query).splitlines():
            event = json.loads(line)
            assert event["type"] in ("ADDED", "MODIFIED"), event
            yield event

    def _read(self, kind: Kind, query: str) -> str:
        place = f"/apis/{kind.api_version}/namespaces/{self._scene.namespace}/{kind.plural}"
        return self._scene.control_plane.kubectl("get", "--raw", place + query).stdout


def _place(item: Manifest) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


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
