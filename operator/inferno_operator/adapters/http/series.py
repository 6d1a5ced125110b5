"""Series that are replaced together: those of an optimization, or of a measurement."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


Row = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels without the namespace, and its value."""


def replaced(name: str, labels: tuple[str, ...], text: str) -> Metric:
    """Return a metric of a namespace whose series are replaced together."""
    return Metric(f"inferno_{name}", "gauge", ("namespace", *labels), text)


class ReplacedSeries(Collector):
    """Collects the series of metrics from rows that are read whenever the metrics are printed.

    Parameters
    ----------
    metrics
        The metrics; each has the namespace as its first label.
    rows
        Returns the rows of each namespace, in the order in which they are printed.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        rows: Callable[[], Iterable[tuple[str, Iterable[Row]]]],
    ) -> None:
        self._metrics = tuple(metrics)
        self._rows = rows

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return all metrics, without samples."""
        return self._families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return all metrics, with a sample for each series."""
        families = self._families()
        for namespace, rows in self._rows():
            for metric, labels, value in rows:
                families[metric].add_metric((namespace, *labels), value)
        return families.values()

    def _families(self) -> dict[Metric, GaugeMetricFamily]:
        return {
            metric: GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for metric in self._metrics
        }
