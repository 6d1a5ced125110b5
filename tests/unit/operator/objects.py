"""Manifests for the tests, made so that a person can foretell every decision.

One replica of model `M` on accelerator `A` (one card of type `T`, 10 cents/hour) serves 60
requests/min of one token; class `C` sets no limits.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from inferno_operator.resources import API_VERSION, RESOURCES, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation, observe, of_kind
from tests.fakes import FakeCluster

Manifest = dict[str, Any]
T = TypeVar("T")

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, 30, 0, tzinfo=UTC)


def is_cleared(desired: Manifest) -> bool:
    """Whether a desired allocation says, with all that a decision fills in, that there is none."""
    load = dict.fromkeys(("arrivalRate", "avgLength", "arrivalCOV", "serviceCOV"), 0)
    numbers = ("numReplicas", "maxBatch", "cost", "itlAverage", "waitAverage")
    nothing = {"accelerator": "", **dict.fromkeys(numbers, 0), "load": load}
    rest = [value for name, value in desired.items() if name not in nothing]
    return desired.items() >= nothing.items() and not any(rest)


def manifest(kind: str, spec: Manifest | None, **metadata: object) -> Manifest:
    """An object as the API server has it; without a spec if that is None."""
    header = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}
    return header if spec is None else {**header, "spec": spec}


def born(minute: int) -> str:
    """A creation time, so many minutes after another."""
    return f"2026-01-01T00:{minute:02}:00Z"


def accelerator(name: str = "A", /, *, cost: float = 10, **metadata: object) -> Manifest:
    """One card of type T."""
    spec = {"name": name, "type": "T", "cost": cost}
    return manifest("Accelerator", spec, **{"name": name.lower(), **metadata})


def performance(acc: str = "A", **fields: object) -> Manifest:
    """A replica that serves 60 requests/min of one token: each takes 999 ms, with 0.1 % to spare.

    `fields` replace alpha and beta.
    """
    speed = fields or {"alpha": 999, "beta": 0}
    return {"acc": acc, "accCount": 1, "maxBatchSize": 1, "atTokens": 1, **speed}


def model(
    name: str = "M", /, data: Iterable[Manifest] | None = None, **metadata: object
) -> Manifest:
    """A model that runs on accelerator A, unless told otherwise."""
    records = [performance()] if data is None else list(data)
    return manifest("Model", {"name": name, "data": records}, **{"name": name.lower(), **metadata})


def service_class(name: str = "C", /, *, priority: int = 1, **metadata: object) -> Manifest:
    """A class that asks for nothing in particular of model M."""
    spec = {"name": name, "priority": priority, "data": [{"model": "M"}]}
    return manifest("ServiceClass", spec, **{"name": name.lower(), **metadata})


def condition(
    name: str, reason: str, *, status: str = "True", message: str = "", **fields: object
) -> Manifest:
    """A condition that changed when the year began."""
    said = {"type": name, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": born(0), **fields}


def running(replicas: int, wanted: int, accelerator: str = "A") -> Manifest:
    """A current allocation, with a load that takes so many replicas as are wanted."""
    return {
        "accelerator": accelerator if replicas else "",
        "numReplicas": replicas,
        "cost": 10 * replicas,
        "load": {"arrivalRate": 60 * wanted - 30, "avgLength": 1},
    }


def server(
    name: str = "S",
    /,
    wanted: int = 2,
    spec: Manifest | None = None,
    **metadata: object,
) -> Manifest:
    """A server under a load that takes so many replicas; `spec` adds or replaces fields."""
    fields = {"name": name, "class": "C", "model": "M", "currentAlloc": running(0, wanted)}
    return manifest("Server", {**fields, **(spec or {})}, **{"name": name.lower(), **metadata})


def capacity(cards: int, name: str = "cards", **metadata: object) -> Manifest:
    """So many cards of type T."""
    return manifest("Capacity", {"count": [{"type": "T", "count": cards}]}, name=name, **metadata)


def system(cards: int) -> tuple[Manifest, ...]:
    """What servers need besides: accelerator A, model M, class C, and so many cards."""
    return accelerator(), model(), service_class(), capacity(cards)


def optimizer(
    name: str = "inferno",
    *,
    optimize: bool = True,
    parameters: Manifest | None = None,
    **metadata: object,
) -> Manifest:
    """A request to optimize greedily; `parameters` adds or replaces some."""
    flags = dict.fromkeys(("unlimited", "heterogeneous", "milpSolver", "useCplex"), False)
    spec = {"optimize": optimize, "data": {"optimizer": {**flags, **(parameters or {})}}}
    return manifest("Optimizer", spec, name=name, **metadata)


def guarded(guard: Manifest) -> Manifest:
    """An Optimizer with a guard that nobody asks to optimize."""
    made = optimizer(optimize=False)
    return {**made, "spec": {**made["spec"], "guard": guard}}


def observed(manifest: Manifest) -> Observation:
    """The object as the operator reads it, in a namespace, with a uid and a generation."""
    defaults = {"namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"}
    metadata = {**defaults, **manifest["metadata"]}
    return observe(kind_of(manifest), {**manifest, "metadata": metadata})


def observed_server(manifest: Manifest) -> Observation[Server]:
    """A Server as the operator reads it."""
    return next(of_kind([observed(manifest)], Server))


def kind_of(manifest: Manifest) -> type[Resource]:
    """The class of the object's kind."""
    return next(kind for kind in RESOURCES if kind.kind == manifest["kind"])


def sleeper() -> Manifest:
    """A Server without replicas, for which no request is seen."""
    measure = {
        "source": "vLLM",
        "labels": {"model_name": "m"},
        "demand": {"source": "EPP", "labels": {"model_name": "m"}},
    }
    idle = {"accelerator": "", "numReplicas": 0, "load": {"arrivalRate": 0, "avgLength": 1}}
    return server("S", spec={"measure": measure, "currentAlloc": idle, "desiredAlloc": idle})


def see_requests(cluster: FakeCluster, requests: float) -> None:
    """Let so many requests be seen for the Server that sleeps."""
    stored = cluster.objects["Server", Key("default", "s")]
    measured = {
        "time": NOW.isoformat(),
        "quality": "Idle",
        "demand": {"requests": requests},
    }
    stored.setdefault("status", {})["measured"] = measured


def autoscaler(name: str, workload: str, **metadata: object) -> Manifest:
    """An autoscaler of a Deployment."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, **metadata},
        "spec": {"scaleTargetRef": target},
    }


def require(value: T | None) -> T:
    """What is there; a test that finds nothing ends."""
    assert value is not None
    return value
