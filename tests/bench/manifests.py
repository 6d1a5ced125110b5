"""A fleet as custom resources."""

from collections.abc import Iterator

from tests.generate import JsonObject

API_VERSION = "inferno.platform.ai/v1alpha1"
OPTIMIZER = "bench"

PLURALS = {
    "Accelerator": "accelerators",
    "Capacity": "capacities",
    "Model": "models",
    "Optimizer": "optimizers",
    "Server": "servers",
    "ServiceClass": "serviceclasses",
}


def manifests(document: JsonObject) -> Iterator[JsonObject]:
    """The objects that say the same as a document of SystemData, and an Optimizer."""
    system = document["system"]
    for accelerator in system["acceleratorData"]["accelerators"]:
        yield _manifest("Accelerator", accelerator["name"], accelerator)
    for model, data in _by_model(system["modelData"]["models"]).items():
        yield _manifest("Model", model, {"name": model, "data": data})
    for service_class in system["serviceClassData"]["serviceClasses"]:
        spec = {key: value for key, value in service_class.items() if key != "modelTargets"}
        spec["data"] = service_class["modelTargets"]
        yield _manifest("ServiceClass", service_class["name"], spec)
    yield _manifest("Capacity", OPTIMIZER, {"count": system["capacityData"]["count"]})
    for server in system["serverData"]["servers"]:
        yield _manifest("Server", server["name"], server)
    options = dict.fromkeys(("unlimited", "heterogeneous", "milpSolver", "useCplex"), False)
    chosen = {"optimizer": options | system["optimizerData"]["optimizer"]}
    yield _manifest("Optimizer", OPTIMIZER, {"optimize": False, "data": chosen})


def _by_model(profiles: list[JsonObject]) -> dict[str, list[JsonObject]]:
    by_model: dict[str, list[JsonObject]] = {}
    for profile in profiles:
        data = {key: value for key, value in profile.items() if key != "name"}
        by_model.setdefault(profile["name"], []).append(data)
    return by_model


def _manifest(kind: str, name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name.lower()}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
