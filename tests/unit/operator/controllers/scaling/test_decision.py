"""The decision for a Server is read from two fields that are written one after the other."""

from typing import Any

import pytest

from inferno_operator.controllers.scaling.decision import read_decision
from inferno_operator.resources import Server
from tests.unit.operator import objects

Manifest = dict[str, Any]


def read(manifest: Manifest) -> Server:
    """The Server as the operator reads it."""
    found = objects.observed_server(manifest).resource
    assert found
    return found


def server(allocated: Manifest, desired: Manifest, generation: int = 3) -> Manifest:
    manifest = objects.server(spec={"desiredAlloc": desired}, generation=generation)
    time = "2026-01-01T00:00:00Z"
    told = {"type": "Allocated", "lastTransitionTime": time, "message": "", **allocated}
    return {**manifest, "status": {"conditions": [told]}}


NOTHING = {"accelerator": "", "numReplicas": 0}
SOME = {"accelerator": "A", "numReplicas": 2}


@pytest.mark.parametrize(
    ("status", "reason", "observed", "desired", "replicas", "fresh"),
    [
        ("True", "Allocated", 3, SOME, {"A": 2}, True),
        ("True", "Allocated", 2, SOME, {"A": 2}, True),
        ("True", "Allocated", 3, NOTHING, {}, True),
        ("True", "Allocated", 2, NOTHING, None, False),
        ("False", "NoCapacity", 2, NOTHING, {}, True),
        ("False", "NoCapacity", 2, SOME, None, False),
        ("False", "UnknownModel", 3, NOTHING, None, True),
        ("False", "InvalidSpec", 2, NOTHING, None, True),
    ],
)
def test_a_decision_counts_when_what_is_told_of_it_belongs_to_it(
    status: str,
    reason: str,
    observed: int,
    desired: Manifest,
    replicas: dict[str, int] | None,
    *,
    fresh: bool,
) -> None:
    told = {"status": status, "reason": reason, "observedGeneration": observed}

    decision = read_decision(read(server(told, desired)))

    assert (decision.replicas, decision.is_written) == (replicas, fresh)


def test_a_server_that_was_never_optimized_is_held() -> None:
    decision = read_decision(read(objects.server()))

    assert decision.replicas is None
    assert "nothing was decided yet" in decision.why


def test_the_parts_of_a_mix_are_what_is_wanted() -> None:
    mix = [{"accelerator": "A", "numReplicas": 2}, {"accelerator": "B", "numReplicas": 1}]
    desired = {"accelerator": "A", "numReplicas": 3, "mix": mix}
    told = {"status": "True", "reason": "Allocated", "observedGeneration": 3}

    assert read_decision(read(server(told, desired))).replicas == {"A": 2, "B": 1}
