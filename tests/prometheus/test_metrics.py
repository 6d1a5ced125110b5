"""What simulated engines answer to a scrape, read by the tool of Prometheus."""

from pathlib import Path

import numpy as np
import pytest

from tests.engines.engine import Engine
from tests.engines.exposition import Dialect
from tests.engines.promtool import Promtool
from tests.engines.replica import Replica
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM, VLLM_OLD
from tests.engines.workload import Uniform, Workload

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
    replica = Replica(
        Engine(8.0, 0.1, 20.0, 0.0008),
        Workload(Uniform(256, 768), Uniform(100, 300)),
        dialect.bounds,
        np.random.default_rng(1),
    )
    replica.set_rate(5.0, 0.0)
    replica.advance(60.0)

    problems = Promtool(promtool).check_metrics(dialect.page(replica, "granite"))

    assert [said for said in problems if said and not said.endswith(NAMES)] == []
