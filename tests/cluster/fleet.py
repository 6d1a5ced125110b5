"""A Model Booster and a ModelServing controller in miniature, slow enough to be watched."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, CustomObjectsApi

from inferno_operator.resources.dialects import KTHENA, Dialect
from inferno_operator.resources.objects import Kind
from tests.cluster.background import Ticking, client_of
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

MERGE = "application/merge-patch+json"


class Fleet(Ticking):
    """Makes a ModelServing of every backend, and a replica available with every tick.

    Parameters
    ----------
    api, namespace, dialect
        Where it works, and on which kinds.

    Attributes
    ----------
    history
        Available replicas by ModelServing, after every change of one of them.
    makes_servings
        Whether it is the Model Booster's controller too; else somebody else is.
    """

    def __init__(self, api: ApiClient, namespace: str, dialect: Dialect = KTHENA) -> None:
        super().__init__()
        self._booster, self._serving = dialect.booster, dialect.serving
        self._objects = CustomObjectsApi(api)
        self._namespace = namespace
        self.available: dict[str, int] = {}
        self.history: list[Mapping[str, int]] = []
        self.makes_servings = True

    def tick(self) -> None:
        """Make and scale what is missing; one more replica of each comes up."""
        servings = {item["metadata"]["name"]: item for item in self._list(self._serving)}
        boosters = self._list(self._booster) if self.makes_servings else []
        for booster in boosters:
            metadata = booster["metadata"]
            news = booster.get("status", {}).get("observedGeneration") != metadata["generation"]
            spec = booster["spec"]
            for backend in spec.get("backends") or [spec["backend"]]:
                name = f"{metadata['name']}-{backend['name']}"
                if name not in servings:
                    self._create(name, _least(backend))
                elif news:
                    self._scale(servings[name], backend)
            if news:
                self._tell(self._booster, booster, {})
        for name in self.available.keys() - servings.keys():
            del self.available[name]
            self.history.append(dict(self.available))
        for serving in servings.values():
            self._progress(serving)

    def wait_for(self, **wanted: int) -> None:
        """Wait until so many replicas are available of the backends of the booster `m`."""

        def found() -> dict[str, int]:
            return {name: self.available.get(f"m-{name}", 0) for name in wanted}

        wait_until(found, lambda numbers: numbers == wanted, f"the replicas {wanted}")

    def _list(self, kind: Kind) -> list[Manifest]:
        answer: Any = self._objects.list_namespaced_custom_object(
            kind.group, kind.version, self._namespace, kind.plural
        )
        items: list[Manifest] = answer["items"]
        return items

    def _path(self, kind: Kind, name: str) -> tuple[str, str, str, str, str]:
        return kind.group, kind.version, self._namespace, kind.plural, name

    def _create(self, name: str, replicas: int) -> None:
        kind = self._serving
        role: Manifest = {
            "name": "leader",
            "entryTemplate": {"spec": CONTAINERS},
            "workerReplicas": 0,
        }
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": {
                "schedulerName": "volcano",
                "replicas": replicas,
                "template": {"roles": [role]},
            },
        }
        self._objects.create_namespaced_custom_object(
            *self._path(kind, name)[:-1], body, field_manager="booster-controller"
        )

    def _scale(self, serving: Manifest, backend: Manifest) -> None:
        """Take the minimum, or where a policy scales, the nearest number within the bounds."""
        replicas = serving["spec"]["replicas"]
        wanted = _least(backend)
        if "autoscalingPolicy" in backend:
            wanted = min(max(replicas, wanted), backend["maxReplicas"])
        if wanted != replicas:
            self._objects.patch_namespaced_custom_object(
                *self._path(self._serving, serving["metadata"]["name"]),
                {"spec": {"replicas": wanted}},
                field_manager="booster-controller",
                _content_type=MERGE,
            )

    def _progress(self, serving: Manifest) -> None:
        metadata = serving["metadata"]
        name, wanted = metadata["name"], serving["spec"]["replicas"]
        before = self.available.get(name, 0)
        now = min(before + 1, wanted)
        status = serving.get("status", {})
        self.available[name] = now
        if now != before:
            self.history.append(dict(self.available))
        told = status.get("observedGeneration"), status.get("availableReplicas")
        if told != (metadata["generation"], now):
            self._tell(self._serving, serving, {"availableReplicas": now, "replicas": wanted})

    def _tell(self, kind: Kind, manifest: Manifest, status: Mapping[str, int]) -> None:
        metadata = manifest["metadata"]
        self._objects.patch_namespaced_custom_object_status(
            *self._path(kind, metadata["name"]),
            {"status": {**status, "observedGeneration": metadata["generation"]}},
            field_manager="booster-controller",
            _content_type=MERGE,
        )


def _least(backend: Manifest) -> int:
    """The fewest replicas of a backend: its one number, as from v1.0.0 on, or the minimum."""
    least: int = backend["replicas" if "replicas" in backend else "minReplicas"]
    return least


CONTAINERS = {"containers": [{"name": "engine", "image": "example.com/engine"}]}


@contextmanager
def running_fleet(kubeconfig: Path, namespace: str, dialect: Dialect = KTHENA) -> Iterator[Fleet]:
    """A fleet that works until the block ends."""
    with client_of(kubeconfig) as api:
        fleet = Fleet(api, namespace, dialect)
        with fleet:
            yield fleet
