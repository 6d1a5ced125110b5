"""What simulated engines answer to a scrape, read by the tool of Prometheus."""

from pathlib import Path

import pytest

from tests.engines.exposition import Dialect
from tests.engines.promtool import Promtool
from tests.engines.replica import loaded_replica
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM, VLLM_OLD

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
