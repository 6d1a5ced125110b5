"""Stand-ins for the controllers of LeaderWorkerSets and of Kthena: pods of the roles of a model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi, V1DeleteOptions
from kubernetes.client.exceptions import ApiException

from inferno_operator.resources.dialects import Dialect
from tests.cluster.background import Ticking, client_of, unless_gone

Manifest = dict[str, Any]

LWS, DISAGGREGATED = "leaderworkerset.sigs.k8s.io", "disaggregatedset.x-k8s.io"
SERVING = "serving"
MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Role:
    """The replicas of one role, which have one or more pods each.

    Attributes
    ----------
    app
        The application of the first pods, for the `Witness`: `SERVER-ACCELERATOR`. That of the
        others is another one, so that only the first pods are replicas that serve.
    api_version, kind, plural, name
        The object with the number of replicas.
    labels
        Those of all pods.
    first
        The label that tells the first pod of a replica, with its value on the first and on others.
    pods
        Pods of a replica.
    status
        What the object says of its pods, if it does.
    """

    app: str
    api_version: str
    kind: str
    plural: str
    name: str
    labels: Mapping[str, str]
    first: tuple[str, str, str | None]
    pods: int = 1
    status: Mapping[str, str] = field(default_factory=dict)
    number: Callable[[Manifest], int] = lambda found: int(found.get("spec", {}).get("replicas", 0))

    def path(self, namespace: str) -> tuple[str, str, str, str, str]:
        """The arguments that name the object."""
        group, _, version = self.api_version.partition("/")
        return group, version, namespace, self.plural, self.name

    def workload(self, accelerator: str, role: str) -> Manifest:
        return {
            "accelerator": accelerator,
            "role": role,
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
        }

    def pod(self, replica: int, place: int) -> Manifest:
        label, first, other = self.first
        server, _, accelerator = self.app.partition("-")
        app, value = (f"{server}workers-{accelerator}", other) if place else (self.app, first)
        own = {"app": app, "of": self.app, "replica": str(replica)}
        own |= {label: value} if value else {}
        return {
            "metadata": {"name": f"{self.app}-{replica}-{place}", "labels": {**self.labels, **own}},
            "spec": {"containers": [{"name": "engine", "image": "example.com/engine"}]},
        }


def of_leader_worker_set(app: str, pods: int) -> Role:
    labels = {f"{LWS}/name": app}
    selector = f"{LWS}/name={app},{LWS}/worker-index=0"
    kind = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets")
    status = {"hpaPodSelector": selector}
    return Role(app, *kind, app, labels, (f"{LWS}/worker-index", "0", "1"), pods, status)


def of_disaggregated_set(app: str, pods: int) -> Role:
    """A role of a DisaggregatedSet, by its scaler, which selects all pods of the role."""
    role = app.partition("-")[0]
    labels = {f"{DISAGGREGATED}/name": "set", f"{DISAGGREGATED}/role": role}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    kind = (f"{DISAGGREGATED}/v1", "DisaggregatedSetRoleScaler", "disaggregatedsetrolescalers")
    first = (f"{LWS}/worker-index", "0", "1")
    return Role(app, *kind, f"set-{role}", labels, first, pods, {"selector": selector})


def of_serving(dialect: Dialect) -> Callable[[str, int], Role]:
    def role_of(app: str, pods: int) -> Role:
        role, kind = app.partition("-")[0], dialect.serving

        def number(found: Manifest) -> int:
            parts = found.get("spec", {}).get("template", {}).get("roles", ())
            return next((part["replicas"] for part in parts if part["name"] == role), 0)

        return Role(
            app,
            kind.api_version,
            kind.kind,
            kind.plural,
            SERVING,
            {dialect.pod_label("name"): SERVING, dialect.pod_label("role"): role},
            (dialect.pod_label("entry"), "true", None),
            pods,
            number=number,
        )

    return role_of


def objects_of(roles: Sequence[Role]) -> Iterator[Manifest]:
    """The objects of roles, each once; the roles of a serving are in one."""
    for role in {role.name: role for role in roles}.values():
        header = {"apiVersion": role.api_version, "kind": role.kind}
        yield {**header, "metadata": {"name": role.name}, "spec": _spec(roles, role)}


def _spec(roles: Sequence[Role], role: Role) -> Manifest:
    if role.name != SERVING:
        return {} if role.kind == "DisaggregatedSetRoleScaler" else {"replicas": 0}
    names = [each.app.partition("-")[0] for each in roles]
    template = {"spec": {"containers": [{"name": "engine", "image": "example.com/engine"}]}}
    parts = [
        {"name": n, "replicas": 0, "entryTemplate": template, "workerReplicas": role.pods - 1}
        for n in names
    ]
    return {"replicas": 1, "schedulerName": "volcano", "template": {"roles": parts}}


class RolePods(Ticking):
    """Creates and deletes the pods of roles; the newest replica goes first, whatever it does."""

    def __init__(self, api: ApiClient, namespace: str, roles: Sequence[Role]) -> None:
        super().__init__()
        self._core: Any = CoreV1Api(api)
        self._objects = CustomObjectsApi(api)
        self._namespace, self._roles = namespace, roles

    def tick(self) -> None:
        """Create and delete what is missing or too much."""
        pods = self._core.list_namespaced_pod(self._namespace).items
        for role in self._roles:
            with unless_gone():
                self._synchronize(
                    role, [p for p in pods if p.metadata.labels.get("of") == role.app]
                )

    def _synchronize(self, role: Role, pods: list[Any]) -> None:
        found = self._found(role)
        wanted = role.number(found)
        self._tell(role, found)
        names = {pod.metadata.name for pod in pods}
        for replica in range(wanted):
            for place in range(role.pods):
                made = role.pod(replica, place)
                if made["metadata"]["name"] not in names:
                    with unless_gone():
                        self._core.create_namespaced_pod(self._namespace, made)
        for pod in pods:
            if (
                int(pod.metadata.labels["replica"]) >= wanted
                and not pod.metadata.deletion_timestamp
            ):
                self._core.delete_namespaced_pod(
                    pod.metadata.name,
                    self._namespace,
                    body=V1DeleteOptions(grace_period_seconds=30),
                )

    def _found(self, role: Role) -> Manifest:
        """The object of a role; empty if it is gone."""
        try:
            found: Any = self._objects.get_namespaced_custom_object(*role.path(self._namespace))
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return {}
        return dict(found)

    def _tell(self, role: Role, found: Manifest) -> None:
        if found and role.status and not found.get("status"):
            self._objects.patch_namespaced_custom_object_status(
                *role.path(self._namespace), {"status": role.status}, _content_type=MERGE
            )


@contextmanager
def running_roles(kubeconfig: Path, namespace: str, roles: Sequence[Role]) -> Iterator[None]:
    """Create and delete the pods of roles until the block ends."""
    with client_of(kubeconfig) as api, RolePods(api, namespace, roles):
        yield
