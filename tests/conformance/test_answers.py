"""Recorded answers of the originals as the operator reads them: whom they leave out is believed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.wire.codec import decode_solution, decode_system
from inferno_optimizer.wire.plausibility import Sizes, find_doubts, mark_best_effort
from inferno_optimizer.wire.questions import screen
from tests.conformance.later import SHARED

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the project"),
]

JsonObject = dict[str, Any]


def recorded_exchanges() -> Iterator[tuple[str, JsonObject, JsonObject]]:
    """Name, request and answer of every optimizeOne that was answered."""
    for path in sorted(SHARED.glob("gen1/*.json")):
        recording = json.loads(path.read_text())
        yield path.stem, recording["request"], recording["response"]
    for path in sorted(SHARED.glob("gen[23]/cases.jsonl")):
        for number, case in enumerate(read_lines(path)):
            if case["status"] == 200:
                yield f"{path.parent.name}-{number}", case["request"], case["response"]
    for path in sorted(SHARED.glob("rest/*.jsonl")):
        for step in read_lines(path)[1:]:
            if step["path"] == "/optimizeOne" and step["status"] == 200 and "body" in step:
                yield f"{path.stem}-{step['step']}", step["body"], answer_of(step)


def read_lines(path: Path) -> list[JsonObject]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def answer_of(step: JsonObject) -> JsonObject:
    """The answer, or one of several that the original gave by chance."""
    if "alternatives" not in step:
        answer: JsonObject = step["response"]
        return answer
    return {"allocations": {server: some[0] for server, some in step["alternatives"].items()}}


EXCHANGES = {name: exchange for name, *exchange in recorded_exchanges()}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_recorded_answer_is_taken(name: str) -> None:
    request, answer = EXCHANGES[name]
    screening = screen(decode_system(request))
    sizes = Sizes.of(screening.system, is_ours=False)

    solution = mark_best_effort(decode_solution(answer, screening.system), sizes)

    assert list(find_doubts(solution, sizes)) == []
    needed = {s for s, given in answer["allocations"].items() if given["numReplicas"]}
    assert {s for s, given in solution.allocations.items() if given.replicas} == needed


GREEDY = {
    name: exchange
    for name, exchange in EXCHANGES.items()
    if not decode_system(exchange[0]).options.milp
}


@pytest.mark.parametrize("name", GREEDY)
def test_best_effort_is_told_as_our_greedy_solver_tells_it(name: str) -> None:
    request, answer = GREEDY[name]
    system = screen(decode_system(request)).system
    sizes = Sizes.of(system, is_ours=False)

    solution = mark_best_effort(decode_solution(answer, system), sizes)

    assert best_effort(solution) == best_effort(optimize(system))


def best_effort(solution: Solution) -> dict[str, str]:
    """The messages of the servers with best effort."""
    return {d.server: d.message for d in solution.decisions if d.reason is Reason.BEST_EFFORT}


def test_all_recordings_are_there() -> None:
    assert len(EXCHANGES) == 38 + 60 + 57 + 29
