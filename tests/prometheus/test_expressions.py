"""Every expression is one that Prometheus itself can read."""

import pytest

from inferno_operator.engines import promql as expressions
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.series_groups import WINDOWS, SeriesGroup
from tests.engines.prometheus import Prometheus

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
