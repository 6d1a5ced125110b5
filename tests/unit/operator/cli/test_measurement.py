"""What `inferno measure` asks, and what becomes of the answers."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.measurement import QueryRecorder, measure, with_measured_loads
from inferno_operator.cli.tables.measurement import (
    AskedQuery,
    ServerMeasurement,
    encode_measurements,
    list_reported,
)
from inferno_operator.engines.catalogue import built_in
from inferno_operator.resources import Measured, Resource, Server, parse
from inferno_operator.runtime.prometheus import QueryResult, RefusedError, Sample
from inferno_optimizer.errors import InputError, UnavailableError
from tests.unit.operator import objects
from tests.unit.operator.adapters.prometheus.serving import (
    NO_ANSWER,
    PrometheusServer,
    error,
    serving,
    vector,
)
from tests.unit.operator.engines.prometheus import Table

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MEASURE = {"source": "vLLM", "labels": {"namespace": "prod", "model_name": "llama"}}
FOUND = Measured(
    time=NOW,
    quality="Fresh",
    arrival_rate=120,
    avg_in_tokens=500,
    avg_out_tokens=100,
)


@pytest.fixture
def prometheus() -> Iterator[PrometheusServer]:
    with serving() as running:
        yield running


def measured_server(name: str = "S", **measure_: object) -> Server:
    found = parse(objects.server(name, spec={"measure": {**MEASURE, **measure_}}))
    assert isinstance(found, Server)
    return found


def own_query(expression: str = "my_rate") -> Server:
    return measured_server(source="Custom", labels={}, queries={"arrivalRate": expression})


def ask(
    prometheus: PrometheusServer, *resources: Resource
) -> tuple[list[ServerMeasurement], list[AskedQuery]]:
    """Measure in real time: the server is a real one."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(measure(resources, PrometheusEndpoint(prometheus.url), built_in()))


def test_every_query_is_kept_with_its_answer(prometheus: PrometheusServer) -> None:
    moment = time.time()
    prometheus.usual = lambda _: vector({"metric": {"a": "b"}, "value": [moment, "1.5"]})

    (found,), asked = ask(prometheus, own_query())

    sample = Sample({"a": "b"}, moment, 1.5)
    assert asked == [AskedQuery("my_rate", (sample,))] * 2  # now, and one window ago
    assert found.measured is not None
    assert (found.measured.quality, found.measured.arrival_rate) == ("Fresh", 90)


async def test_a_refused_query_is_kept_with_the_words_of_prometheus() -> None:
    fake = Table(("a",))
    fake.failing["bad"] = RefusedError("parse error")
    recorder = QueryRecorder(fake)
    await recorder.query("good", 10.0)
    with pytest.raises(RefusedError):
        await recorder.query("bad")

    assert recorder.asked == [AskedQuery("good"), AskedQuery("bad", problem="parse error")]


def test_without_a_measured_server_nothing_is_asked(prometheus: PrometheusServer) -> None:
    with pytest.raises(InputError, match=r"no Server has spec\.measure"):
        ask(prometheus, parse(objects.server("S")), parse(objects.model()))

    assert prometheus.asked == []


def test_a_prometheus_that_does_not_answer_is_an_error(prometheus: PrometheusServer) -> None:
    prometheus.usual = lambda _: NO_ANSWER

    with pytest.raises(UnavailableError, match="Prometheus does not answer"):
        ask(prometheus, measured_server())


def test_a_prometheus_that_refuses_every_query_is_an_error(
    prometheus: PrometheusServer,
) -> None:
    prometheus.usual = lambda _: error(401, "unauthorized", "no token")

    with pytest.raises(RefusedError, match="HTTP 401"):
        ask(prometheus, measured_server())


def test_a_server_that_alone_is_refused_says_so(prometheus: PrometheusServer) -> None:
    prometheus.usual = lambda asked: (
        error(400, "bad_data", "parse error")
        if asked.form == [("query", "sum(")]
        else vector(
            {"metric": {}, "value": [float(dict(asked.form).get("time", time.time())), "2"]}
        )
    )
    servers = [own_query(), parse(objects.server("T", spec={"measure": bad_query()}))]

    (good, bad), _ = ask(prometheus, *servers)

    assert good.measured is not None
    assert bad.measured is not None
    assert (good.measured.quality, bad.measured.quality) == ("Fresh", "Refused")
    assert "parse error" in bad.measured.message


def bad_query() -> dict[str, object]:
    return {"source": "Custom", "queries": {"arrivalRate": "sum("}}


def test_missed_targets_are_those_of_the_class_of_the_server(
    prometheus: PrometheusServer,
) -> None:
    prometheus.usual = lambda _: vector({"metric": {}, "value": [time.time(), "2"]})
    queries = {"arrivalRate": "rate", "itlAverage": "itl"}
    server = measured_server(source="Custom", labels={}, queries=queries)
    mine, other = objects.service_class(), objects.service_class("D")
    mine["spec"]["data"][0]["slo-itl"] = 1500
    other["spec"]["data"][0]["slo-itl"] = 2500

    (found,), _ = ask(prometheus, server, parse(mine), parse(other))

    assert found.measured is not None
    assert found.measured.itl_average == 2000
    assert found.measured.misses_targets == ("slo-itl",)


def test_what_the_operator_measured_is_read_from_the_status() -> None:
    status = {"measured": FOUND.to_json()}
    resources = [parse(objects.server("S") | {"status": status}), parse(objects.model())]

    (found,) = list_reported(resources)

    assert found.measured == FOUND


def test_a_document_has_numbers_and_queries_but_nothing_for_unmeasured_servers() -> None:
    found = [
        ServerMeasurement(measured_server("S"), FOUND),
        ServerMeasurement(measured_server("T"), None),
    ]
    asked = [AskedQuery("up", QueryResult((Sample({"a": "b"}, 1.0, float("nan")),)).samples)]

    document = encode_measurements(found, asked)

    assert document["servers"] == [
        {"name": "s", "measured": FOUND.to_json()},
        {"name": "t", "measured": None},
    ]
    assert document["queries"] == [
        {
            "expression": "up",
            "problem": "",
            "series": [{"labels": {"a": "b"}, "value": "nan"}],
        }
    ]
    assert "queries" not in encode_measurements(found, [])


def test_measured_loads_replace_typed_ones_and_all_else_stays() -> None:
    server, other = measured_server("S"), parse(objects.server("T"))
    resources = [server, other, parse(objects.model())]

    listed = with_measured_loads(resources, [ServerMeasurement(server, FOUND)])

    assert listed["kind"] == "List"
    first, *rest = listed["items"]
    load = first["spec"]["currentAlloc"]["load"]
    assert (load["arrivalRate"], load["avgInTokens"], load["avgOutTokens"]) == (120, 500, 100)
    assert first["spec"]["measure"] == MEASURE
    assert rest == [resource.to_json() for resource in resources[1:]]


def test_a_server_of_which_nothing_is_known_keeps_its_typed_load() -> None:
    server = measured_server("S")
    missing = Measured(time=NOW, quality="Missing", message="no series")

    (item,) = with_measured_loads([server], [ServerMeasurement(server, missing)])["items"]

    assert item["spec"]["currentAlloc"]["load"]["arrivalRate"] == 90  # two replicas, as typed
