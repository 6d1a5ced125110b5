"""Boosters and their children for these tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferno_operator.boosters.booster import Booster, read_booster
from inferno_operator.boosters.convert import convert
from inferno_operator.boosters.dialects import KTHENA, Dialect
from inferno_operator.boosters.keeping import FIELD_MANAGER

Manifest = dict[str, Any]

METRICS = {"metrics": [{"metricName": "waiting", "targetValue": 10}]}
LABEL = "workload.serving.volcano.sh/"


def worker(**fields: object) -> Manifest:
    return {"type": "server", "image": "vllm:1", **fields}


def backend(name: str = "a", **fields: object) -> Manifest:
    return {
        "name": name,
        "type": "vLLM",
        "modelURI": "s3://models/m",
        "cacheURI": "hostpath:///weights",
        "minReplicas": 1,
        "maxReplicas": 1,
        "workers": [worker()],
        **fields,
    }


def disaggregated(prefill: Manifest | None = None, **fields: object) -> Manifest:
    workers = [worker(type="prefill", **(prefill or {})), worker(type="decode")]
    return backend("pd", **{"type": "vLLMDisaggregated", "workers": workers, **fields})


def manifest(*backends: Manifest, dialect: Dialect = KTHENA, **spec: object) -> Manifest:
    return {
        "apiVersion": dialect.booster.api_version,
        "kind": dialect.booster.kind,
        "metadata": {"name": "m", "namespace": "ns", "uid": "uid-m", "generation": 3},
        "spec": {"backends": list(backends or [backend()]), **spec},
    }


def booster(*backends: Manifest, dialect: Dialect = KTHENA, **spec: object) -> Booster:
    return read_booster(manifest(*backends, dialect=dialect, **spec), dialect)


def asking(wish: str, *backends: Manifest) -> Booster:
    """A booster with an annotation of ours."""
    asked = manifest(*backends)
    asked["metadata"]["annotations"] = {f"inferno.platform.ai/{wish}": "true"}
    return read_booster(asked, KTHENA)


def children(wanted: Booster, dialect: Dialect = KTHENA, *, strict: bool = False) -> list[Manifest]:
    return list(convert(wanted, dialect, strict=strict))


def child(made: Sequence[Manifest], kind: str, name: str | None = None) -> Manifest:
    """The only child of a kind, or the one of a name."""
    (found,) = (c for c in made if c["kind"] == kind and name in (None, c["metadata"]["name"]))
    return found


def pod(serving: Manifest, role: int = 0, template: str = "entryTemplate") -> Manifest:
    spec: Manifest = serving["spec"]["template"]["roles"][role][template]["spec"]
    return spec


def container(serving: Manifest, name: str, role: int = 0) -> Manifest:
    containers: list[Manifest] = pod(serving, role)["containers"]
    (found,) = (each for each in containers if each["name"] == name)
    return found


def stored(made: Manifest, *, replicas_by: str = FIELD_MANAGER, **spec: object) -> Manifest:
    """The child as the API server has it, with fields of the spec that others changed."""
    managed = {"manager": replicas_by, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    metadata = {
        **made["metadata"],
        "uid": f"uid-{made['metadata']['name']}",
        "resourceVersion": "7",
        "generation": 1,
        "managedFields": [managed],
    }
    return {**made, "metadata": metadata, "spec": {**made["spec"], **spec}}


def stored_all(made: Sequence[Manifest]) -> list[Manifest]:
    return [stored(item) for item in made]


def available(serving: Manifest, **status: object) -> Manifest:
    """The serving with what its controller says when all is well."""
    conditions = [{"type": "Available", "status": "True"}]
    return {**serving, "status": {"replicas": 1, "conditions": conditions, **status}}


def conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
