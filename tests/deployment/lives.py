"""What an overlay does on a real API server: a whole life for two of them, a run for each other.

Two overlays, with what others add to them, use every right and every kind of pod. Each other one is
applied as well, and one pod of its operator works on a sample. All of it belongs to
`make extended-test`: `make test` deploys one overlay, and a chart.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inferno_operator.resources.dialects import DIALECTS, Dialect
from tests.controlplane import ControlPlane
from tests.deployment.boosters import Boosters
from tests.deployment.counted import NODES, CountedNode
from tests.deployment.pods import Pod
from tests.deployment.rendering import (
    NAMESPACE,
    OVERLAYS,
    Manifest,
    copy_with_components,
    find,
    kustomize,
)
from tests.deployment.rights import Calls, granted
from tests.deployment.run import OPERATOR, OPTIMIZERS, Cluster, Samples, leads, write_out_of_date
from tests.deployment.workloads import Workloads

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
    """What an overlay did."""

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
        """Apply them."""
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
