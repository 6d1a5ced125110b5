"""How an engine tells what it has counted: metrics with names, labels and buckets of its own.

`prometheus_client` writes the text, as it does for the engines.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from tests.engines.replica import Bounds, Histogram, Replica

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

    def values(self, replica: Replica) -> Iterable[float]:
        return (self.value(replica),)


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
        for reason, number in replica.totals.completions.items():
            family.add_metric([*labels.values(), reason], number)
        return family

    def values(self, replica: Replica) -> Iterable[float]:
        return replica.totals.completions.values()


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram: its name, help and labels, and its values."""

    name: str
    text: str
    labels: Labels
    histogram: Callable[[Replica], Histogram]

    def collect(self, replica: Replica, model_name: str) -> Metric:
        """Its present buckets and sum."""
        labels, histogram = self.labels(model_name), self.histogram(replica)
        family = HistogramMetricFamily(self.name, self.text, labels=list(labels))
        family.add_metric(list(labels.values()), histogram.buckets(), histogram.sum)
        return family

    def values(self, replica: Replica) -> Iterable[float]:
        """Its present buckets, count and sum."""
        histogram = self.histogram(replica)
        counts = histogram.cumulative()
        return (*counts, counts[-1], histogram.sum)


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
        return generate_latest(_Families([f.collect(replica, model_name) for f in self.families]))


class Page:
    """The page of one replica after another of the same model.

    `prometheus_client` writes the first one. In the later ones only the values are replaced,
    which takes a quarter of the time: a fleet writes many pages a second.
    """

    def __init__(self, dialect: Dialect, model_name: str) -> None:
        self._dialect = dialect
        self._model_name = model_name
        self._texts: list[str] = []  # before, between and after the values

    def write(self, replica: Replica) -> bytes:
        """What the engine answers to a scrape."""
        if not self._texts:
            page = self._dialect.page(replica, self._model_name)
            self._texts = _texts_around_values(page.decode())
        values = (value for family in self._dialect.families for value in family.values(replica))
        pairs = zip(self._texts, map(_text_of, values), strict=False)  # one more text
        return "".join([*chain.from_iterable(pairs), self._texts[-1]]).encode()


_text_of = lru_cache(1 << 16)(floatToGoString)
"""A value as text; most of them are counts in buckets, which come again and again."""


def _texts_around_values(page: str) -> list[str]:
    texts = [""]
    for line in page.splitlines(keepends=True):
        if line.startswith("#"):
            texts[-1] += line
        else:
            texts[-1] += line.rpartition(" ")[0] + " "
            texts.append("\n")
    return texts


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    metrics: list[Metric]

    def collect(self) -> Iterator[Metric]:
        return iter(self.metrics)


def labels_with(**more: str) -> Labels:
    """The name of the model and other labels, which are always the same."""
    return lambda model_name: {"model_name": model_name, **more}


def kv_usage(replica: Replica) -> float:
    """Used part of the KV cache."""
    return replica.kv_tokens / replica.engine.kv_tokens
