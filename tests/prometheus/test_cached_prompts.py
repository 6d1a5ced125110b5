"""The share of cached tokens that a real Prometheus tells of counters that change."""

import time
from pathlib import Path

import pytest

from inferno_operator.engines.catalogue import CACHED_SHARE, built_in
from inferno_operator.engines.promql import PART, WINDOWS, SeriesGroup, means
from tests.controlplane.processes import Processes
from tests.engines.prometheus import Prometheus
from tests.engines.promtool import Promtool

INTERVAL_S = 15
LENGTH_S = 600
LATELY_S = 120
"""So long there is another share than before."""

TOKENS_PER_S = 1000
SHARES = {"steady": (0.6, 0.6), "restarted": (0.6, 0.1), "warmer": (0.2, 0.6), "cold": (0.0, 0.0)}
"""The share before, and lately."""


def hits(passed: int, before: float, lately: float) -> float:
    """The counter of cached tokens after some seconds."""
    late = max(passed - (LENGTH_S - LATELY_S), 0)
    return TOKENS_PER_S * (before * (passed - late) + lately * late)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory, promtool: Path) -> Path:
    folder = tmp_path_factory.mktemp("cached")
    now = time.time()
    with (folder / "past").open("w") as file:
        for passed in range(INTERVAL_S, LENGTH_S + 1, INTERVAL_S):
            for name, shares in SHARES.items():
                labels = f'{{job="engines",instance="{name}",model_name="{name}"}}'
                at = f"{now - LENGTH_S + passed:.3f}"
                asked = TOKENS_PER_S * passed
                file.write(f"vllm:prefix_cache_queries_total{labels} {asked} {at}\n")
                file.write(f"vllm:prefix_cache_hits_total{labels} {hits(passed, *shares)} {at}\n")
        file.write("# EOF\n")
    Promtool(promtool).create_blocks(folder / "past", folder / "data")
    return folder / "data"


def test_the_share_falls_with_a_restart_and_rises_when_it_is_higher_for_long(
    processes: Processes, prometheus_program: Path, past: Path
) -> None:
    group = SeriesGroup(
        "vLLM", built_in()["vLLM"], ("model_name",), tuple((name,) for name in sorted(SHARES))
    )
    query = means(group, WINDOWS)
    assert query is not None

    with Prometheus(processes, prometheus_program, name="cached", data=past) as prometheus:
        found = {
            s.labels["model_name"]: s.value
            for s in prometheus.query(query.expression)
            if s.labels[PART] == CACHED_SHARE
        }

    assert found["steady"] == pytest.approx(0.6, abs=0.01)
    assert found["restarted"] == pytest.approx(0.1, abs=0.01)  # not 0.4, the mean of five minutes
    assert 0.2 < found["warmer"] < 0.45  # not 0.6, the mean of one minute
    assert found["cold"] == 0
