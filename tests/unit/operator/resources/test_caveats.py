"""What is said of numbers that are valid and hardly meant."""

import pytest

from inferno_operator.resources import parse
from inferno_operator.resources.caveats import caveats
from tests.controlplane.api import Manifest

FREE = "cost: 0 counts as free of charge; give the price [cents/hour]"
ALONE = "0 counts as a largest batch of 1; give maxBatchSize and its atTokens"
TOKENS = "currentAlloc.load.arrivalRate: 60 without tokens counts as no load; give avgOutTokens"


def said(kind: str, spec: Manifest) -> list[str]:
    manifest = {
        "apiVersion": "inferno.platform.ai/v1alpha1",
        "kind": kind,
        "metadata": {"name": "o"},
        "spec": spec if kind == "Capacity" else {"name": "o", **spec},
    }
    return [str(found).partition(": ")[2] for found in caveats(parse(manifest))]


A100 = {"type": "A100", "cost": 40}
DATA = {"acc": "A", "accCount": 1, "alpha": 20, "beta": 1, "maxBatchSize": 8, "atTokens": 64}
SERVER = {"class": "C", "model": "m"}
RUNS = {"accelerator": "A", "numReplicas": 1}
H100, H200 = {"type": "H100", "count": 8}, {"type": "H200", "count": 4}
TWICE = "is named 2 times, and the last one counts"
NO_KIND = "workloads: no kind is named"


def data(*changes: Manifest) -> Manifest:
    """Performance data of a Model, with changes."""
    return {"data": [{**DATA, **change} for change in changes]}


def targets(*items: Manifest, priority: int = 1) -> Manifest:
    return {"priority": priority, "data": [{"model": "m", **item} for item in items]}


def load(**numbers: float) -> Manifest:
    return {**SERVER, "currentAlloc": {**RUNS, "load": {"arrivalRate": 60, **numbers}}}


def runs(kind: str) -> Manifest:
    workloads = [{"accelerator": name, "name": name, "kind": kind} for name in ("a", "b")]
    return {**SERVER, "workloads": workloads}


@pytest.mark.parametrize(
    ("kind", "spec", "told"),
    [
        ("Accelerator", A100, []),
        ("Accelerator", {**A100, "cost": 0}, [FREE]),
        ("Accelerator", {**A100, "memSize": 0, "memBW": 0}, []),
        ("Accelerator", {**A100, "memSize": -1}, ["memSize: -1 is negative"]),
        ("Accelerator", {**A100, "memBW": -2}, ["memBW: -2 is negative"]),
        ("Model", data({}, {"acc": "B"}), []),
        ("Model", data({}, {"alpha": 4}), [f"acc: 'A' {TWICE}"]),
        ("Model", data({"accCount": 0}), ["accCount: 0 counts as 1"]),
        ("Model", data({"accCount": -1}), ["accCount: -1 counts as 1"]),
        ("Model", data({"maxBatchSize": 0}), [f"maxBatchSize: {ALONE}"]),
        ("Model", data({"atTokens": 0}), [f"atTokens: {ALONE}"]),
        ("ServiceClass", targets(), []),
        ("ServiceClass", targets({"slo-itl": 20}, {"model": "n"}, {}), [f"model: 'm' {TWICE}"]),
        ("ServiceClass", targets(priority=0), ["priority: 0 counts as 100"]),
        (
            "ServiceClass",
            targets({"slo-itl": 30, "slo-ttft-percentile": 95}),
            ["slo-ttft-percentile: has no effect without slo-ttft"],
        ),
        ("Server", runs("Deployment"), []),
        ("Server", runs("deployment"), [f"{NO_KIND} 'deployment'; did you mean Deployment?"]),
        ("Server", runs("xyz"), [f"{NO_KIND} 'xyz'; kinds begin with a capital letter"]),
        ("Server", load(avgLength=200), []),
        ("Server", load(avgInTokens=200, avgOutTokens=10), []),
        ("Server", load(arrivalRate=0, avgLength=0), []),
        ("Server", load(avgLength=0), [TOKENS]),
        ("Server", load(avgInTokens=200, avgOutTokens=0), [TOKENS]),
        *(
            ("Server", {**SERVER, "currentAlloc": {**RUNS, name: value}}, told)
            for name in ("itlAverage", "waitAverage", "ttftAverage")
            for value, told in ((0, []), (-5, [f"currentAlloc.{name}: -5 is negative"]))
        ),
        ("Capacity", {"count": [H100, H200]}, []),
        ("Capacity", {"count": [H100, H200, H100]}, ["type: 'H100' is named 2 times, and its"]),
    ],
)
def test_numbers_that_are_valid_and_hardly_meant(
    kind: str, spec: Manifest, told: list[str]
) -> None:
    found = said(kind, spec)

    assert len(found) == len(told)
    assert all(line.startswith(words) for line, words in zip(found, told, strict=True))
