"""A real Prometheus reads what simulated engines answer, and every query of a source."""

from pathlib import Path

import pytest

from inferno_operator.engines import promql as expressions
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.series_groups import WINDOWS, SeriesGroup
from tests.controlplane.waiting import wait_until
from tests.engines.engine import Engine
from tests.engines.exposition import Dialect
from tests.engines.fleet import Fleet, Settings
from tests.engines.prometheus import Prometheus
from tests.engines.promtool import Promtool
from tests.engines.replica import loaded_replica
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM, VLLM_OLD
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(8.0, 0.1, 20.0, 0.0008)
WORKLOAD = Workload(Uniform(256, 768), Uniform(50, 150))


def value(prometheus: Prometheus, expression: str, at: float | None = None) -> float:
    (sample,) = prometheus.query(expression, at)
    return sample.value


def test_a_killed_replica_is_down_and_a_new_one_counts_from_zero(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    old = Settings(ENGINE, WORKLOAD, "granite", VLLM_OLD)
    server = fleet.add("killed", old, replicas=1, rate=20.0)
    prometheus.set_targets(fleet.targets())
    prometheus.wait_for_scrapes()
    wait_until(
        lambda: value(prometheus, "vllm:generation_tokens_total{pod='killed-0'}"),
        lambda tokens: tokens > 0,
        "tokens",
    )
    server.kill("killed-0")
    server.set_rate(0.0)  # so that its counter is below the last one, however late it is scraped
    prometheus.wait_for_scrapes(down=["killed-0"])

    assert prometheus.query("vllm:generation_tokens_total{pod='killed-0'}") == []

    server.start("killed-0")
    prometheus.wait_for_scrapes()

    resets = "resets(vllm:generation_tokens_total{pod='killed-0'}[10m])"
    assert value(prometheus, resets) == 1


# What simulated engines answer to a scrape, read by the tool of Prometheus


NAMES = (
    "metric names should not contain ':'",
    "metric name should not include type 'histogram'",
    'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix',
)
"""What promtool has against the names that the engines have chosen."""


@pytest.mark.parametrize("dialect", [VLLM, VLLM_OLD, SGLANG])
def test_promtool_has_nothing_against_the_metrics_but_their_names(
    dialect: Dialect, promtool: Path
) -> None:
    replica = loaded_replica(dialect.bounds)

    problems = Promtool(promtool).check_metrics(dialect.page(replica, "granite"))

    assert [said for said in problems if said and not said.endswith(NAMES)] == []


# Every expression is one that Prometheus itself can read


LABELS = "model_name", "namespace"


@pytest.mark.parametrize("values", [(("m", "prod"),), (('"', "a|b"), ("ü", "test"))])
@pytest.mark.parametrize("name", sorted(read_built_in_sources()))
def test_every_query_of_every_source_is_parsed(
    prometheus: Prometheus, name: str, values: tuple[tuple[str, ...], ...]
) -> None:
    group = SeriesGroup(name, read_built_in_sources()[name], LABELS, values)
    queries = [
        expressions.arrivals(group, WINDOWS.short, WINDOWS.short, "short"),
        expressions.arrivals(group, WINDOWS.long, WINDOWS.short, "long"),
        expressions.means(group, WINDOWS),
        expressions.replicas(group, WINDOWS),
        expressions.known_since(group, WINDOWS.long, 15),
        expressions.last_seen(group, 3600),
        expressions.percentiles(group, 0.95, WINDOWS.long),
        expressions.buckets(group, "avgInTokens", WINDOWS.long),
        expressions.demand(group, WINDOWS.long),
        expressions.unlike_copies(group, WINDOWS.short),
        expressions.labels_of_copies(group),
    ]

    asked = [query for query in queries if query is not None]

    assert len(asked) >= 5
    for query in asked:
        assert prometheus.selectors(query.expression)
