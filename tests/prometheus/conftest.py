"""A real Prometheus and simulated replicas that it scrapes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.processes import Processes
from tests.engines.fleet import Fleet
from tests.engines.prometheus import Prometheus


@pytest.fixture(scope="module")
def prometheus(processes: Processes, prometheus_program: Path) -> Iterator[Prometheus]:
    with Prometheus(
        processes, prometheus_program, name=f"shared-{time.monotonic_ns()}"
    ) as prometheus:
        yield prometheus


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(seed=1) as fleet:
        yield fleet
