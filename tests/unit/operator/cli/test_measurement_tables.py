"""What `inferno measure` prints."""

from datetime import UTC, datetime, timedelta

import pytest

from inferno_operator.cli.tables.measurement import (
    SERIES_SHOWN,
    AskedQuery,
    ServerMeasurement,
    compare_with_targets,
    describe_measurements,
)
from inferno_operator.cli.tables.table import format_number
from inferno_operator.resources import (
    Ahead,
    Load,
    LoadCorrection,
    Measured,
    MeasuredReplicas,
    Percentiles,
    Server,
    Target,
    parse,
)
from inferno_operator.runtime.prometheus import Sample
from tests.unit.operator import objects

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MEASURE = {"source": "vLLM", "labels": {"model_name": "llama"}}
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

    shown = compare_with_targets(
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
    assert list(compare_with_targets(ServerMeasurement(server(), None))) == []


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
    assert list(compare_with_targets(item))[-1] == said


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

    shown = list(compare_with_targets(ServerMeasurement(server(measure=MEASURE), growing)))

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
    assert list(compare_with_targets(item))[-1] == (
        "planned for 2083 requests/min: now 1234, 1.35 times that after 4m, assumed until two hours"
        " are known, times 1.25 for missed targets"
    )


def test_it_is_said_what_is_scheduled() -> None:
    always = {"start": "* * * * *", "duration": "1h", "minArrivalRate": 1500, "minNumReplicas": 8}
    asked = server(measure=MEASURE, schedule=[always])

    shown = list(compare_with_targets(ServerMeasurement(asked, FRESH)))

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
