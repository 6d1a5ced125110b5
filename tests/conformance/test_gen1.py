"""First generation answers: those of the reference optimizer v0.5.0.

A few systems of the project's own are always compared; the full recordings lie beside the
project and are replayed where they are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_system

RECORDINGS = Path(__file__).parents[2].parent / "shared" / "conformance" / "gen1"
FACTS = Path(__file__).parents[1] / "data" / "conformance" / "gen1.json"


@dataclass(frozen=True)
class Recorded:
    """A system, and the allocations that the reference gave its servers."""

    system: System
    allocations: Mapping[str, Allocation]


def recorded_facts() -> dict[str, Recorded]:
    systems = json.loads(FACTS.read_text())["systems"]
    return {facts["title"]: read_facts(facts) for facts in systems}


def read_facts(facts: dict[str, Any]) -> Recorded:
    options = facts["options"]
    system = System(
        accelerators=tuple(
            Accelerator(name, card_type, cost, cards)
            for name, (card_type, cards, cost) in facts["accelerators"].items()
        ),
        profiles=tuple(
            PerformanceProfile(model, name, DecodeParameters(alpha, beta), batch, tokens, count)
            for model, measured in facts["performance"].items()
            for name, (alpha, beta, batch, tokens, count) in measured.items()
        ),
        classes=tuple(
            ServiceClass(name, priority, {model: Target(*slo) for model, slo in targets.items()})
            for name, (priority, targets) in facts["classes"].items()
        ),
        servers=tuple(read_server(name, server) for name, server in facts["servers"].items()),
        capacity=facts["cards"],
        options=Options(
            unlimited=options.get("unlimited", False),
            milp=options.get("milp", False),
            saturation_policy=SaturationPolicy(options.get("policy", "None")),
            delayed_best_effort=options.get("delayed", False),
        ),
    )
    answer = {
        server: Allocation(accelerator, replicas, batch, cost, itl, wait)
        for server, (accelerator, replicas, batch, cost, itl, wait) in facts["answer"].items()
    }
    return Recorded(system, answer)


def read_server(name: str, facts: dict[str, Any]) -> Server:
    accelerator, replicas, cost = facts.get("now", ("", 0, 0.0))
    return Server(
        name,
        facts["class"],
        facts["model"],
        Allocation(accelerator, replicas, cost=cost, load=Load(*facts["load"])),
        keep_accelerator=facts.get("keep", False),
        min_replicas=facts.get("fewest", 0),
        max_batch_size=facts.get("batch", 0),
    )


def read_recording(path: Path) -> Recorded:
    document = json.loads(path.read_text())
    allocations = {
        server: Allocation(
            answer["accelerator"],
            answer["numReplicas"],
            answer["maxBatch"],
            answer["cost"],
            answer["itlAverage"],
            answer["waitAverage"],
        )
        for server, answer in document["response"]["allocations"].items()
    }
    return Recorded(decode_system(document["request"]), allocations)


def assert_same_answer(recorded: Recorded) -> None:
    """Hold our plan against the recorded one: the exact solver may only be cheaper."""
    solution = optimize(recorded.system)
    if recorded.system.options.milp and not recorded.system.options.unlimited:
        compare_cost(recorded, solution)
    else:
        compare_each(recorded, solution)
    if not recorded.system.options.unlimited:
        assert [use for use in solution.capacity if use.used > use.available] == []


def compare_cost(recorded: Recorded, solution: Solution) -> None:
    reference = sum(allocation.cost for allocation in recorded.allocations.values())

    assert set(solution.allocations) == {server.name for server in recorded.system.servers}
    assert solution.cost <= reference * (1 + 1e-6)


def compare_each(recorded: Recorded, solution: Solution) -> None:
    """The same servers with the same numbers.

    A share has other latencies than the reference tells: those of all the replicas asked for.
    """
    shares = {d.server for d in solution.decisions if d.reason is Reason.BEST_EFFORT}

    assert set(solution.allocations) == set(recorded.allocations)
    for server, expected in recorded.allocations.items():
        ours = solution.allocations[server]
        assert (ours.accelerator, ours.replicas) == (expected.accelerator, expected.replicas)
        assert ours.cost == pytest.approx(expected.cost, rel=1e-4, abs=1e-4)
        if server not in shares:
            assert ours.max_batch_size == expected.max_batch_size
            assert ours.itl_ms == pytest.approx(expected.itl_ms, rel=1e-3, abs=1e-3)
            assert ours.wait_ms == pytest.approx(expected.wait_ms, rel=1e-2, abs=0.5)


@pytest.mark.parametrize("recorded", recorded_facts().values(), ids=recorded_facts().keys())
def test_a_known_system_gets_the_known_answer(recorded: Recorded) -> None:
    assert_same_answer(recorded)


@pytest.mark.shared
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no recordings beside the project")
@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_a_recording_is_answered_in_the_same_way(path: Path) -> None:
    assert_same_answer(read_recording(path))


@pytest.mark.shared
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no recordings beside the project")
def test_all_recordings_are_there() -> None:
    assert len(list(RECORDINGS.glob("*.json"))) == 38
