"""A real Prometheus and simulated replicas that it scrapes."""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from tests.controlplane.processes import Processes
from tests.engines.fleet import Fleet
from tests.engines.history import Scraping, answering, write_scrapes
from tests.engines.prometheus import Prometheus


class ServePast(Protocol):
    """Starts a Prometheus whose past has some lines of the OpenMetrics format."""

    def __call__(
        self, name: str, lines: Iterable[str], scraping: Scraping
    ) -> AbstractContextManager[Prometheus]: ...


@pytest.fixture(scope="module")
def serve_past(processes: Processes, prometheus_program: Path, promtool: Path) -> ServePast:
    def serve(
        name: str, lines: Iterable[str], scraping: Scraping
    ) -> AbstractContextManager[Prometheus]:
        text = processes.folder / f"{name}.openmetrics"
        write_scrapes(text, lines)
        return answering(processes, (prometheus_program, promtool), text, scraping)

    return serve


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
