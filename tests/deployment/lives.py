"""What an overlay does on a real API server: a whole life for two of them, a run for each other.

Two overlays, with what others add to them, use every right and every kind of pod. Each other one is
applied as well, and one pod of its operator works on a sample. All of it belongs to
`make extended-test`: `make test` deploys one overlay, and a chart.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Kind
from tests.cluster.actuated import backend, booster
from tests.cluster.scene import Scene, condition
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.deployment.pods import Pod
from tests.deployment.rendering import (
    NAMESPACE,
    OVERLAYS,
    Manifest,
    copy_with_components,
    find,
    kustomize,
)
from tests.deployment.rights import Calls, Right, granted
from tests.deployment.run import OPERATOR, OPTIMIZERS, Cluster, Samples, leads, write_out_of_date
from tests.deployment.workloads import REPLICAS, Workloads, server_that_grows

OWN_TARGETS = ("ModelBooster", "ModelServing")
Case = tuple[Dialect, str, Kind | None]
"""A dialect, a target, and for the target Binding the kind that binds an autoscaler."""

CASES: list[Case] = [
    *((dialect, target, None) for dialect, target in product(DIALECTS.values(), OWN_TARGETS)),
    *((dialect, "Binding", kind) for dialect in DIALECTS.values() for kind in dialect.scalers),
]
BACKEND = "g2"
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
            names = (BACKEND, "superfluous")
            backends = [backend(name, 1, REPLICAS, autoscalingPolicy=POLICY) for name in names]
            self._scene.apply(booster(CHANGING, *backends, dialect=self._looked_after))

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
        self._scene.apply(
            self._stray_route(dialect), booster(CHANGING, backend(BACKEND, 1), dialect=dialect)
        )
        self._wait_for_children(dialect, 1)

    def _manifests(self, dialect: Dialect, target: str, scaler: Kind | None) -> Iterator[Manifest]:
        name = _name(dialect, target, scaler)
        yield booster(name, backend(BACKEND, 1), dialect=dialect)
        if dialect != self._looked_after:
            yield _serving(dialect, name)
        if scaler is not None:
            yield _scaler(dialect, scaler, name)
        backends = [{"name": BACKEND, "accelerator": "G2"}]
        refers = {"name": name, "dialect": dialect.name, "backends": backends, "target": target}
        yield server_that_grows(name, modelBooster=refers)

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
        items = self._scene.items(str(kind))
        owners = {i["metadata"]["name"]: i["metadata"].get("ownerReferences", ()) for i in items}
        return [o for found in owners.values() for o in found if o["name"] == CHANGING]

    def _stray_route(self, dialect: Dialect) -> Manifest:
        """What another release may have made of the booster."""
        found = self._scene.get(str(dialect.booster), CHANGING)
        owner = {name: found[name] for name in ("apiVersion", "kind")}
        owner |= {name: found["metadata"][name] for name in ("name", "uid")}
        spec = {"modelName": CHANGING, "rules": []}
        stray = _manifest(dialect.route, f"{CHANGING}-stray", spec)
        return {**stray, "metadata": {**stray["metadata"], "ownerReferences": [owner]}}


def _name(dialect: Dialect, target: str, scaler: Kind | None) -> str:
    return f"{dialect.name}-{scaler.kind if scaler else target}".lower()


def _manifest(kind: Kind, name: str, spec: Manifest) -> Manifest:
    header = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**header, "metadata": {"name": name}, "spec": spec}


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


COUNTED = "counted"
NODE = "counted-node"
GROUP = "inferno.platform.ai/v1alpha1"
NODES = Right("", "nodes", "list")
"""The right without which there is nothing to do here."""


class CountedNode:
    """A namespace with a Capacity and an Accelerator, and a node with its cards.

    Parameters
    ----------
    control_plane
        Where they are applied.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._scene = Scene(control_plane, COUNTED)

    def apply(self) -> None:
        self._control_plane.create_namespace(COUNTED)
        accelerator = {"name": "H100", "type": "H100", "cost": 1}
        self._scene.apply(
            _ours("Accelerator", accelerator), _ours("Capacity", {"fromNodes": True}), _node()
        )

    def wait_until_counted(self) -> None:
        """Wait until the cards of the node are told."""

        def is_counted(capacity: Manifest) -> bool:
            return condition(capacity, "Counted").get("reason") == "Counted"

        self._control_plane.wait_for("capacity", "h100", is_counted, COUNTED)

    @property
    def left(self) -> list[Manifest]:
        """What would stay."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": COUNTED}}
        return [_node(), namespace]


def _ours(kind: str, spec: Manifest) -> Manifest:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "h100"}, "spec": spec}


def _node() -> Manifest:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}


ACCOUNT = f"{NAMESPACE}:{OPERATOR}"


@dataclass(frozen=True, slots=True)
class Additions:
    """What an overlay of a user's own has beside one of ours."""

    components: tuple[str, ...] = ()
    patches_of: tuple[str, ...] = ()
    """Other overlays of ours whose patches it has, too."""


LIVES = {
    "model-booster": Additions(patches_of=("stateful",)),
    "remote": Additions(components=("capacity", "prometheus")),
}
"""Overlays that have a whole life, with all that none of the two has by itself."""

RUNS = tuple(sorted({folder.name for folder in OVERLAYS.iterdir()} - LIVES.keys()))
"""Overlays that are tried by a run."""

LASTING = ("CustomResourceDefinition", "Namespace")
"""Kinds that stay between runs: all overlays have the same of them."""


@dataclass(frozen=True, slots=True)
class Life:
    """What two pods of an operator did from the first to the last day."""

    leaders: int
    survived: bool
    """Whether all objects were still there after the same was applied once more."""


@dataclass(frozen=True, slots=True)
class Deployed:
    manifests: list[Manifest]
    warnings: str
    refusals: dict[str, str]
    """Why its pods are not admitted, by the name of the Deployment; "" if they are."""

    servers: dict[str, dict[str, Manifest]]
    """Of each sample, by name."""

    finalizers: dict[str, dict[str, list[str]]]
    calls: Calls
    left_behind: set[str]
    """Objects in no namespace that were still there after its deletion."""

    life: Life | None = None
    """None after a run."""


def live(cluster: Cluster, overlay: str, image: Path, folder: Path) -> Deployed:
    """Apply an overlay, let its pods work on all samples, apply it again, delete it."""
    control_plane = cluster.control_plane
    manifests = rendered(control_plane, overlay, folder)
    samples = Samples(control_plane, {sample: f"sample-{sample}" for sample in OPTIMIZERS})
    before, asked_before = cluster.cluster_wide_objects(), len(cluster.audit_log())
    warnings = cluster.apply(manifests)
    refusals = _refusals(cluster, manifests)
    samples.apply()
    with _subjects(samples, manifests) as subjects, cluster.pods(manifests, image) as pods:
        samples.optimize()
        subjects.wait()
        leaders = sum(map(leads, pods.operators))
    servers, finalizers = _state(samples)
    write_out_of_date(control_plane, samples.namespaces["small"])
    cluster.apply(manifests)
    survived = _uids(_state(samples)[0]) == _uids(servers)
    calls = Calls.of(ACCOUNT, cluster.audit_log()[asked_before:])
    # All at once: a namespace takes 5 s to end.
    cluster.delete([*subjects.left, *samples.own_namespaces, *manifests])
    left = cluster.cluster_wide_objects() - before
    life = Life(leaders, survived)
    return Deployed(manifests, warnings, refusals, servers, finalizers, calls, left, life)


@dataclass(frozen=True, slots=True)
class _Subjects:
    """What an operator acts upon beside the samples: boosters, workloads, a node to be counted."""

    boosters: Boosters
    workloads: Workloads
    counted: CountedNode | None

    def apply(self) -> None:
        self.boosters.apply()
        self.workloads.apply()
        if self.counted is not None:
            self.counted.apply()

    def wait(self) -> None:
        """Wait until the operator has done with each what it is to do."""
        self.boosters.wait_until_actuated()
        self.boosters.change()
        self.workloads.wait_until_scaled()
        if self.counted is not None:
            self.counted.wait_until_counted()

    @property
    def left(self) -> list[Manifest]:
        """What would stay."""
        return self.counted.left if self.counted is not None else []


@contextmanager
def _subjects(samples: Samples, manifests: list[Manifest]) -> Iterator[_Subjects]:
    scene = samples.scene("small")
    counts = NODES in granted(manifests, ACCOUNT)
    subjects = _Subjects(
        Boosters(scene, looked_after(manifests)),
        Workloads(scene),
        CountedNode(samples.control_plane) if counts else None,
    )
    subjects.apply()
    yield subjects


def runs(cluster: Cluster, image: Path, folder: Path) -> dict[str, Deployed]:
    """Apply each other overlay in turn, let a pod of its operator work on a sample, delete it."""
    manifests = {name: rendered(cluster.control_plane, name, folder) for name in RUNS}
    lasting = [manifest for manifest in manifests[RUNS[0]] if manifest["kind"] in LASTING]
    cluster.apply(lasting)
    deployed = {name: _run(cluster, name, manifests[name], image) for name in RUNS}
    cluster.delete(lasting)
    return deployed


def _run(cluster: Cluster, overlay: str, manifests: list[Manifest], image: Path) -> Deployed:
    own = NAMESPACE if overlay == "namespaced" else f"run-{overlay}"
    samples = Samples(cluster.control_plane, {"small": own})
    before, asked_before = cluster.cluster_wide_objects(), len(cluster.audit_log())
    warnings = cluster.apply(manifests)
    refusals = _refusals(cluster, manifests)
    samples.apply()
    with cluster.pods(manifests, image, replicas=1):
        samples.optimize()
        servers, finalizers = _state(samples)
    calls = Calls.of(ACCOUNT, cluster.audit_log()[asked_before:])
    ending = [manifest for manifest in manifests if manifest["kind"] not in LASTING]
    cluster.delete([*samples.own_namespaces, *ending])
    left = cluster.cluster_wide_objects() - before
    return Deployed(manifests, warnings, refusals, servers, finalizers, calls, left)


def rendered(control_plane: ControlPlane, overlay: str, folder: Path) -> list[Manifest]:
    """The objects of an overlay, with what it has in its life beside its own."""
    added, own = LIVES.get(overlay, Additions()), folder / overlay
    own.mkdir()
    copied = copy_with_components(own, overlay, *added.components, patches_of=added.patches_of)
    return kustomize(control_plane.kubectl_program, copied)


def looked_after(manifests: list[Manifest]) -> Dialect | None:
    """The dialect whose boosters an overlay turns into what serves them."""
    environment = Pod(find(manifests, "Deployment", OPERATOR), {}).environment
    return DIALECTS.get(environment.get("INFERNO_MODEL_BOOSTER", ""))


def _refusals(cluster: Cluster, manifests: list[Manifest]) -> dict[str, str]:
    deployments = [m for m in manifests if m["kind"] == "Deployment"]
    return {m["metadata"]["name"]: cluster.refusal(Pod(m, {})) for m in deployments}


def _state(
    samples: Samples,
) -> tuple[dict[str, dict[str, Manifest]], dict[str, dict[str, list[str]]]]:
    """Servers by name, and finalizers, of each sample."""
    scenes = {sample: samples.scene(sample) for sample in samples.namespaces}
    servers = {sample: scene.servers() for sample, scene in scenes.items()}
    return servers, {sample: scene.finalizers() for sample, scene in scenes.items()}


def _uids(samples: Mapping[str, Mapping[str, Manifest]]) -> set[str]:
    return {s["metadata"]["uid"] for servers in samples.values() for s in servers.values()}
