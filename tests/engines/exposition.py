"""How an engine tells what it has counted: metrics with names, labels and buckets of its own.

`prometheus_client` writes the text, as it does for the engines.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tests.engines.histogram import Histogram
from tests.engines.replica import Bounds, Replica

Labels = Callable[[str], dict[str, str]]
"""The labels of a series, for the name of the model."""


@dataclass(frozen=True, slots=True)
class Single:
    """A metric with one series: its kind, name, help and labels, and its value."""

    kind: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    text: str
    labels: Labels
    value: Callable[[Replica], float]

    def collect(self, replica: Replica, model_name: str) -> Metric:
        """Its present value."""
        labels = self.labels(model_name)
        family = self.kind(self.name, self.text, labels=list(labels))
        family.add_metric(list(labels.values()), self.value(replica))
        return family


Gauge = partial(Single, GaugeMetricFamily)
Counter = partial(Single, CounterMetricFamily)
"""A counter; its name is without `_total`."""


@dataclass(frozen=True, slots=True)
class Completions:
    """A counter with a series for each reason for which requests end."""

    name: str
    text: str
    labels: Labels
    label: str

    def collect(self, replica: Replica, model_name: str) -> Metric:
        """Its present values."""
        labels = self.labels(model_name)
        family = CounterMetricFamily(self.name, self.text, labels=[*labels, self.label])
        for reason, number in {**replica.totals.completions, "abort": 0}.items():
            family.add_metric([*labels.values(), reason], number)
        return family


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram: its name, help and labels, and its values."""

    name: str
    text: str
    labels: Labels
    values: Callable[[Replica], Histogram]

    def collect(self, replica: Replica, model_name: str) -> Metric:
        """Its present buckets and sum."""
        labels, values = self.labels(model_name), self.values(replica)
        family = HistogramMetricFamily(self.name, self.text, labels=list(labels))
        family.add_metric(list(labels.values()), values.buckets(), values.sum)
        return family


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine names what it counts.

    Attributes
    ----------
    families
        Its metrics.
    bounds
        Of its histograms.
    """

    families: tuple[Single | Completions | Distribution, ...]
    bounds: Bounds

    def page(self, replica: Replica, model_name: str) -> bytes:
        """What the engine answers to a scrape."""
        return generate_latest(_Page([f.collect(replica, model_name) for f in self.families]))


@dataclass(frozen=True, slots=True)
class _Page(Collector):
    metrics: list[Metric]

    def collect(self) -> Iterator[Metric]:
        return iter(self.metrics)


def labels_with(**more: str) -> Labels:
    """The name of the model and other labels, which are always the same."""
    return lambda model_name: {"model_name": model_name, **more}


def kv_usage(replica: Replica) -> float:
    """Used part of the KV cache."""
    return replica.kv_tokens / replica.engine.kv_tokens
