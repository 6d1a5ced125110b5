"""A Server whose decisions go to a ModelBooster, in a namespace of a control plane."""

from typing import Any

from inferno_operator.resources.dialects import KTHENA, Dialect
from tests.cluster.scene import Scene, condition
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

Manifest = dict[str, Any]

BOOSTERS = "modelboosters.workload.serving.volcano.sh"
SERVINGS = "modelservings.workload.serving.volcano.sh"


class Actuated:
    """A namespace in which Server `s` refers to ModelBooster `m` with an A100 and an H100."""

    def __init__(self, scene: Scene, dialect: Dialect = KTHENA) -> None:
        self.scene = scene
        self.dialect = dialect

    def apply(
        self,
        *,
        wanted: int,
        a100: int = 10,
        h100: int = 10,
        parameters: Manifest | None = None,
        **reference: object,
    ) -> None:
        """Ask for so many replicas; there are so many cards."""
        backends = [{"name": name.lower(), "accelerator": name} for name in ("A100", "H100")]
        dialect = self.dialect.name
        refers = {"name": "m", "dialect": dialect, "backends": backends, **reference}
        optimizer = objects.optimizer(optimize=True, name="inferno", parameters=parameters)
        optimizer["spec"]["guard"] = {"window": 1}
        counts = [{"type": "A100", "count": a100}, {"type": "H100", "count": h100}]
        self.scene.apply(
            accelerator("A100", cost=10),
            accelerator("H100", cost=20),
            objects.model("M", [objects.performance("A100"), objects.performance("H100")]),
            objects.service_class(),
            objects.manifest("Capacity", {"count": counts}, name="cards"),
            objects.server(
                wanted=wanted,
                spec={"modelBooster": refers, "currentAlloc": objects.running(0, wanted)},
            ),
            optimizer,
        )

    def boost(self, name: str = "m", *backends: Manifest) -> None:
        made = backends or (backend("a100"), backend("h100"))
        self.scene.apply(booster(name, *made, dialect=self.dialect))

    def ask(self) -> None:
        self.scene.request("inferno")
        self.scene.wait_until_done("inferno")

    def load(self, wanted: int) -> None:
        """Change the load to one that so many replicas carry, and have a new decision."""
        self._set_load(objects.running(0, wanted)["load"])

    def take_load_away(self) -> None:
        """Let nobody ask the server, and have a new decision."""
        self._set_load({"arrivalRate": 0, "avgLength": 1})

    def _set_load(self, load: Manifest) -> None:
        self.patch("server", "s", {"spec": {"currentAlloc": {"load": load}}})
        self.ask()

    def have_only_h100(self) -> None:
        """Take all other cards away."""
        counts = [{"type": "A100", "count": 0}, {"type": "H100", "count": 10}]
        self.patch("capacity", "cards", {"spec": {"count": counts}})

    def patch(self, resource: str, name: str, patch: Manifest) -> Manifest:
        return self.scene.control_plane.patch(resource, name, patch, self.scene.namespace)

    def get(self, resource: str, name: str) -> Manifest:
        return self.scene.control_plane.get(resource, name, self.scene.namespace)

    def wait_for(self, reason: str, text: str = "") -> Manifest:
        """Wait until the Server says why it is, or isn't, actuated; returns the condition."""

        def told(server: Manifest) -> bool:
            found = condition(server, "Actuated")
            return found.get("reason") == reason and text in found["message"]

        server = self.scene.control_plane.wait_for("server", "s", told, self.scene.namespace)
        return condition(server, "Actuated")

    def wait_until_runs(self, accelerator: str, replicas: int) -> Manifest:
        """Wait until the Server tells that so much runs."""

        def runs(server: Manifest) -> bool:
            current = server["spec"]["currentAlloc"]
            return (current["accelerator"], current["numReplicas"]) == (accelerator, replicas)

        return self.scene.control_plane.wait_for("server", "s", runs, self.scene.namespace)

    def bounds(self) -> dict[str, tuple[int, int]]:
        spec = self.get(str(self.dialect.booster), "m")["spec"]
        return {b["name"]: (b["minReplicas"], b["maxReplicas"]) for b in spec["backends"]}

    def wait_for_bounds(self, **wanted: tuple[int, int]) -> None:
        """Wait until the backends of the booster have these bounds."""
        wait_until(self.bounds, lambda found: found == wanted, f"the bounds {wanted}")

    def wait_for_replicas(self, **wanted: int) -> None:
        """Wait until the backends have these replicas, each in the serving of its name."""
        servings = {f"m-{name}": number for name, number in wanted.items()}
        wait_until(self.replicas, lambda found: found == servings, f"the replicas {servings}")

    def replicas(self) -> dict[str, int]:
        items = self.scene.control_plane.items(str(self.dialect.serving), self.scene.namespace)
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in items}


def accelerator(name: str, cost: float) -> Manifest:
    spec = {"name": name, "type": name, "cost": cost}
    return objects.manifest("Accelerator", spec, name=name.lower())


def cards(*names: str, count: int = 10) -> list[Manifest]:
    """So many cards of each accelerator, and a model and a class for a server on them."""
    counts = [{"type": name, "count": count} for name in names]
    return [
        *(accelerator(name, cost=10) for name in names),
        objects.manifest("Capacity", {"count": counts}, name="cards"),
        objects.service_class(),
        objects.model(),
    ]


def without_load() -> Manifest:
    """What runs of a server that nobody asks."""
    return {**objects.running(0, 1), "load": {"arrivalRate": 0, "avgLength": 1}}


def backend(name: str, least: int = 0, most: int = 1, **fields: object) -> Manifest:
    worker = {"type": "server", "image": "example.com/engine", "replicas": 1, "pods": 1}
    return {
        "name": name,
        "type": "vLLM",
        "modelURI": "hf://example/model",
        "minReplicas": least,
        "maxReplicas": most,
        "workers": [worker],
        **fields,
    }


def booster(name: str, *backends: Manifest, dialect: Dialect = KTHENA, **spec: object) -> Manifest:
    return {
        "apiVersion": dialect.booster.api_version,
        "kind": dialect.booster.kind,
        "metadata": {"name": name},
        "spec": {"backends": list(backends), **spec},
    }


def server_with_roles(backend: Manifest, dialect: Dialect = KTHENA) -> Manifest:
    """A Server with prefill and decode in a backend of the ModelBooster `split`."""
    roles = {"Prefill": "A100", "Decode": "H100"}
    backends = [{**backend, "accelerator": a, "role": role} for role, a in roles.items()]
    refers = {"name": "split", "dialect": dialect.name, "backends": backends}
    return objects.server(spec={"modelBooster": refers, "currentAlloc": without_load()})


def decide_roles(
    scene: Scene, prefill: int, decode: int, accelerator: str = "A100"
) -> dict[str, int]:
    """Write a decision for both roles, as an optimization does; prefill is on an accelerator."""
    sizes = {"prefill": (accelerator, prefill), "decode": ("H100", decode)}
    decided = {role: {"accelerator": a, "numReplicas": n} for role, (a, n) in sizes.items()}
    whole = {"accelerator": "H100", "numReplicas": prefill + decode, "roles": decided}
    plane, conditions = scene.control_plane, [objects.condition("Allocated", "Allocated")]
    plane.patch("server", "s", {"spec": {"desiredAlloc": whole}}, scene.namespace)
    plane.patch("server", "s", {"status": {"conditions": conditions}}, scene.namespace, "status")
    return {"prefill": prefill, "decode": decode}
