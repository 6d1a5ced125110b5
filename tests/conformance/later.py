"""Answers of the references of generations 2 and 3: how they are kept, read and compared."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_system, encode_solution

SHARED = Path(__file__).parents[2].parent / "shared" / "conformance"
DATA = Path(__file__).parents[1] / "data" / "conformance"

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Recorded:
    """A system with one server, and what the reference gave it; nothing is None."""

    system: System
    answer: Answer | None


def read_recordings(generation: str) -> list[Recorded]:
    """All recordings of a generation; none where there are none beside the project."""
    path = SHARED / generation / "cases.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        Recorded(decode_system(case["request"]), case["response"].get("allocations", {}).get("s"))
        for case in map(json.loads, lines)
    ]


def read_facts(generation: str, make: Callable[..., PerformanceParameters]) -> list[Recorded]:
    """The few that belong to the project."""
    servers = json.loads((DATA / f"{generation}.json").read_text())["servers"]
    return [_read(facts, make(*facts["parameters"])) for facts in servers]


def _read(facts: Mapping[str, Any], parameters: PerformanceParameters) -> Recorded:
    multiplicity, cost = facts["accelerator"]
    itl, ttft, tps = facts["target"]
    floor, batch, queue = facts["server"]
    rate, inputs, outputs = facts["load"]
    load = Load(rate, input_tokens=inputs, output_tokens=outputs)
    server = Server(
        name="s",
        service_class="c",
        model="m",
        current=Allocation(load=load),
        min_replicas=floor,
        max_batch_size=batch,
        max_queue_size=queue,
    )
    system = System(
        accelerators=(Accelerator("P1", "P", cost, multiplicity),),
        profiles=(PerformanceProfile("m", "P1", parameters, *facts["profile"]),),
        classes=(ServiceClass("c", 1, {"m": Target(itl, 0, tps, ttft)}),),
        servers=(server,),
        options=Options(unlimited=True),
    )
    names = ("numReplicas", "maxBatch", "cost", "itlAverage", "ttftAverage")
    answer = facts["answer"] and {
        "accelerator": "P1",
        **dict(zip(names, facts["answer"], strict=True)),
    }
    return Recorded(system, answer)


def assert_same_answer(recorded: Recorded) -> None:
    """Hold our answer, as it goes over the wire, against the recorded one."""
    document = encode_solution(optimize(recorded.system))
    ours, expected = document["allocations"].get("s"), recorded.answer
    if expected is None:
        assert ours is None
        assert document["unserved"]["s"]["reason"] == "UnattainableSLO"
        return

    exact = ("accelerator", "numReplicas", "maxBatch")
    assert {key: ours[key] for key in exact} == {key: expected[key] for key in exact}
    assert ours["cost"] == pytest.approx(expected["cost"], rel=1e-4, abs=1e-4)
    assert ours["itlAverage"] == pytest.approx(expected["itlAverage"], rel=1e-3, abs=0.5)
    assert ours["ttftAverage"] == pytest.approx(expected["ttftAverage"], rel=1e-3, abs=0.5)
