"""What is measured from a command line, and what is shown of it."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.measurement import QueryRecorder, measure, with_measured_loads
from inferno_operator.cli.tables.measurement import (
    SERIES_SHOWN,
    AskedQuery,
    ServerMeasurement,
    describe_latencies,
    describe_measurements,
    encode_measurements,
    list_reported,
)
from inferno_operator.cli.tables.table import format_number
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.resources import (
    Ahead,
    Load,
    LoadCorrection,
    Measured,
    MeasuredReplicas,
    Percentiles,
    Resource,
    Server,
    Target,
    parse,
)
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
        return runner.run(
            measure(resources, PrometheusEndpoint(prometheus.url), read_built_in_sources())
        )


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


FRESH = Measured(
    time=NOW - timedelta(seconds=20),
    quality="Fresh",
    arrival_rate=1234.5,
    avg_in_tokens=500.4,
    avg_out_tokens=99.96,
    itl_average=12.345,
    ttft_average=0.5,
    running=7,
    waiting=0,
    kv_cache_usage=0.056,
    replicas=MeasuredReplicas(ready=4, reporting=3),
    misses_targets=("slo-itl", "slo-ttft"),
)


def server(name: str = "S", /, **spec: object) -> Server:
    found = parse(objects.server(name, spec=spec))
    assert isinstance(found, Server)
    return found


def lines(*found: ServerMeasurement, asked: tuple[AskedQuery, ...] = ()) -> list[str]:
    return "\n".join(map(str, describe_measurements(found, asked, NOW))).splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell]


def test_a_row_has_every_number_and_what_is_not_known_is_said() -> None:
    headings, row = lines(ServerMeasurement(server(measure=MEASURE), FRESH))

    names = headings.replace("LOAD REQ/MIN", "LOAD").split()
    shown = dict(zip(names, cells(row), strict=True))
    assert shown == {
        "SERVER": "s",
        "QUALITY": "Fresh",
        "AGE": "20s",
        "LOAD": "1234",
        "IN": "500",
        "OUT": "100",
        "ITL": "12.3",
        "TTFT": "0.5",
        "WAIT": "unknown",
        "RUNNING": "7",
        "WAITING": "0",
        "KV": "6%",
        "REPLICAS": "3/4",
        "MISSES": "slo-itl, slo-ttft",
    }


@pytest.mark.parametrize(("spec", "quality"), [({"measure": MEASURE}, "not yet"), ({}, "-")])
def test_a_server_without_a_measurement_has_no_numbers(
    spec: dict[str, object], quality: str
) -> None:
    _, row = lines(ServerMeasurement(server(**spec), None))

    assert cells(row) == ["s", quality]


def test_what_to_do_is_below_the_table() -> None:
    missing = Measured(time=NOW, quality="Missing", message="correct spec.measure.labels")

    shown = lines(
        ServerMeasurement(server("S", measure=MEASURE), FRESH),
        ServerMeasurement(server("T", measure=MEASURE), missing),
    )

    assert shown[3:] == ["", "t: correct spec.measure.labels"]


def test_a_note_that_several_servers_have_is_one_sentence() -> None:
    missing = Measured(time=NOW, quality="Missing", message="correct spec.measure.labels")

    shown = lines(
        *(ServerMeasurement(server(name, measure=MEASURE), missing) for name in "ABCDEFG")
    )

    assert shown[8:] == ["", "a, b, c, d, e and 2 more: correct spec.measure.labels"]


def test_queries_are_shown_with_their_answers() -> None:
    one = Sample({"pod": "a", "job": 'b"c'}, 1.0, 2.5)
    many = tuple(Sample({"pod": str(n)}, 1.0, n) for n in range(SERIES_SHOWN + 3))

    shown = lines(
        asked=(
            AskedQuery("up", (one,)),
            AskedQuery("x"),
            AskedQuery("bad(", problem="no"),
            AskedQuery("y", many),
        )
    )

    assert shown[1:4] == ["", "up", '  {job="b"c", pod="a"}  2.5']
    assert shown[4:10] == ["", "x", "  no series", "", "bad(", "  no"]
    assert shown[12] == '  {pod="0"}  0'
    assert shown[-1] == "  and 3 more series"
    assert len(shown) == 12 + SERIES_SHOWN + 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "unknown"),
        (2e-6, "0"),
        (0.0, "0"),
        (0.01234, "0.0123"),
        (99.96, "100"),
        (123456.7, "123457"),
    ],
)
def test_numbers_have_three_digits_or_more(value: float | None, shown: str) -> None:
    assert format_number(value) == shown


def test_measured_and_predicted_latencies_stand_beside_their_targets() -> None:
    desired = {
        "accelerator": "A",
        "numReplicas": 2,
        "itlAverage": 10,
        "load": {"arrivalRate": 1000, "avgOutTokens": 100},
    }
    found = FRESH.model_copy(update={"wait": Percentiles(p95=40.0)})
    target = Target.model_validate({"model": "M", "slo-itl": 12, "slo-ttw": 500})

    shown = describe_latencies(
        ServerMeasurement(server(measure=MEASURE, desiredAlloc=desired), found, target)
    )

    rows = [line.split() for line in "\n".join(map(str, shown)).splitlines()[1:]]
    assert rows == [
        ["QUANTITY", "MEASURED", "PREDICTED", "NOW/SLO"],
        ["LOAD", "REQ/MIN", "1234", "1000", "-"],
        ["ITL", "12.3", "10", "12.3/12"],
        ["WAIT", "unknown", "unknown", "40.0/500"],
        ["TTFT", "0.5", "unknown", "-"],
    ]


def test_there_is_no_comparison_for_a_server_that_is_not_measured() -> None:
    assert list(describe_latencies(ServerMeasurement(server(), None))) == []


def test_it_is_said_what_part_of_the_load_waits() -> None:
    late = FRESH.model_copy(
        update={"backlog": 3550.0, "load": Load(arrival_rate=4784.5, avg_out_tokens=100)}
    )
    said = (
        "3550 requests wait beyond what a healthy queue holds;"
        " plans are for 4784 requests/min, to serve them too"
    )
    item = ServerMeasurement(server(measure=MEASURE), late)

    assert lines(item)[-1] == f"s: {said}"
    assert list(describe_latencies(item))[-1] == said


@pytest.mark.parametrize(
    ("history", "known"),
    [(0, "assumed until two hours are known"), (86400, "as in 9 of 10 cases of the last 1d")],
)
def test_it_is_said_how_far_ahead_plans_are_made(history: float, known: str) -> None:
    growing = FRESH.model_copy(
        update={
            "ahead": Ahead(seconds=240, growth=1.35, history_seconds=history),
            "load": Load(arrival_rate=1666.6, avg_out_tokens=100),
        }
    )

    shown = list(describe_latencies(ServerMeasurement(server(measure=MEASURE), growing)))

    assert shown[-1] == (
        f"planned for 1667 requests/min: now 1234, 1.35 times that after 4m, {known}"
    )


def test_it_is_said_how_much_more_is_planned_for_as_targets_are_missed() -> None:
    corrected = FRESH.model_copy(
        update={
            "ahead": Ahead(seconds=240, growth=1.35, history_seconds=0),
            "load": Load(arrival_rate=2083.2, avg_out_tokens=100),
            "correction": LoadCorrection(factor=1.25, missed_since=NOW),
        }
    )
    current = {"accelerator": "A", "numReplicas": 4}
    item = ServerMeasurement(server(measure=MEASURE, currentAlloc=current), corrected)

    assert lines(item)[-1] == (
        "s: slo-itl, slo-ttft missed with 4 replicas that should be enough: planned for 1.25 times"
        " the load; calibrate Model 'M'"
    )
    assert list(describe_latencies(item))[-1] == (
        "planned for 2083 requests/min: now 1234, 1.35 times that after 4m, assumed until two hours"
        " are known, times 1.25 for missed targets"
    )


def test_it_is_said_what_is_scheduled() -> None:
    always = {"start": "* * * * *", "duration": "1h", "minArrivalRate": 1500, "minNumReplicas": 8}
    asked = server(measure=MEASURE, schedule=[always])

    shown = list(describe_latencies(ServerMeasurement(asked, FRESH)))

    assert shown[-1] == "scheduled (* * * * * UTC): at least 1500 requests/min and 8 replicas"


def test_it_is_said_how_many_tokens_are_in_prefix_caches() -> None:
    load = Load(arrival_rate=1234.5, avg_in_tokens=2000, avg_out_tokens=100, cached_tokens=1200)
    item = ServerMeasurement(server(measure=MEASURE), FRESH.model_copy(update={"load": load}))

    assert lines(item)[-1] == (
        "s: 1200 of 2000 input tokens are in prefix caches; plans count on them where replicas run"
        " already"
    )


def test_it_is_said_how_many_tokens_a_step_makes() -> None:
    item = ServerMeasurement(
        server(measure=MEASURE), FRESH.model_copy(update={"tokens_per_step": 2.5})
    )

    assert lines(item)[-1] == "s: a step makes 2.5 tokens of an answer, as drafts are accepted"
