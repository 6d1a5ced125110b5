"""Queries of Servers' own: slow ones of a namespace take nothing from others, in virtual time."""

import asyncio
import math
from collections.abc import Mapping

import pytest

from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.demand import DemandReading, DemandSurvey
from inferno_operator.engines.own_queries import drop_zero, find_longest_range
from inferno_operator.engines.survey import Results, Survey, SurveyResult
from inferno_operator.resources import DemandSource, Measure, Measured, Queries
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import QueryResult
from inferno_optimizer.errors import UnavailableError
from tests.unit.operator.engines.prometheus import NOW, Table

ALIVE = {"reporting": 1.0}
SLOW_SECONDS = 10.0
QUANTITIES = [field.alias or name for name, field in Queries.model_fields.items()]


def custom(word: str, quantities: int = 1) -> Measure:
    """A Server whose queries have a word."""
    queries = {name: f"{word}_{name}" for name in QUANTITIES[:quantities]}
    return Measure.model_validate({"source": "Custom", "queries": queries})


def vllm(model: str, **fields: object) -> Measure:
    return Measure.model_validate({"source": "vLLM", "labels": {"model_name": model}, **fields})


@pytest.fixture
def table() -> Table:
    table = Table(["model_name"])
    table.serve("m", delta={"0": 1.0}, count_over_time=ALIVE, quick={"": 2.0}, slow={"": 2.0})
    table.seconds = {"slow": SLOW_SECONDS, "quick": 0.01}
    return table


class Watch:
    """A survey, and when each result came [s]."""

    def __init__(self, table: Table) -> None:
        self.survey = Survey(table, read_built_in_sources(), lambda: NOW)
        self.came: dict[Key, float] = {}
        self.took = 0.0

    async def ask(
        self, measures: Mapping[Key, Measure], gone: frozenset[Key] = frozenset()
    ) -> dict[Key, Measured]:
        began = asyncio.get_running_loop().time()
        self.came = {}
        found: dict[Key, SurveyResult] = {}

        async def receive(results: Results) -> None:
            now = asyncio.get_running_loop().time() - began
            self.came |= dict.fromkeys(results, now)
            found.update(results)

        await self.survey.ask_each(measures, receive, lambda key: key not in gone)
        self.took = asyncio.get_running_loop().time() - began
        return {key: judged(result) for key, result in found.items()}


def judged(result: SurveyResult) -> Measured:
    return judge_reading(result.reading, result.source, None, result.hint)


SLOW = {Key("slow", f"s{n:02}"): custom("slow", len(QUANTITIES)) for n in range(20)}
SHARED = {Key("shared", f"s{n}"): vllm("m") for n in range(3)}
QUICK = {Key("quick", f"s{n}"): custom("quick", 3) for n in range(3)}


async def test_180_slow_queries_of_a_namespace_delay_nobody_else(table: Table) -> None:
    watch = Watch(table)

    found = await watch.ask({**SLOW, **SHARED, **QUICK})

    assert {found[key].quality for key in (*SHARED, *QUICK)} == {"Fresh"}
    assert max(watch.came[key] for key in SHARED) == 0
    assert max(watch.came[key] for key in QUICK) < 1
    assert {found[key].quality for key in SLOW} == {"Stale"}
    assert watch.took <= 11


async def test_what_exceeds_the_time_of_a_namespace_is_stale_in_words_that_say_so(
    table: Table,
) -> None:
    found = await Watch(table).ask(SLOW)

    message = found[Key("slow", "s19")].message
    assert message == (
        "namespace slow used up its time for spec.measure.queries, 10 s of a measurement (all"
        " namespaces: 30 s): make the queries faster, or let recording rules of Prometheus compute"
        " them; the last good values are kept"
    )


async def test_a_fast_namespace_that_waited_for_slow_ones_is_the_first_from_then_on(
    table: Table,
) -> None:
    watch = Watch(table)
    slow = {Key(f"a-{n:02}", "s"): custom("slow", 3) for n in range(40)}
    for _ in range(4):  # 12 slow namespaces have their turn in each
        await watch.ask({**slow, **QUICK})

    for _ in range(5):
        found = await watch.ask({**slow, **QUICK})

        assert {found[key].quality for key in QUICK} == {"Fresh"}
        assert max(watch.came[key] for key in QUICK) < 1
        assert watch.took <= 31


async def test_fast_servers_come_before_the_slow_ones_of_their_namespace(table: Table) -> None:
    watch = Watch(table)
    fast = {Key("slow", f"z{n}"): custom("quick", 3) for n in range(5)}
    for _ in range(11):  # two slow ones have their turn in each
        await watch.ask({**SLOW, **fast})

    for _ in range(5):
        found = await watch.ask({**SLOW, **fast})

        assert {found[key].quality for key in fast} == {"Fresh"}


async def test_slow_servers_of_a_namespace_take_turns(table: Table) -> None:
    table.seconds = {"slow": 4.0}
    watch = Watch(table)
    measures = {Key("slow", f"s{n}"): custom("slow") for n in range(8)}
    counted: set[Key] = set()

    for _ in range(2):
        found = await watch.ask(measures)
        counted |= {key for key, item in found.items() if item.arrival_rate is not None}

    assert counted == set(measures)


async def test_queries_of_servers_that_are_gone_are_not_asked(table: Table) -> None:
    watch = Watch(table)

    found = await watch.ask(SLOW | QUICK, gone=frozenset(SLOW))

    assert not any("slow" in text for text in table.asked)
    assert {found[key].quality for key in QUICK} == {"Fresh"}
    assert watch.took < 1


async def test_a_slow_group_is_asked_after_the_others(table: Table) -> None:
    watch = Watch(table)
    table.seconds = {"slow_label": SLOW_SECONDS}
    labels = {"labels": {"slow_label": "x"}}
    slow = {Key("slow", "s"): vllm("m", **labels)}
    await watch.ask({**slow, **SHARED})

    await watch.ask({**slow, **SHARED})

    assert max(watch.came[key] for key in SHARED) == 0


async def test_a_survey_ends_however_many_groups_are_slow(table: Table) -> None:
    watch = Watch(table)
    table.seconds = {"slow_": SLOW_SECONDS}
    slow = {Key("slow", f"s{n}"): vllm("m", labels={f"slow_{n}": "x"}) for n in range(100)}

    found = await watch.ask({**slow, **SHARED})

    assert watch.took < 200
    assert "comes first in the next measurement" in found[Key("slow", "s99")].message


@pytest.mark.parametrize("value", [-3.0, 1e308])
async def test_a_number_that_cannot_be_is_refused(table: Table, value: float) -> None:
    table.serve("m", mine={"": value})
    place = Key("a", "s")

    found = await Watch(table).ask({place: custom("mine")})

    assert found[place].quality == "Refused"
    assert "no quantity is negative or so large" in found[place].message


class Begun(Table):
    """Has no sample from before it began."""

    began = NOW - 60.0

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        found = await super().query(expression, at)
        return found if at is None or at >= self.began else QueryResult(())


async def test_a_query_that_had_no_number_one_window_ago_is_partial_until_it_had_one() -> None:
    table = Begun([])
    table.serve(quick={"": 2.0})
    watch, s = Watch(table), Key("quick", "s")

    young = (await watch.ask({s: custom("quick")}))[s]
    table.began = NOW - 400.0
    grown = [(await watch.ask({s: custom("quick")}))[s].quality for _ in range(3)]

    assert young.quality == "Partial"
    assert "had no number 5 minutes ago" in young.message
    assert grown == ["Fresh"] * 3
    assert len(table.asked) == 6  # in the first two surveys, what was before, too


async def test_a_slow_query_is_partial_until_it_is_known_for_one_window() -> None:
    table = Table([])
    table.serve(slow={"": 2.0})
    table.seconds = {"slow": SLOW_SECONDS / 2}
    clock = [NOW]
    survey, s = Survey(table, read_built_in_sources(), lambda: clock[0]), Key("slow", "s")

    qualities = []
    for seconds in (0.0, 290.0, 310.0):
        clock[0] = NOW + seconds
        qualities.append(judged((await survey.ask({s: custom("slow")}))[s]).quality)

    assert qualities == ["Partial", "Partial", "Fresh"]
    assert len(table.asked) == 3  # never for what was before


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("sum(rate(x[2m])) or vector(0)", "sum(rate(x[2m]))"),
        ("sum(rate(x[2m]))\n  OR on() vector( 0.0 )", "sum(rate(x[2m]))"),
        ("a or b or vector(0)", "a or b"),
        ("a or vector(1)", "a or vector(1)"),
        ("vector(0)", "vector(0)"),
        ("sum(floor_vector(0))", "sum(floor_vector(0))"),
    ],
)
def test_a_zero_for_what_is_missing_is_left_out_of_a_query(written: str, asked: str) -> None:
    assert drop_zero(written) == asked


@pytest.mark.parametrize(
    ("expression", "value", "quality"),
    [
        ("gone or vector(0)", None, "Missing"),
        ("idle or vector(0)", 0.0, "Idle"),
        ("(gone or vector(0)) * 60", 0.0, "Missing"),
        ("(quick or vector(0)) * 60", 2.0, "Fresh"),
        ("vector(0)", 0.0, "Idle"),
    ],
)
async def test_nothing_missing_is_zero_in_own_queries(
    expression: str, value: float | None, quality: str
) -> None:
    """As after a rename of a metric: the series are gone, and the query answers 0 as before."""
    table = Table([])
    found = {"": value} if value is not None else {}
    table.serve(**{drop_zero(expression): found})
    measure = Measure.model_validate({"source": "Custom", "queries": {"arrivalRate": expression}})

    assert (await Watch(table).ask({Key("a", "s"): measure}))[Key("a", "s")].quality == quality


async def test_a_query_without_a_number_is_looked_at_again() -> None:
    """As after a restart of Prometheus with an empty storage."""
    table = Begun([])
    watch, s = Watch(table), Key("quick", "s")
    qualities = []

    for began, rows in ((NOW - 400, 2.0), (NOW, None), (NOW - 60, 2.0)):
        table.began, table.rows = began, {}
        if rows:
            table.serve(quick={"": rows})
        qualities.append((await watch.ask({s: custom("quick")}))[s].quality)

    assert qualities == ["Fresh", "Missing", "Partial"]


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        ("sum(x)", 0),
        ("sum(rate(x[90s]))", 90),
        ("rate(x[1h30m]) + rate(y[5m])", 5400),
        ("max_over_time(rate(x[5m])[30m:1m])", 1800),
        ("rate(x[30d])", 86400),
        ("rate(x[1m500ms]) + rate(y[500ms])", 60),
    ],
)
def test_the_longest_range_of_an_expression_is_found(expression: str, seconds: int) -> None:
    assert find_longest_range(expression) == seconds


# What is seen of requests: one query for all servers of a source, and nothing missing is zero


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
