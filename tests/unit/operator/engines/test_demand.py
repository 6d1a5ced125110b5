"""What is seen of requests: one query for all servers of a source, and nothing missing is zero."""

import math

import pytest

from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.demand import DemandReading, DemandSurvey
from inferno_operator.resources import DemandSource
from inferno_operator.resources.objects import Key
from inferno_optimizer.errors import UnavailableError
from tests.unit.operator.engines.prometheus import Table

QUEUE = "flow_control_queue_size"


def pool(name: str, source: str = "EPP") -> DemandSource:
    return DemandSource(source=source, labels={"inference_pool": name})


async def asked(table: Table, **sources: DemandSource) -> dict[str, DemandReading]:
    keys = {Key("prod", name): source for name, source in sources.items()}
    found = await DemandSurvey(table, read_built_in_sources()).ask(keys)
    return {key.name: reading for key, reading in found.items()}


async def test_all_servers_of_a_source_share_one_query() -> None:
    table = Table(["inference_pool"])
    for number in range(100):
        table.serve(f"p{number}", **{QUEUE: {"0": float(number), "1": 0.0}})

    found = await asked(table, **{f"s{n}": pool(f"p{n}") for n in range(100)})

    assert len(table.asked) == 1
    assert {name: reading.requests for name, reading in found.items()} == {
        f"s{n}": n for n in range(100)
    }


@pytest.mark.parametrize("value", [None, math.nan])
async def test_what_nobody_counts_is_not_known(value: float | None) -> None:
    table = Table(["inference_pool"])
    table.serve("p", **({} if value is None else {QUEUE: {"0": value}}))

    found = await asked(table, s=pool("p"))

    assert found["s"].requests is None
    assert "correct the labels" in found["s"].problem


async def test_an_engine_sees_nothing_while_it_does_not_run() -> None:
    found = await asked(Table(["inference_pool"]), s=pool("p", "vLLM"))

    assert found["s"].requests is None
    assert "'vLLM' has no metrics while nothing runs; use one of Dynamo, EPP" in found["s"].problem


async def test_a_prometheus_that_does_not_answer_tells_nothing() -> None:
    table = Table(["inference_pool"])
    table.failing = {"": UnavailableError("http://p: no answer within 10 s")}
    own = DemandSource(source="Custom", query="sum(x)")

    found = await asked(table, s=pool("p"), t=own)

    assert [reading.requests for reading in found.values()] == [None, None]
    assert found["t"].problem.startswith("spec.measure.demand.query: http://p")


async def test_slow_answers_take_limited_time() -> None:
    table = Table(["inference_pool"])
    table.seconds = {"": 3600.0}

    found = await asked(table, s=pool("p"))

    assert "no answer within 5 s" in found["s"].problem
