"""All servers in a fixed number of queries; one that fails takes nothing else with it."""

from collections.abc import Mapping

import pytest

from inferno_operator.controllers.measurement.catalogue import built_in
from inferno_operator.controllers.measurement.quality import measured
from inferno_operator.controllers.measurement.survey import Result, Survey
from inferno_operator.resources import Measure, Measured
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import RefusedError
from inferno_optimizer.errors import UnavailableError
from tests.unit.operator.controllers.measurement.prometheus import NOW, Table

QUERIES = 15
"""What one cycle may ask."""

ALIVE = {"reporting": 1.0}


def vllm(model: str, **fields: object) -> Measure:
    spec = {"source": "vLLM", "labels": {"model_name": model, "namespace": "prod"}, **fields}
    return Measure.model_validate(spec)


def key(name: str) -> Key:
    return Key("default", name)


@pytest.fixture
def table() -> Table:
    return Table(["model_name", "namespace"])


def survey(table: Table) -> Survey:
    return Survey(table, built_in(), lambda: NOW)


def judged(results: Mapping[Key, Result]) -> dict[str, Measured]:
    return {
        place.name: measured(result.reading, result.source, None, result.hint)
        for place, result in results.items()
    }


async def test_each_server_gets_its_own_numbers(table: Table) -> None:
    for number in range(3):
        rate = {"0": float(number + 1)}
        table.serve(f"m{number}", "prod", deriv=rate, heartbeat={}, count_over_time=ALIVE)

    found = judged(await survey(table).ask({key(f"s{n}"): vllm(f"m{n}") for n in range(3)}))

    assert {name: item.arrival_rate for name, item in found.items()} == {
        "s0": 60, "s1": 120, "s2": 180,
    }  # fmt: skip


async def test_servers_with_the_same_labels_get_the_same_numbers(table: Table) -> None:
    table.serve("m", "prod", deriv={"0": 1.0}, count_over_time=ALIVE)

    found = judged(await survey(table).ask({key("a"): vllm("m"), key("b"): vllm("m")}))

    assert found["a"] == found["b"]


@pytest.mark.parametrize("servers", [1, 1000])
async def test_the_number_of_queries_does_not_grow_with_the_servers(
    table: Table, servers: int
) -> None:
    measures = {key(f"s{n}"): vllm(f"m{n}") for n in range(servers)}
    asking = survey(table)

    for _ in range(5):
        table.asked.clear()
        await asking.ask(measures)

        assert len(table.asked) <= QUERIES


async def test_a_query_that_is_refused_is_told_in_the_words_of_prometheus(table: Table) -> None:
    table.failing = {"": RefusedError("HTTP 401: no token; query: up")}

    found = judged(await survey(table).ask({key("s"): vllm("m")}))

    assert found["s"].quality == "Refused"
    assert found["s"].message == "HTTP 401: no token; query: up"


async def test_a_prometheus_that_is_down_makes_every_server_stale(table: Table) -> None:
    table.failing = {"": UnavailableError("http://p: no answer within 10 s")}

    found = judged(await survey(table).ask({key("a"): vllm("m"), key("b"): vllm("n")}))

    assert {item.quality for item in found.values()} == {"Stale"}


async def test_percentiles_that_fail_leave_the_load_alone(table: Table) -> None:
    table.serve("m", "prod", deriv={"0": 1.0}, count_over_time=ALIVE)
    table.failing = {"histogram_quantile": RefusedError("HTTP 422: too many samples")}

    found = judged(await survey(table).ask({key("s"): vllm("m")}))

    assert found["s"].quality == "Fresh"
    assert found["s"].arrival_rate == 60


async def test_an_unknown_source_and_a_wrong_label_concern_their_server_only(
    table: Table,
) -> None:
    table.serve("m", "prod", deriv={"0": 1.0}, count_over_time=ALIVE)
    wrong = Measure.model_validate({"source": "vLLM", "labels": {"a-b": "c"}})
    measures = {
        key("good"): vllm("m"),
        key("source"): vllm("m", source="vlmm"),
        key("label"): wrong,
    }

    found = judged(await survey(table).ask(measures))

    assert found["good"].quality == "Fresh"
    assert "did you mean vLLM?" in found["source"].message
    assert "'a-b' is not a name of a label" in found["label"].message


async def test_a_server_without_series_is_told_which_series_there_are(table: Table) -> None:
    table.serve("llama-3", "prod", group={"": 1.0})

    found = judged(await survey(table).ask({key("s"): vllm("lama-3")}))

    assert found["s"].quality == "Missing"
    assert 'there is {model_name="llama-3", namespace="prod"}' in found["s"].message


async def test_a_server_whose_labels_have_other_metrics_is_told_them(table: Table) -> None:
    table.names = ("sglang:num_running_reqs", "up")

    found = judged(await survey(table).ask({key("s"): vllm("m")}))

    assert "there are sglang:num_running_reqs" in found["s"].message
    assert "correct spec.measure.source" in found["s"].message


async def test_a_source_that_nobody_scrapes_is_told(table: Table) -> None:
    found = judged(await survey(table).ask({key("s"): vllm("m")}))

    assert "Prometheus has no series of vllm:num_requests_running" in found["s"].message


async def test_queries_of_a_server_are_asked_beside_those_of_its_source(table: Table) -> None:
    table.serve("m", "prod", deriv={"0": 1.0}, count_over_time=ALIVE, mine={"": 4.0})
    own = vllm("m", queries={"arrivalRate": "mine"})

    found = judged(await survey(table).ask({key("s"): own}))

    assert found["s"].arrival_rate == 240


async def test_an_own_query_with_several_series_is_refused(table: Table) -> None:
    for model in ("m", "n"):
        table.serve(model, "prod", mine={"": 4.0})
    own = Measure.model_validate({"source": "Custom", "queries": {"arrivalRate": "mine"}})

    found = judged(await survey(table).ask({key("s"): own}))

    assert found["s"].quality == "Refused"
    assert found["s"].message.startswith("spec.measure.queries.arrivalRate: returns 2 series")


async def test_an_own_query_without_series_is_missing(table: Table) -> None:
    own = Measure.model_validate({"source": "Custom", "queries": {"arrivalRate": "mine"}})

    found = judged(await survey(table).ask({key("s"): own}))

    assert found["s"].quality == "Missing"


async def test_the_short_window_grows_with_the_scrape_interval(table: Table) -> None:
    table.serve("m", "prod", deriv={"0": 1.0}, count_over_time=ALIVE)
    table.serve("", "", count_over_time={"interval": 60.0})
    asking = survey(table)
    await asking.ask({key("s"): vllm("m")})
    table.asked.clear()

    await asking.ask({key("s"): vllm("m")})

    assert any("[240s]" in text for text in table.asked)
    assert not any("[60s]" in text for text in table.asked)
