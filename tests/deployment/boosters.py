"""ModelBoosters of both dialects, on which an operator uses every right that it has on them."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Kind
from tests.cluster.scene import Scene, condition
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

OWN_TARGETS = ("ModelBooster", "ModelServing")
Case = tuple[Dialect, str, Kind | None]
"""A dialect, a target, and for the target Binding the kind that binds an autoscaler."""

CASES: list[Case] = [
    *((dialect, target, None) for dialect, target in product(DIALECTS.values(), OWN_TARGETS)),
    *((dialect, "Binding", kind) for dialect in DIALECTS.values() for kind in dialect.scalers),
]
BACKEND = "g2"
REPLICAS = 2
CHANGING = "changing"
"""A booster that no Server refers to, of which in the end little is left."""

POLICY = {"metrics": [{"metricName": "waiting", "targetValue": 10}]}


class Boosters:
    """Boosters in the namespace of the sample `small`, each with a Server that refers to it.

    Parameters
    ----------
    scene
        The namespace.
    looked_after
        The dialect whose boosters the operator turns into what serves them, if it does.
    """

    def __init__(self, scene: Scene, looked_after: Dialect | None) -> None:
        self._scene = scene
        self._looked_after = looked_after

    def apply(self) -> None:
        """Apply them, and whatever of them nobody else makes."""
        for case in CASES:
            self._scene.apply(*self._manifests(*case))
        if self._looked_after is not None:
            policies = {"maxReplicas": REPLICAS, "autoscalingPolicy": POLICY}
            backends = [_backend(name, **policies) for name in (BACKEND, "superfluous")]
            self._scene.apply(_booster(self._looked_after, CHANGING, *backends))

    def wait_until_actuated(self) -> None:
        """Wait until every decision is where its Server wants it."""

        def reasons() -> dict[str, str]:
            servers = self._scene.servers()
            names = [_name(*case) for case in CASES]
            return {name: condition(servers[name], "Actuated").get("reason", "") for name in names}

        def are_written(found: dict[str, str]) -> bool:
            return set(found.values()) <= {"Actuated", "Moving"}  # nothing brings replicas up here

        wait_until(reasons, are_written, "decisions carried out")

    def change(self) -> None:
        """Take away what a booster was made of, and wait until its children follow."""
        if self._looked_after is None:
            return
        dialect = self._looked_after
        self._wait_for_children(dialect, 2)
        self._scene.apply(self._stray_route(dialect), _booster(dialect, CHANGING, _backend()))
        self._wait_for_children(dialect, 1)

    def _manifests(self, dialect: Dialect, target: str, scaler: Kind | None) -> Iterator[Manifest]:
        name = _name(dialect, target, scaler)
        yield _booster(dialect, name, _backend())
        if dialect != self._looked_after:
            yield _serving(dialect, name)
        if scaler is not None:
            yield _scaler(dialect, scaler, name)
        yield _server(dialect, name, target)

    def _wait_for_children(self, dialect: Dialect, backends: int) -> None:
        """Wait until the changing booster has what so many backends take, the last no policy."""
        scaled = backends if backends > 1 else 0
        wanted = {
            **dict.fromkeys((dialect.serving, dialect.server), backends),
            **dict.fromkeys((dialect.policy, dialect.binding), scaled),
            dialect.route: 1,
        }

        def counts() -> dict[Kind, int]:
            return {kind: len(self._children(kind)) for kind in wanted}

        wait_until(counts, lambda found: found == wanted, f"children of {backends} backends")

    def _children(self, kind: Kind) -> list[Manifest]:
        items = self._scene.control_plane.items(str(kind), self._scene.namespace)
        owners = {i["metadata"]["name"]: i["metadata"].get("ownerReferences", ()) for i in items}
        return [o for found in owners.values() for o in found if o["name"] == CHANGING]

    def _stray_route(self, dialect: Dialect) -> Manifest:
        """What another release may have made of the booster."""
        place = self._scene.namespace
        booster = self._scene.control_plane.get(str(dialect.booster), CHANGING, place)
        owner = {name: booster[name] for name in ("apiVersion", "kind")}
        owner |= {name: booster["metadata"][name] for name in ("name", "uid")}
        spec = {"modelName": CHANGING, "rules": []}
        stray = _manifest(dialect.route, f"{CHANGING}-stray", spec)
        return {**stray, "metadata": {**stray["metadata"], "ownerReferences": [owner]}}


def _name(dialect: Dialect, target: str, scaler: Kind | None) -> str:
    return f"{dialect.name}-{scaler.kind if scaler else target}".lower()


def _manifest(kind: Kind, name: str, spec: Manifest) -> Manifest:
    header = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**header, "metadata": {"name": name}, "spec": spec}


def _booster(dialect: Dialect, name: str, *backends: Manifest) -> Manifest:
    return _manifest(dialect.booster, name, {"backends": list(backends)})


def _backend(name: str = BACKEND, **fields: object) -> Manifest:
    return {
        "name": name,
        "type": "vLLM",
        "modelURI": "hf://example/model",
        "minReplicas": 1,
        "maxReplicas": 1,
        "workers": [{"type": "server", "image": "engine:1", "replicas": 1, "pods": 1}],
        **fields,
    }


def _serving(dialect: Dialect, booster: str) -> Manifest:
    pod = {"spec": {"containers": [{"name": "engine", "image": "engine:1"}]}}
    role = {"name": "leader", "entryTemplate": pod, "workerReplicas": 0}
    spec = {"schedulerName": "volcano", "replicas": 1, "template": {"roles": [role]}}
    return _manifest(dialect.serving, f"{booster}-{BACKEND}", spec)


def _scaler(dialect: Dialect, kind: Kind, booster: str) -> Manifest:
    name = f"{booster}-{BACKEND}"
    scaling = {
        "target": {"targetRef": {"kind": dialect.serving.kind, "name": name}},
        "minReplicas": 1,
        "maxReplicas": 1,
    }
    if kind == dialect.policy:
        return _manifest(kind, name, {"homogeneousTarget": scaling})
    return _manifest(kind, name, {"policyRef": {"name": "policy"}, "scalingConfiguration": scaling})


def _server(dialect: Dialect, booster: str, target: str) -> Manifest:
    """A Server of the sample's model that is to have more replicas than there are."""
    load = {"arrivalRate": 10, "avgLength": 512}
    return {
        "apiVersion": "inferno.platform.ai/v1alpha1",
        "kind": "Server",
        "metadata": {"name": booster},
        "spec": {
            "name": booster,
            "class": "Free",
            "model": "granite-13b",
            "minNumReplicas": REPLICAS,
            "currentAlloc": {"accelerator": "", "numReplicas": 0, "load": load},
            "modelBooster": {
                "name": booster,
                "dialect": dialect.name,
                "backends": [{"name": BACKEND, "accelerator": "G2"}],
                "target": target,
            },
        },
    }
