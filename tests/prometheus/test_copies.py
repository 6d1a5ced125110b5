"""Copies of series change nothing of what is measured, whatever the source and the label."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import pytest

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.calibration.replicas import LabelledReplicas, PrometheusWindows
from inferno_operator.controllers.calibration.windows import Pair
from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import MetricSource, catalogue_with, read_built_in_sources
from inferno_operator.engines.demand import DemandSurvey
from inferno_operator.engines.past import Span, read_loads
from inferno_operator.engines.survey import Results, Survey
from inferno_operator.resources import DemandSource, Measure, Measured
from inferno_operator.resources.objects import Key
from inferno_optimizer.calibration.windows import Window
from tests.engines.clocked import Clocked
from tests.engines.history import SCRAPE_INTERVAL_S, Scraping
from tests.engines.pages import BEFORE_S, SGLANG, VLLM, Labels, Row, Served
from tests.engines.prometheus import Prometheus
from tests.prometheus.conftest import ServePast

END = 1_767_225_600.0
"""Unix time about which Prometheus is asked [s]."""

LENGTH_S = 900
SCRAPED_AT = range(0, LENGTH_S + 1, SCRAPE_INTERVAL_S)
SOURCES = read_built_in_sources()
WRITERS: Mapping[str, tuple[Labels, ...]] = {
    "alone": ({},),
    "pair": ({"prometheus_replica": "a"}, {"prometheus_replica": "b"}),
    "one of a pair without a label": ({}, {"replica": "b"}),
    "three": ({"writer": "a"}, {"writer": "b"}, {"writer": "c", "zone": "z"}),
    "two jobs": ({"job": "engines"}, {"job": "pods"}),
}
"""The labels of those who write each series."""

SAID = {
    "pair": "each target has 2 copies, they differ in prometheus_replica",
    "one of a pair without a label": "each target has 2 copies, they differ in replica",
    "three": "each target has 3 copies, they differ in writer and zone",
    "two jobs": "each target has 2 copies, they differ in job",
}
Series = tuple[str, str, float, float, float]
"""A writer and a pod; when its series begin and end, and when the engine restarts [s]."""

NEVER = -1.0
MOTIONS: Mapping[str, tuple[str, tuple[Series, ...]]] = {
    "scraped at other times": ("Fresh", (("a", "p", 0, 900, NEVER), ("b", "p", 0, 900, NEVER))),
    "scraped rarely": ("Fresh", (("a", "p", 0, 900, NEVER), ("rarely", "p", 0, 900, NEVER))),
    "one has begun": ("Fresh", (("a", "p", 0, 900, NEVER), ("b", "p", 860, 900, NEVER))),
    "one has ended": ("Partial", (("a", "p", 0, 900, NEVER), ("b", "p", 0, 800, NEVER))),
    "renamed": ("Partial", (("a", "p", 0, 750, NEVER), ("b", "p", 751, 900, NEVER))),
    "the pod is replaced": (
        "Fresh",
        tuple((w, *pod) for w in "ab" for pod in (("p", 0, 780, NEVER), ("q", 781, 900, 781))),
    ),
    "the engine restarts": ("Fresh", (("a", "p", 0, 900, 800), ("b", "p", 0, 900, 800))),
}
"""What happens to the copies of a replica that serves 5 requests/s, and the quality then."""

ENGINE = {"instance": "10.0.0.1:8000", "namespace": "n", "pod": "p"}
COLLECTED = {f"exported_{label}": value for label, value in ENGINE.items()}
TWICE: Mapping[str, tuple[Labels, ...]] = {
    "a job names no pod": (ENGINE, {**ENGINE, "pod": ""}),
    "a job names the namespace otherwise": (
        ENGINE,
        {"instance": ENGINE["instance"], "kubernetes_namespace": "n", "pod": "p"},
    ),
    "two clusters": ({**ENGINE, "cluster": "east"}, {**ENGINE, "cluster": "west"}),
    "two collectors": tuple(
        {**COLLECTED, "instance": f"{name}:9464", "pod": name, "namespace": "c"} for name in "ab"
    ),
}
"""The targets of one engine that cannot be told from two engines."""

UNLIKE = "a label of the engine that is not known"
BOUNDS = ("0.01", "0.1", "1", "10", "100", "1000", "+Inf")


def rows(source: MetricSource, passed: int) -> Iterator[Row]:
    """All series of a source, with labels that its conditions demand."""
    counters: dict[str, tuple[str, float]] = {}
    for term in (term for alternative in source.arrivals for term in alternative):
        counters |= dict.fromkeys(term.rate[:1], (term.where, 4.0))
        for name in term.growth[:1]:
            yield name, _labels(term.where), 20.0 + 2.0 * passed
    for means in source.means.values():
        for mean in means[:1]:
            if mean.ratio:
                counters |= {name: (mean.where, 3.0 - n) for n, name in enumerate(mean.ratio)}
            else:
                yield from _histogram(f"{mean.metric}", mean.where, passed)
    for name, (where, rate) in counters.items():
        yield name, _labels(where), rate * passed
    for name in source.heartbeat:
        yield name, {}, 1.0
    for gauge in source.gauges.values():
        yield (gauge.sum or gauge.average)[0], {}, 0.5


def _histogram(name: str, where: str, passed: int) -> Iterator[Row]:
    labels = _labels(where)
    for place, bound in enumerate(BOUNDS):
        yield f"{name}_bucket", {**labels, "le": bound}, passed * (place + 1.0)
    yield f"{name}_count", labels, passed * len(BOUNDS)
    yield f"{name}_sum", labels, 0.3 * passed


def _labels(where: str) -> Labels:
    """The labels that a condition demands, with the first value that it allows."""
    found = re.findall(r'(\w+)=~?"([^"]+)"', where)
    return {name: re.sub(r"\(.*?\)\??|\|.*", "", value) for name, value in found}


def lines(passed: int) -> Iterator[str]:
    at = END - LENGTH_S + passed
    for name, source in SOURCES.items():
        page: dict[tuple[object, ...], Row] = {}
        for row in rows(source, passed):
            page.setdefault((row[0], *sorted(row[1].items())), row)
        for writers, labels in WRITERS.items():
            for pod in range(2):
                for writer in labels:
                    yield from _lines(page.values(), {**_target(name, writers, pod), **writer}, at)
    yield from _lines_in_motion(passed)
    for tenant in (1, 3):  # no copies: the load is four
        served, own = Served(rate=1.0 * tenant), {"tenant": str(tenant)}
        page_rows = SGLANG.rows(passed, served, **own)
        yield from _lines(page_rows, _target("SGLang", UNLIKE, 0), at)
    for name, targets in TWICE.items():
        for target in targets:
            yield from _lines(VLLM.rows(passed, Served()), {**target, "app": f"vLLM {name}"}, at)
    yield from _lines_of_calibration(passed, at)


def _lines_of_calibration(passed: int, at: float) -> Iterator[str]:
    for pod in range(2):
        for writer in WRITERS["pair"]:
            target = {**_target("vLLM", "calibrated", pod), **writer}
            for engine in ("0", "1"):
                page_rows = VLLM.rows(passed, Served(), engine=engine)
                yield from _lines(page_rows, target, at)
                prefill = _histogram("vllm:request_prefill_time_seconds", "", passed)
                yield from _lines(prefill, target | {"model_name": "llama", "engine": engine}, at)


def _lines_in_motion(passed: int) -> Iterator[str]:
    for name, (_, series) in MOTIONS.items():
        for writer, pod, begin, end, restart in series:
            now = passed - 7 * (writer == "b")
            if begin <= now <= end and (writer != "rarely" or now % 60 == 15):
                target = {**_target("vLLM", name, 0), "pod": pod, "prometheus_replica": writer}
                is_new = 0 <= restart <= now
                page_rows = VLLM.rows(now - restart - BEFORE_S if is_new else now, Served())
                yield from _lines(page_rows, target, END - LENGTH_S + now)


def _target(source: str, writers: str, pod: int) -> dict[str, str]:
    name = f"{source}-{writers}-{pod}"
    return {"job": "engines", "instance": name, "pod": name, "app": f"{source} {writers}"}


def _lines(page: Iterable[Row], target: Labels, at: float) -> Iterator[str]:
    for name, own, value in page:
        text = ",".join(f'{key}="{text}"' for key, text in {**own, **target}.items())
        yield f"{name}{{{text}}} {value} {at:.3f}\n"


@pytest.fixture(scope="module")
def unmarked(serve_past: ServePast) -> Iterator[Prometheus]:
    """Where another one writes the series: each is there for five minutes after its end."""
    past = chain.from_iterable(map(_lines_in_motion, SCRAPED_AT))
    with serve_past("unmarked", past, Scraping()) as server:
        yield server


@pytest.fixture(scope="module")
def scraped(serve_past: ServePast) -> Iterator[Prometheus]:
    scraping = Scraping(options=("--query.lookback-delta=32s",))  # as if ends were marked
    past = chain.from_iterable(map(lines, SCRAPED_AT))
    with serve_past("copies", past, scraping) as server:
        yield server


def measure(app: str, source: str) -> Measure:
    return Measure.model_validate({"source": source, "labels": {"app": app}})


def key(name: str) -> Key:
    return Key("default", name)


def survey(prometheus: Prometheus, measures: Mapping[Key, Measure]) -> Results:
    """Ask a Prometheus at the end of its past."""

    async def ask() -> Results:
        async with connect(PrometheusEndpoint(prometheus.url)) as client:
            return await Survey(Clocked(client, END), SOURCES, lambda: END).ask(measures)

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def results(scraped: Prometheus) -> Results:
    """What is measured of every source with all its writers, by the value of its label."""
    measures = {
        key(f"{name} {writers}"): measure(f"{name} {writers}", name)
        for name in SOURCES
        for writers in WRITERS
    }
    measures |= {key(name): measure(f"vLLM {name}", "vLLM") for name in (*MOTIONS, *TWICE)}
    measures[key(UNLIKE)] = measure(f"SGLang {UNLIKE}", "SGLang")

    return survey(scraped, measures)


def judged(results: Results, name: str) -> Measured:
    result = results[key(name)]
    return judge_reading(result.reading, result.source, None, result.hint)


@pytest.mark.parametrize("writers", [name for name in WRITERS if name != "alone"])
@pytest.mark.parametrize("source", SOURCES)
def test_all_numbers_are_the_same_with_copies(source: str, writers: str, results: Results) -> None:
    alone, copied = (results[key(f"{source} {name}")].reading for name in ("alone", writers))
    answers = {name: dict(parts) for name, parts in copied.answers.items()}
    count = answers["replicas"].pop("copies")

    assert answers == {name: pytest.approx(parts) for name, parts in alone.answers.items()}
    assert alone.answers["replicas"]["reporting"] == 2
    assert any(alone.answers["load long"].values())
    assert count == len(WRITERS[writers])
    assert copied.copies == SAID[writers]
    assert judged(results, f"{source} {writers}").message == SAID[writers]
    assert judged(results, f"{source} alone").message == ""


@pytest.mark.parametrize("name", [name for name in MOTIONS if name != "scraped rarely"])
def test_copies_that_begin_and_end_count_once(name: str, results: Results) -> None:
    found = judged(results, name)

    assert found.quality == MOTIONS[name][0], found.message
    assert found.arrival_rate == pytest.approx(300, rel=0.05)
    assert found.running == 5


@pytest.mark.parametrize(
    "name", ["scraped at other times", "scraped rarely", "one has ended", "renamed"]
)
def test_copies_whose_ends_are_not_marked_count_once(name: str, unmarked: Prometheus) -> None:
    measures = {key(name): measure(f"vLLM {name}", "vLLM")}

    found = judged(survey(unmarked, measures), name)

    assert found.quality == MOTIONS[name][0], found.message
    assert found.arrival_rate == pytest.approx(300, rel=0.05)
    assert "INFERNO_MEASURE_SOURCES" not in found.message  # they are no parts of the work


@pytest.mark.parametrize("name", TWICE)
def test_targets_of_one_engine_that_look_like_two_are_told(name: str, results: Results) -> None:
    found = judged(results, name)

    assert found.quality == "Partial"
    assert "targets that count twice: 1" in found.message


def test_series_that_are_no_copies_may_grow_plans_only(results: Results) -> None:
    found = judged(results, UNLIKE)

    assert found.quality == "Partial"
    assert "each target has 2 copies, they differ in tenant" in found.message
    assert "INFERNO_MEASURE_SOURCES" in found.message


def test_a_source_of_ones_own_without_parts_adds_up_those_of_all_sources(tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(
        "Mine: {heartbeat: [up], arrivals: [[{rate: [done]}]]}\n"
        "Exact: {heartbeat: [up], arrivals: [[{rate: [done]}]], parts: [lane]}\n"
    )

    found = catalogue_with(file)

    assert {label for source in SOURCES.values() for label in source.parts} == {
        *found["Mine"].parts
    }
    assert {"engine", "dp_rank", "finished_reason"} <= {*found["Mine"].parts}
    assert found["Mine"].replicas == SOURCES["RayServeLLM"].replicas
    assert (found["Exact"].parts, found["Exact"].replicas) == (("lane",), ())


GATEWAYS = [name for name, source in SOURCES.items() if source.without_replicas]


@pytest.mark.parametrize("source", GATEWAYS)
def test_demand_is_the_same_with_copies(source: str, scraped: Prometheus) -> None:
    sources = {
        key(writers): DemandSource(source=source, labels={"app": f"{source} {writers}"})
        for writers in WRITERS
    }

    async def ask() -> list[float | None]:
        async with connect(PrometheusEndpoint(scraped.url)) as client:
            found = await DemandSurvey(Clocked(client, END), SOURCES).ask(sources)
            return [found[each].requests for each in sources]

    requests = asyncio.run(ask())

    assert requests[0]
    assert requests == pytest.approx([requests[0]] * len(WRITERS))


def test_the_past_is_the_same_with_copies(scraped: Prometheus) -> None:
    measures = {writers: measure(f"vLLM {writers}", "vLLM") for writers in WRITERS}

    async def read() -> list[float]:
        async with connect(PrometheusEndpoint(scraped.url)) as client:
            span = Span(END - 300, END, 60)
            loads, _ = await read_loads(measures, client, SOURCES, span, lambda _: None)
            return [float(loads[writers].rate[-1]) for writers in WRITERS]

    rates = asyncio.run(read())

    assert rates[0] > 0
    assert rates == pytest.approx([rates[0]] * len(WRITERS), rel=0.01)


def test_calibration_adds_up_engines_and_counts_copies_once(scraped: Prometheus) -> None:
    pair = Pair("default", "llama", "H100")
    replicas = [LabelledReplicas({"app": "vLLM calibrated"}, pair)]

    async def read() -> list[Window]:
        async with connect(PrometheusEndpoint(scraped.url)) as client:
            windows = PrometheusWindows(Clocked(client, END), lambda: replicas)
            return list((await windows.read())[pair])

    windows = asyncio.run(read())

    assert len(windows) == 2
    for window in windows:
        assert window.intervals == pytest.approx(2 * 5 * 60, rel=0.01)
        assert window.input_tokens == pytest.approx(500)
