"""Mistakes that the definitions of the kinds let pass: a fleet, and an object for each mistake.

All of them stand in one namespace at once. What else people get wrong, such as numbers as text
and misspelt fields, the API server refuses by itself (`tests/mistakes.py`).
"""

from typing import Any

from tests.unit.operator import objects

Manifest = dict[str, Any]

LOAD = {"arrivalRate": 30, "avgLength": 1}
STEP = {"alpha": 20, "beta": 1}
PREFILL = {"decodeParms": STEP, "prefillParms": {"gamma": 1, "delta": 0.1}}


def _accelerator(name: str, **spec: object) -> Manifest:
    fields = {"name": name, "type": "T", "cost": 10, **spec}
    return objects.manifest("Accelerator", fields, name=name.lower())


def _model(name: str, *data: Manifest) -> Manifest:
    return objects.manifest("Model", {"name": name, "data": [*data]}, name=name.lower())


def _class(name: str, *data: Manifest, priority: int = 1) -> Manifest:
    spec = {"name": name, "priority": priority, "data": [*data]}
    return objects.manifest("ServiceClass", spec, name=name.lower())


def _capacity(name: str, *types: str) -> Manifest:
    spec = {"count": [{"type": each, "count": 4} for each in types]}
    return objects.manifest("Capacity", spec, name=name)


def _server(name: str, load: object = LOAD, runs: str = "", **spec: object) -> Manifest:
    current = {"accelerator": runs, "numReplicas": 1 if runs else 0, "load": load}
    fields = {"name": name, "class": "Gold", "model": "granite-13b", "currentAlloc": current}
    return objects.manifest("Server", {**fields, **spec}, name=name)


FLEET = (
    _accelerator("A100"),
    _accelerator("B200", type="U"),
    _capacity("cards", "T"),
    _model("granite-13b", objects.performance("A100", **STEP)),
    _model("prefilled", objects.performance("A100", **PREFILL)),
    _model("unlisted", objects.performance("B200", **STEP)),
    _class(
        *("Gold", {"model": "granite-13b"}, {"model": "unlisted"}),
        {"model": "prefilled", "slo-ttft": 500},
    ),
    objects.optimizer(optimize=False, name="inferno"),
)
"""What is right, in the order in which it is applied."""

MISTAKES: dict[str, Manifest] = {
    "class misspelt": _server("s1", **{"class": "Glod"}),
    "class in other case": _server("s2", **{"class": "gold"}),
    "class unknown": _server("s3", **{"class": "Bronze"}),
    "model misspelt": _server("s4", model="granite-13"),
    "model with an underscore": _server("s5", model="granite_13b"),
    "model unknown": _server("s6", model="whisper"),
    "no target for the model": _server("s7", **{"class": "Strict"}),
    "accelerator in other case": _server("s8", runs="a100"),
    "accelerator unknown": _server("s9", runs="MI300X"),
    "cards that no Capacity lists": _server("s10", model="unlisted", runs="B200"),
    "no workload where it runs": _server(
        "s11", runs="A100", workloads=[{"accelerator": "B200", "name": "d"}]
    ),
    "workloads without data": _server("s12", workloads=[{"accelerator": "B200", "name": "e"}]),
    "kind of a workload in lower case": _server(
        "s13", workloads=[{"accelerator": "A100", "name": "f", "kind": "deployment"}]
    ),
    "no load": _server("s14", currentAlloc={"accelerator": "", "numReplicas": 0}),
    "load without tokens": _server("s15", {"arrivalRate": 30, "avgLength": 0}),
    "variation in percent": _server("s16", {**LOAD, "arrivalCOV": 120}),
    "more cached tokens than tokens": _server(
        "s17", {"arrivalRate": 30, "avgInTokens": 8, "avgOutTokens": 8, "cachedTokens": 9}
    ),
    "no length of prompts": _server("s18", model="prefilled"),
    "data for an unknown accelerator": _model("m1", objects.performance("A10", **STEP)),
    "times in seconds": _model("m3", objects.performance("A100", alpha=0.02, beta=0.001)),
    "times in microseconds": _model("m4", objects.performance("A100", alpha=2e4, beta=1000)),
    "one time in seconds": _model("m5", objects.performance("A100", alpha=0.02, beta=1)),
    "no times": _model("m6", objects.performance("A100", alpha=0, beta=0)),
    "no batch": _model("m7", {**objects.performance("A100", **STEP), "maxBatchSize": 0}),
    "model with the name of another": objects.manifest(
        "Model", {"name": "granite-13b", "data": [objects.performance("A100")]}, name="m8"
    ),
    "priority of 0": _class("Strict", {"model": "granite"}, priority=0),
    "target twice": _class("c1", *[{"model": "granite-13b", "slo-itl": 40}] * 2),
    "target of 0": _class("c2", {"model": "granite-13b", "slo-itl": 0}),
    "percentile alone": _class("c3", {"model": "granite-13b", "slo-ttft-percentile": 99}),
    "target in seconds": _class("c4", {"model": "granite-13b", "slo-itl": 0.04}),
    "target in microseconds": _class("c5", {"model": "granite-13b", "slo-ttw": 5e8}),
    "tokens per millisecond": _class("c6", {"model": "granite-13b", "slo-tps": 0.03}),
    "class with the name of another": objects.manifest(
        "ServiceClass", {"name": "Gold", "priority": 1, "data": []}, name="c7"
    ),
    "no price": _accelerator("a1", cost=0),
    "price in dollars": _accelerator("a2", cost=0.04),
    "price of a month": _accelerator("a3", cost=300000),
    "type that no accelerator has": _capacity("cards2", "T1"),
    "type twice": _capacity("cards3", "T", "T"),
}
