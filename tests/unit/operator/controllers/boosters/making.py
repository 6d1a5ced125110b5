"""Boosters for the tests."""

import json
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.children import convert_backends
from inferno_operator.controllers.boosters.conversion import ConversionError
from inferno_operator.resources.dialects import KTHENA, Dialect
from inferno_operator.resources.objects import Kind
from tests.conftest import ROOT

Manifest = dict[str, Any]

FACTS = json.loads((ROOT / "tests" / "data" / "boosters" / "facts.json").read_text())
METRICS = {"metrics": [{"metricName": "waiting", "targetValue": 10}]}
UID = "uid-of-m"


def worker(type_: str = "server", **more: Any) -> Manifest:  # noqa: ANN401 - fields of a manifest
    return {"type": type_, "image": "engine:1", **more}


def backend(name: str = "a", replicas: int = 1, **more: Any) -> Manifest:  # noqa: ANN401 - fields of a manifest
    return {
        "name": name,
        "type": "vLLM",
        "modelURI": "hf://example/model",
        "minReplicas": replicas,
        "maxReplicas": replicas,
        "workers": [worker()],
        **more,
    }


def disaggregated(name: str = "a", **more: Any) -> Manifest:  # noqa: ANN401 - fields of a manifest
    workers = [worker("prefill"), worker("decode")]
    return backend(name, **{"type": "vLLMDisaggregated", "workers": workers, **more})


def manifest(*backends: Manifest, dialect: Dialect = KTHENA, **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a manifest
    return {
        "apiVersion": dialect.booster.api_version,
        "kind": dialect.booster.kind,
        "metadata": {"name": "m", "namespace": "ns", "uid": UID, "generation": 3},
        "spec": {"backends": list(backends or [backend()]), **spec},
    }


def booster(*backends: Manifest, dialect: Dialect = KTHENA, **spec: Any) -> Booster:  # noqa: ANN401 - fields of a manifest
    return read_booster(manifest(*backends, dialect=dialect, **spec), dialect)


def later(one: Manifest, **spec: Any) -> Booster:  # noqa: ANN401 - fields of a manifest
    """A booster of a later release, with one backend."""
    return read_booster({**manifest(), "spec": {"backend": one, **spec}}, KTHENA)


def latest(**more: Any) -> Booster:  # noqa: ANN401 - fields of a manifest
    """A booster of Kthena v1.0.0."""
    fields = backend(**more)
    del fields["minReplicas"], fields["maxReplicas"]
    return later({**fields, "replicas": 2})


def asking(wish: str, *backends: Manifest, dialect: Dialect = KTHENA) -> Booster:
    """A booster with an annotation of ours."""
    asked = manifest(*backends, dialect=dialect)
    asked["metadata"]["annotations"] = {f"inferno.platform.ai/{wish}": "true"}
    return read_booster(asked, dialect)


def convert(booster: Booster, dialect: Dialect) -> tuple[Manifest, ...]:
    """The children of a booster of which all backends can be converted."""
    converted = convert_backends(booster, booster.spec.backends, dialect)
    for problem in converted.problems:
        raise ConversionError(problem.path, problem.text)
    return converted.children


def made(asked: Booster, dialect: Dialect = KTHENA) -> dict[tuple[str, str], Manifest]:
    """Its children by kind and name."""
    return {(c["kind"], c["metadata"]["name"]): c for c in convert(asked, dialect)}


def child(asked: Booster, kind: Kind, name: str, dialect: Dialect = KTHENA) -> Manifest:
    return made(asked, dialect)[kind.kind, name]


def pods(serving: Manifest, role: int = 0) -> Manifest:
    """The spec of a role's first pods."""
    spec: Manifest = serving["spec"]["template"]["roles"][role]["entryTemplate"]["spec"]
    return spec


def engine(serving: Manifest, role: int = 0) -> Manifest:
    container: Manifest = pods(serving, role)["containers"][1]
    return container


def there(child: Manifest, *, manager: str = "inferno-model-booster", **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a manifest
    """A child as the API server has it, after a write by a manager and with other fields."""
    fields: Manifest = {"f:replicas": {}}
    for part in ("scalingConfiguration", "homogeneousTarget", "optimizerConfiguration"):
        if part in child["spec"]:
            fields[f"f:{part}"] = {"f:minReplicas": {}, "f:maxReplicas": {}, "f:params": {}}
    owner = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": fields}}
    metadata = {
        **child["metadata"],
        "uid": f"uid-{child['metadata']['name']}",
        "resourceVersion": "7",
        "managedFields": [owner],
    }
    return {**child, "metadata": metadata, "spec": {**child["spec"], **spec}}
