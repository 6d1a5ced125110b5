"""A Server whose decisions go to a ModelBooster, in a namespace of a control plane."""

from typing import Any

from inferno_operator.resources.dialects import KTHENA, Dialect
from tests.cluster.scene import Scene, accelerator, condition, counted
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

Manifest = dict[str, Any]

BOOSTERS, SERVINGS = str(KTHENA.booster), str(KTHENA.serving)


class Actuated:
    """A namespace in which Server `s` refers to ModelBooster `m` with an A100 and an H100."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def apply(
        self,
        *,
        wanted: int,
        **reference: object,
    ) -> None:
        """Ask for so many replicas; there are ten cards of each type."""
        backends = [{"name": name.lower(), "accelerator": name} for name in ("A100", "H100")]
        refers = {"name": "m", "dialect": KTHENA.name, "backends": backends, **reference}
        optimizer = objects.optimizer()
        optimizer["spec"]["guard"] = {"window": 1}
        self.scene.apply(
            accelerator("A100"),
            accelerator("H100", cost=20),
            objects.model("M", [objects.performance("A100"), objects.performance("H100")]),
            objects.service_class(),
            counted(A100=10, H100=10),
            objects.server(
                wanted=wanted,
                spec={"modelBooster": refers, "currentAlloc": objects.running(0, wanted)},
            ),
            optimizer,
        )

    def boost(self, name: str = "m", *backends: Manifest) -> None:
        made = backends or (backend("a100"), backend("h100"))
        self.scene.apply(booster(name, *made))

    def load(self, wanted: int) -> None:
        """Change the load to one that so many replicas carry, and have a new decision."""
        self._set_load(objects.running(0, wanted)["load"])

    def take_load_away(self) -> None:
        """Let nobody ask the server, and have a new decision."""
        self._set_load({"arrivalRate": 0, "avgLength": 1})

    def _set_load(self, load: Manifest) -> None:
        self.scene.patch("server", "s", {"spec": {"currentAlloc": {"load": load}}})
        self.scene.optimize()

    def have_only_h100(self) -> None:
        """Take all other cards away."""
        self.scene.apply(counted(A100=0, H100=10))

    def wait_for(self, reason: str, text: str = "") -> Manifest:
        """Wait until the Server says why it is, or isn't, actuated; returns the condition."""
        return condition(self.scene.wait_for_actuated(reason, text), "Actuated")

    def wait_until_runs(self, accelerator: str, replicas: int) -> Manifest:
        """Wait until the Server tells that so much runs."""

        def runs(server: Manifest) -> bool:
            current = server["spec"]["currentAlloc"]
            return (current["accelerator"], current["numReplicas"]) == (accelerator, replicas)

        return self.scene.control_plane.wait_for("server", "s", runs, self.scene.namespace)

    def bounds(self) -> dict[str, tuple[int, int]]:
        spec = self.scene.get(BOOSTERS, "m")["spec"]
        return {b["name"]: (b["minReplicas"], b["maxReplicas"]) for b in spec["backends"]}

    def wait_for_bounds(self, **wanted: tuple[int, int]) -> None:
        """Wait until the backends of the booster have these bounds."""
        wait_until(self.bounds, lambda found: found == wanted, f"the bounds {wanted}")

    def wait_for_replicas(self, **wanted: int) -> None:
        """Wait until the backends have these replicas, each in the serving of its name."""
        servings = {f"m-{name}": number for name, number in wanted.items()}
        wait_until(self.replicas, lambda found: found == servings, f"the replicas {servings}")

    def replicas(self) -> dict[str, int]:
        return self.scene.replicas(SERVINGS)


def cards(*names: str) -> list[Manifest]:
    """Ten cards of each accelerator, and a model and a class for a server on them."""
    return [
        *map(accelerator, names),
        counted(**dict.fromkeys(names, 10)),
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


def server_with_roles(backend: Manifest) -> Manifest:
    """A Server with prefill and decode in a backend of the ModelBooster `split`."""
    roles = {"Prefill": "A100", "Decode": "H100"}
    backends = [{**backend, "accelerator": a, "role": role} for role, a in roles.items()]
    refers = {"name": "split", "dialect": KTHENA.name, "backends": backends}
    return objects.server(spec={"modelBooster": refers, "currentAlloc": without_load()})


def decide_roles(
    scene: Scene, prefill: int, decode: int, accelerator: str = "A100"
) -> dict[str, int]:
    """Write a decision for both roles, as an optimization does; prefill is on an accelerator."""
    sizes = {"prefill": (accelerator, prefill), "decode": ("H100", decode)}
    decided = {role: {"accelerator": a, "numReplicas": n} for role, (a, n) in sizes.items()}
    whole = {"accelerator": "H100", "numReplicas": prefill + decode, "roles": decided}
    conditions = [objects.condition("Allocated", "Allocated")]
    scene.patch("server", "s", {"spec": {"desiredAlloc": whole}})
    scene.patch("server", "s", {"status": {"conditions": conditions}}, "status")
    return {"prefill": prefill, "decode": decode}
