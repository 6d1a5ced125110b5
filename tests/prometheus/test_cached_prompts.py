"""The share of cached tokens that a real Prometheus tells of counters that change."""

from pathlib import Path

import pytest

from inferno_operator.engines.catalogue import CACHED_SHARE, read_built_in_sources
from inferno_operator.engines.promql import means
from inferno_operator.engines.series_groups import PART, WINDOWS, SeriesGroup
from tests.controlplane.processes import Processes
from tests.engines.prometheus import Prometheus
from tests.engines.promtool import Promtool

INTERVAL_S = 15
END = 1_767_225_600.0
"""Unix time of the last scrape, about which Prometheus is asked [s]."""

LENGTH_S = 4200
LATELY_S = 120
"""So long there is another share than before."""

TOKENS_PER_S = 1000
SHARES = {
    "steady": (0.6, 0.6, 0.6),
    "restarted": (0.6, 0.6, 0.1),
    "warmer": (0.2, 0.2, 0.6),
    "often low": (0.3, 0.6, 0.6),
    "cold": (0.0, 0.0, 0.0),
}
"""The share in a quarter of the hour, in the rest of it, and lately."""

LOW_S = 1500


def hits(passed: int, low: float, usual: float, lately: float) -> float:
    """The counter of cached tokens after some seconds."""
    early, late = min(passed, LOW_S), max(passed - (LENGTH_S - LATELY_S), 0)
    return TOKENS_PER_S * (low * early + usual * (passed - early - late) + lately * late)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory, promtool: Path) -> Path:
    folder = tmp_path_factory.mktemp("cached")
    with (folder / "past").open("w") as file:
        for passed in range(INTERVAL_S, LENGTH_S + 1, INTERVAL_S):
            for name, shares in SHARES.items():
                labels = f'{{job="engines",instance="{name}",model_name="{name}"}}'
                at = f"{END - LENGTH_S + passed:.3f}"
                asked = TOKENS_PER_S * passed
                file.write(f"vllm:prefix_cache_queries_total{labels} {asked} {at}\n")
                file.write(f"vllm:prefix_cache_hits_total{labels} {hits(passed, *shares)} {at}\n")
        file.write("# EOF\n")
    Promtool(promtool).create_blocks(folder / "past", folder / "data")
    return folder / "data"


def test_the_share_falls_with_a_restart_and_is_not_above_what_it_often_was_in_an_hour(
    processes: Processes, prometheus_program: Path, past: Path
) -> None:
    group = SeriesGroup(
        "vLLM",
        read_built_in_sources()["vLLM"],
        ("model_name",),
        tuple((name,) for name in sorted(SHARES)),
    )
    query = means(group, WINDOWS)
    assert query is not None

    with Prometheus(processes, prometheus_program, name="cached", data=past) as prometheus:
        found = {
            s.labels["model_name"]: s.value
            for s in prometheus.query(query.expression, END)
            if s.labels[PART] == CACHED_SHARE
        }

    assert found["steady"] == pytest.approx(0.6, abs=0.01)
    assert found["restarted"] == pytest.approx(0.1, abs=0.01)  # not 0.4, the mean of five minutes
    assert found["warmer"] == pytest.approx(0.2, abs=0.01)  # as in most of the hour
    assert found["often low"] == pytest.approx(0.3, abs=0.05)  # nor 0.6, the mean of five minutes
    assert found["cold"] == 0
