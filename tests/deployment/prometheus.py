"""A history of real scrapes in the database of a real Prometheus."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tests.controlplane.processes import Processes
from tests.engines.prometheus import Prometheus
from tests.engines.promtool import Promtool


@dataclass(frozen=True, slots=True)
class Scrape:
    """A page of metrics, and what Prometheus knows of where it got it, at a time [s]."""

    seconds: int
    page: str
    job: str
    pod: str

    def metrics(self) -> Iterator[Metric]:
        """What Prometheus would keep; labels of the page win, as the manifests ask for."""
        target = {"job": self.job, "pod": self.pod, "namespace": "inferno-system"}
        for family in text_string_to_metric_families(self.page):
            for sample in family.samples:
                metric = Metric(sample.name, "", "unknown")
                labels = {**target, **sample.labels}
                metric.add_sample(sample.name, labels, sample.value, self.seconds)
                yield metric


class Histories:
    """Prometheus servers, one for each set of scrapes; a context manager.

    Parameters
    ----------
    prometheus, promtool
        Paths of the programs.
    """

    def __init__(self, prometheus: Path, promtool: Path) -> None:
        self._program = prometheus
        self._promtool = Promtool(promtool)
        self._numbers = itertools.count(1)
        self._servers: dict[tuple[Scrape, ...], Prometheus] = {}

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._processes = self._stack.enter_context(Processes())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, scrapes: Sequence[Scrape]) -> Prometheus:
        """A Prometheus that has seen these scrapes, and nothing else."""
        key = tuple(sorted(scrapes, key=lambda scrape: scrape.seconds))
        if key not in self._servers:
            self._servers[key] = self._start(key)
        return self._servers[key]

    def _start(self, scrapes: Iterable[Scrape]) -> Prometheus:
        name = f"prometheus-{next(self._numbers)}"
        text = self._processes.folder / f"{name}.openmetrics"
        page = generate_latest(_Pages(scrapes))  # type: ignore[no-untyped-call]  # it has no types
        text.write_bytes(page)
        data = self._processes.folder / f"{name}-data"
        self._promtool.create_blocks(text, data)
        prometheus = Prometheus(self._processes, self._program, name=name, data=data)
        return self._stack.enter_context(prometheus)


@dataclass(frozen=True, slots=True)
class _Pages(Collector):
    scrapes: Iterable[Scrape]

    def collect(self) -> Iterator[Metric]:
        for scrape in self.scrapes:
            yield from scrape.metrics()
