"""All servers in a fixed number of queries; one that fails takes nothing else with it."""

from collections.abc import Mapping

import pytest

from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines import promql
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.round_queries import COPIES_LOOKED_AT
from inferno_operator.engines.series_groups import WINDOWS, RateWindows, SeriesGroup
from inferno_operator.engines.survey import AT_ONCE, Results, Survey, SurveyResult
from inferno_operator.resources import Measure, Measured
from inferno_operator.resources.measurement import MAX_LABELS
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import QueryResult, RefusedError, Sample
from inferno_optimizer.errors import UnavailableError
from tests.unit.operator.engines.prometheus import NOW, Table

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
    return Survey(table, read_built_in_sources(), lambda: NOW)


def judged_one(result: SurveyResult) -> Measured:
    return judge_reading(result.reading, result.source, None, result.hint)


def judged(results: Mapping[Key, SurveyResult]) -> dict[str, Measured]:
    return {place.name: judged_one(result) for place, result in results.items()}


async def test_each_server_gets_its_own_numbers(table: Table) -> None:
    for number in range(3):
        rate = {"0": float(number + 1)}
        table.serve(f"m{number}", "prod", delta=rate, heartbeat={}, count_over_time=ALIVE)

    table.failing = {"histogram_quantile": RefusedError("HTTP 422: too many samples")}
    measures = {key(f"s{n}"): vllm(f"m{n % 3}") for n in range(4)}  # two with the same labels

    nobody = judged(await survey(Table(table.labels)).ask({key("s"): vllm("m0")}))["s"]
    found = judged(await survey(table).ask(measures))

    assert nobody.quality == "Missing"
    assert "Prometheus has no series of vllm:num_requests_running" in nobody.message
    assert {item.quality for item in found.values()} == {"Fresh"}  # without percentiles, too
    assert [found[f"s{n}"].arrival_rate for n in range(4)] == [60, 120, 180, 60]


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


async def test_the_labels_of_copies_are_asked_for_once_and_for_some_servers_at_a_time(
    table: Table,
) -> None:
    names = [f"m{n}" for n in range(COPIES_LOOKED_AT + 1)]
    for name in names:
        table.serve(name, "prod", delta={"0": 1.0}, count_over_time={**ALIVE, "copies": 2.0})
    asking = survey(table)
    asked = []

    for _ in range(3):
        table.asked.clear()
        results = await asking.ask({key(name): vllm(name) for name in names})
        asked.append([text for text in table.asked if "topk" in text])

    assert [len(texts) for texts in asked] == [1, 1, 0]
    assert {item.message for item in judged(results).values()} == {"each target has 2 copies"}


async def test_answers_about_many_servers_come_some_at_a_time(table: Table) -> None:
    measures = {key(f"s{n}"): vllm(f"m{n}") for n in range(2 * AT_ONCE + 1)}
    came: list[Results] = []

    async def receive(results: Results) -> None:
        came.append(results)

    await survey(table).ask_each(measures, receive)

    assert sorted(k for results in came for k in results) == sorted(measures)
    assert max(map(len, came)) == AT_ONCE


async def test_a_query_that_is_refused_is_told_in_the_words_of_prometheus(table: Table) -> None:
    table.failing = {"": RefusedError("HTTP 401: no token; query: up")}

    found = judged(await survey(table).ask({key("s"): vllm("m")}))

    assert found["s"].quality == "Refused"
    assert found["s"].message == "HTTP 401: no token; query: up"


async def test_an_unknown_source_and_a_wrong_label_concern_their_server_only(
    table: Table,
) -> None:
    table.serve("m", "prod", delta={"0": 1.0}, count_over_time=ALIVE)
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


WANTED = {"model_name": "m", "namespace": "prod"}
ALIVE_VLLM, ALIVE_TGI = "vllm:num_requests_running", "tgi_queue_size"


class Scraped(Table):
    """A Prometheus that has series of engines, which tell of nobody that is asked about."""

    def __init__(self, *series: Mapping[str, str]) -> None:
        super().__init__(["model_name", "namespace"])
        self.series = series

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        if not expression.startswith("group by (__name__"):
            return await super().query(expression, at)
        self.asked.append(expression)
        return QueryResult(tuple(Sample(labels, NOW, 1.0) for labels in self.series))

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        pairs = (pair.split("=") for pair in matcher.strip("{}").split(", "))
        wanted = {(name, value.strip('"')) for name, value in pairs}
        names = (each["__name__"] for each in self.series if wanted <= each.items())
        return tuple(dict.fromkeys(names))


def series(name: str = ALIVE_VLLM, **labels: str) -> Mapping[str, str]:
    return {"__name__": name, **labels}


@pytest.mark.parametrize(
    ("there", "words", "instruction"),
    [
        (
            series(namespace="monitoring", exported_namespace="prod", model_name="m"),
            '"prod" stands in the label exported_namespace',
            "name exported_namespace in place of namespace",
        ),
        (
            series(namespace="prod"),
            'those with {namespace="prod"} have no label model_name',
            "name other labels in spec.measure.labels",
        ),
        (
            series("sglang:num_running_reqs", **WANTED),
            "there are sglang:num_running_reqs of source SGLang",
            "correct spec.measure.source to SGLang",
        ),
        (
            series(namespace="prod", model_name="chat"),
            'there is {model_name="chat", namespace="prod"}',
            "if the replicas report under this name, correct spec.measure.labels.model_name",
        ),
        (series(ALIVE_TGI, namespace="prod"), "tgi_queue_size of source TGI has {names", ""),
        (series(ALIVE_TGI, namespace="test"), "but of TGI, with other labels", ""),
        (series(namespace="test", model_name="n"), 'there is {model_name="n", names', ""),
    ],
)
async def test_a_hint_is_an_instruction_only_where_the_cause_is_found(
    there: Mapping[str, str], words: str, instruction: str
) -> None:
    message = judged(await survey(Scraped(there)).ask({key("s"): vllm("m")}))["s"].message

    assert words in message
    assert instruction in message
    if not instruction:
        assert not any(word in message for word in ("correct", "name other", "let it", "set "))


async def test_labels_of_another_server_are_no_hint() -> None:
    table = Scraped(series(namespace="prod", model_name="n"))
    table.serve("n", "prod", delta={"0": 1.0}, count_over_time=ALIVE)

    found = judged(await survey(table).ask({key("a"): vllm("m"), key("b"): vllm("n")}))

    assert found["b"].quality == "Fresh"
    assert 'there is {model_name="n", namespace="prod"}' in found["a"].message
    assert "correct" not in found["a"].message


async def test_the_cause_of_each_server_is_looked_for_where_a_survey_is_the_only_one() -> None:
    names = ("m", "n", "o")
    there = [series("sglang:num_running_reqs", namespace="prod", model_name=n) for n in names]
    measures = {key(name): vllm(name) for name in names}
    once = Survey(Scraped(*there), read_built_in_sources(), lambda: NOW, looked_at=len(measures))
    again = survey(Scraped(*there))

    found = judged(await once.ask(measures))
    first = judged(await again.ask(measures))
    for _ in names:
        last = judged(await again.ask(measures))

    assert all("to SGLang" in found[name].message for name in names)
    assert sum("to SGLang" in first[name].message for name in names) == 1
    assert not any("spec.measure.labels" in first[name].message for name in names)
    assert all("to SGLang" in last[name].message for name in names)


async def test_queries_of_a_server_are_asked_beside_those_of_its_source(table: Table) -> None:
    table.serve("m", "prod", delta={"0": 1.0}, count_over_time=ALIVE, mine={"": 4.0})
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


async def test_the_short_window_grows_with_the_scrape_interval(table: Table) -> None:
    table.serve("m", "prod", delta={"0": 1.0}, count_over_time=ALIVE)
    table.serve("", "", count_over_time={"interval": 60.0})
    asking = survey(table)
    await asking.ask({key("s"): vllm("m")})
    table.asked.clear()

    await asking.ask({key("s"): vllm("m")})

    arrivals = [text for text in table.asked if "delta" in text]
    assert any("[240s]" in text for text in arrivals)
    assert not any("[60s]" in text for text in arrivals)


# One server that makes Prometheus fail

TEAMS = 8
PER_TEAM = 40


async def test_servers_with_other_windows_have_queries_of_these_windows(table: Table) -> None:
    other = vllm("n", windows={"shortSeconds": 90, "longSeconds": 1200})

    found = await survey(table).ask({key("usual"): vllm("m"), key("other"): other})
    of_other = [query for query in table.asked if '"n"' in query]
    of_usual = [query for query in table.asked if '"m"' in query]

    assert found[key("other")].reading.windows == RateWindows(90, 1200)
    assert found[key("usual")].reading.windows == WINDOWS
    assert any("[1200s]" in query for query in of_other)
    assert not any("[300s]" in query or "[60s]" in query for query in of_other)
    assert not any("[1200s]" in query or "[90s]" in query for query in of_usual)


def fleet(table: Table) -> dict[Key, Measure]:
    """Servers of several namespaces that share their queries."""
    measures = {}
    for team in range(TEAMS):
        for number in range(PER_TEAM):
            model, namespace = f"m{number:02}", f"team-{team}"
            table.serve(model, namespace, delta={"0": 1.0}, count_over_time=ALIVE)
            labels = {"model_name": model, "namespace": namespace}
            place = Key(namespace, model)
            measures[place] = Measure.model_validate({"source": "vLLM", "labels": labels})
    return measures


def with_a_culprit(table: Table) -> dict[Key, Measure]:
    """The same, and a server whose labels Prometheus refuses wherever it finds them."""
    measures = fleet(table)
    labels = {"model_name": "culprit", "namespace": "team-3"}
    measures[Key("team-3", "bad")] = Measure.model_validate({"source": "vLLM", "labels": labels})
    return measures


def by_quality(results: Mapping[Key, SurveyResult]) -> dict[str, set[Key]]:
    found: dict[str, set[Key]] = {}
    for place, result in results.items():
        quality = judged_one(result).quality
        found.setdefault(quality, set()).add(place)
    return found


CULPRIT = {Key("team-3", "bad")}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RefusedError("HTTP 422: many-to-many matching"), id="refused"),
        pytest.param(UnavailableError("http://p: no answer within 10 s"), id="too slow"),
    ],
)
async def test_a_server_that_makes_queries_fail_is_left_out_by_name_until_it_no_longer_fails(
    table: Table, error: Exception
) -> None:
    measures = with_a_culprit(table)
    table.failing = {"culprit": error}
    asking = survey(table)
    left_out = {"Fresh": measures.keys() - CULPRIT, "Refused": CULPRIT}

    first = await asking.ask(measures)

    assert by_quality(first) == left_out
    (bad,) = (judged_one(first[place]) for place in CULPRIT)
    assert bad.message.startswith("this Server is left out of shared queries for 10 measurements")
    assert bad.message.endswith(str(error))
    assert "\n" not in bad.message
    for _ in range(8):
        table.asked.clear()
        assert by_quality(await asking.ask(measures)) == left_out
        assert len(table.asked) <= QUERIES

    table.failing = {}
    table.serve("culprit", "team-3", delta={"0": 1.0}, count_over_time=ALIVE)
    for _ in range(10):
        results = await asking.ask(measures)

    assert by_quality(results) == {"Fresh": set(measures)}


async def test_slow_answers_about_some_servers_accuse_nobody_who_is_answered_alone(
    table: Table,
) -> None:
    measures = fleet(table)
    table.seconds = {"m03": 5.0}  # slower than the search is patient, and within the time limit
    table.failing = {'model_name!=""': UnavailableError("http://p: no answer within 10 s")}
    asking = survey(table)

    for _ in range(12):
        assert "Refused" not in by_quality(await asking.ask(measures))


@pytest.mark.parametrize(
    ("running", "twice", "told"),
    [
        (1.0, True, "has several series, where one was expected"),
        (-1.0, False, ""),
        (1e308, False, ""),
    ],
)
async def test_series_that_cannot_be_leave_out_their_server_and_no_other(
    table: Table, running: float, twice: bool, told: str
) -> None:
    measures = with_a_culprit(table)
    parts = {**ALIVE, "running": running}
    table.serve("culprit", "team-3", delta={"0": 4.0}, count_over_time=parts)
    table.twice = {("culprit", "team-3")} if twice else set()

    results = await survey(table).ask(measures)

    assert by_quality(results) == {"Fresh": measures.keys() - CULPRIT, "Refused": CULPRIT}
    (bad,) = (judged_one(results[place]) for place in CULPRIT)
    assert told in bad.message


async def test_a_prometheus_that_refuses_everything_is_not_asked_about_ever_smaller_groups(
    table: Table,
) -> None:
    table.failing = {"": RefusedError("the answer is not JSON")}

    results = await survey(table).ask(fleet(table))

    assert set(by_quality(results)) == {"Refused"}
    assert len(table.asked) <= 3


async def test_a_prometheus_that_is_down_is_asked_once_for_all_groups(table: Table) -> None:
    measures = fleet(table)
    for number in range(20):
        labels = {"model_name": "m", f"label_{number}": "x"}
        measures[key(f"s{number}")] = Measure.model_validate({"source": "vLLM", "labels": labels})
    table.failing = {"": UnavailableError("http://p: no answer within 10 s")}

    results = await survey(table).ask(measures)

    assert set(by_quality(results)) == {"Stale"}
    assert len(table.asked) <= 3


async def test_many_servers_that_fail_are_found_over_some_surveys(table: Table) -> None:
    measures = fleet(table)
    table.failing = {name: RefusedError("HTTP 422") for name in ("m03", "m17", "m31")}
    asking = survey(table)

    for _ in range(10):
        results = await asking.ask(measures)

    failing = {place for place in measures if place.name in table.failing}
    assert by_quality(results) == {"Fresh": measures.keys() - failing, "Refused": failing}


@pytest.mark.parametrize(
    ("servers", "parts"), [(1000, 1), pytest.param(10_000, 6, marks=pytest.mark.extended)]
)
async def test_servers_with_large_answers_are_asked_about_in_parts_that_are_named(
    table: Table, servers: int, parts: int
) -> None:
    models = [f"meta-llama/a-model-with-a-long-name-{number:06}" for number in range(servers)]
    measures = {key(f"s{number}"): vllm(model) for number, model in enumerate(models)}
    asking = survey(table)
    await asking.ask(measures)
    table.asked.clear()

    await asking.ask(measures)

    asked = [text for text in table.asked if "inferno_part" in text]
    assert parts * 4 <= len(asked) <= parts * 7
    whole = [text for text in asked if 'model_name!=""' in text]
    assert len(whole) == (len(asked) if parts == 1 else 0)


def test_a_query_is_small_whatever_the_labels_are() -> None:
    long = {f"label_{n:02}{'x' * 240}": "\x00" * 255 for n in range(MAX_LABELS)}
    values = tuple(tuple(f"{text}{n}" for text in long.values()) for n in range(1000))
    for source in read_built_in_sources().values():
        for is_part in (False, True):
            group = SeriesGroup("any", source, tuple(long), values, is_part)
            queries = [
                promql.arrivals(group, 60, 60, "load"), promql.means(group, WINDOWS),
                promql.replicas(group, WINDOWS), promql.last_seen(group, 3600),
                promql.percentiles(group, 0.95, 300), promql.buckets(group, "avgInTokens", 300),
            ]  # fmt: skip
            sizes = [len(query.expression.encode()) for query in queries if query]
            assert max(sizes) < 8 * 2**20  # Prometheus takes forms of 10 MB
