"""What Prometheus answers about one server, before it is judged; pure."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from sys import intern

from inferno_operator.engines.promql import MARGIN_SECONDS, OWN, Query
from inferno_operator.engines.series_groups import PART, WINDOWS, RateWindows, SeriesGroup
from inferno_operator.runtime.prometheus import QueryResult, RefusedError, Sample
from inferno_operator.runtime.texts import shortened

Values = tuple[str, ...]
"""The values of the labels of a group."""

Parts = Mapping[str, float]
"""The parts of an answer by name; parts without a series are absent."""


ReadingsByValues = Mapping[Values, Parts]
"""The parts of an answer for each server of a group."""

LOAD_BRIEF, LOAD_SHORT, LOAD_LONG = "load brief", "load short", "load long"
MEANS, REPLICAS, COPIES, SINCE, LAST_SEEN, CUSTOM_ANSWERS, COVS = (
    "means",
    "replicas",
    "copies",
    "known since",
    "last seen",
    "custom",
    "covs",
)
"""Names of queries."""

WARNINGS = 5
"""Most warnings of Prometheus that are reported about a server."""

LARGEST = 1e10
"""Largest plausible number: beyond every rate, length and count, and beyond a Unix time [s]."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The answers about one server.

    Parameters
    ----------
    answers
        The parts of each answer, by the name of the query.
    refused, unavailable
        Why Prometheus refused a query, or did not answer; "" if it answered all.
    warnings
        Warnings of Prometheus: answers may be incomplete.
    time
        When Prometheus evaluated the queries, Unix time [s].
    windows
        The windows of the queries.
    interval
        The time between two scrapes [s]; 0: not known.
    copies
        That each series has copies, and in what they differ; "" if it has none.
    """

    answers: Mapping[str, Parts] = field(default_factory=dict)
    refused: str = ""
    unavailable: str = ""
    warnings: tuple[str, ...] = ()
    time: float = 0.0
    windows: RateWindows = WINDOWS
    interval: float = 0.0
    copies: str = ""

    def part(self, query: str, part: str) -> float | None:
        """Return a part of an answer; None if it is absent, NaN or infinite."""
        value = self.answers.get(query, {}).get(part)
        return None if value is None or not math.isfinite(value) else value

    @property
    def grace_s(self) -> float:
        """Time in which Prometheus certainly begins to scrape a pod that became ready [s]."""
        return 2 * self.interval + MARGIN_SECONDS

    @property
    def is_young(self) -> bool:
        """Whether all replicas are known for less than the long window."""
        return self.part(REPLICAS, "young") is not None

    @property
    def is_unused(self) -> bool:
        """Whether the replicas wait for their first request."""
        return self.part(REPLICAS, "unused") == 0.0

    @property
    def doubts(self) -> Iterator[str]:
        """Why series that there are may tell less than what arrives."""
        if self.part(COPIES, "unlike"):
            yield (
                f"{self.copies}, but they count different requests: one is behind, or that label"
                " tells parts of the work; if this stays, add it to parts of a source of your own"
                " (INFERNO_MEASURE_SOURCES)"
            )
        if twice := self.part(REPLICAS, "twice"):
            yield (
                f"targets that count twice: {twice:g}, as a job of Prometheus lacks the label pod"
                " or namespace, several collectors export them, or their label cluster differs;"
                " remove one of them, or name the cluster in spec.measure.labels"
            )
        if self.part(REPLICAS, "unused"):
            yield "requests run or wait, but no counter of requests has a series yet"


def by_server(group: SeriesGroup, samples: Sequence[Sample]) -> Mapping[Values, dict[str, float]]:
    """Return the parts of an answer for each combination of labels that it has."""
    parts: defaultdict[Values, dict[str, float]] = defaultdict(dict)
    values = _values_of(group)
    for sample in samples:
        parts[values(sample)][sample.labels.get(PART, "")] = sample.value
    return parts


def parts_of(query: Query, answer: QueryResult) -> ReadingsByValues:
    """Return the parts of an answer for each server of a group; those of nobody have no labels.

    Raises
    ------
    RefusedError
        Two series are the same part, or a number is not plausible: the answer is not what was
        asked for, and half of it would count as less load.
    """
    by_values: dict[Values, dict[str, float]] = {
        values: {} for values in _list_servers(query.group)
    }
    values_of, is_signed = _values_of(query.group), query.is_signed
    for sample in answer.samples:  # there may be 50,000, so nothing is called that need not be
        values = values_of(sample)
        parts = by_values.get(values)
        if parts is None:
            continue
        part, value = intern(sample.labels.get(PART, "")), sample.value
        if part in parts:
            raise RefusedError(
                f"{_describe(query, values)} has several series, where one was expected"
            )
        if not 0.0 <= value <= LARGEST and not is_plausible(value, signed=is_signed):
            raise RefusedError(f"{_describe(query, values)} is {value:g}, which cannot be")
        parts[part] = value
    return {values: parts for values, parts in by_values.items() if parts}


def describe_copies(count: float, labels: str) -> str:
    """Return what to say of copies; `labels` are those in which they differ, "" if not known."""
    differ = f", they differ in {labels}" if labels else ""
    return f"each target has {count:g} copies{differ}"


def find_differing_labels(group: SeriesGroup, samples: Sequence[Sample]) -> Mapping[Values, str]:
    """Return the names of the labels in which copies of a series differ, for each server."""
    rows: defaultdict[tuple[Values, Values], list[Mapping[str, str]]] = defaultdict(list)
    values_of, parts = _values_of(group), ("__name__", *group.part_labels)
    for sample in samples:
        own = (label for label in sample.labels if label.startswith(OWN))
        part = tuple(sample.labels.get(label, "") for label in (*parts, *sorted(own)))
        rows[values_of(sample), part].append(sample.labels)
    found: defaultdict[Values, dict[str, None]] = defaultdict(dict)
    for (values, _), copies in rows.items():
        names = sorted({name for labels in copies for name in labels})
        found[values] |= {n: None for n in names if len({c.get(n, "") for c in copies}) > 1}
    return {values: " and ".join(names) for values, names in found.items()}


def cov_by_server(query: Query, answer: QueryResult) -> Mapping[Values, float]:
    """Return the coefficient of variation of a histogram for each server of a group.

    Within a bucket, values count as evenly distributed; the last bucket, which has no upper
    bound, counts as its lower bound.

    Raises
    ------
    RefusedError
        The series are not those of buckets.
    """
    rows: defaultdict[Values, dict[float, float]] = defaultdict(dict)
    for values, sample in _select_of_group(query.group, answer):
        try:
            bound = float(sample.labels["le"])
        except (KeyError, ValueError) as error:
            raise RefusedError(
                f"{_describe(query, values)} has a series without a bound"
            ) from error
        if bound in rows[values]:
            raise RefusedError(f"{_describe(query, values)} has a bucket twice")
        if math.isfinite(sample.value):
            rows[values][bound] = sample.value
    covs = ((key, coefficient_of_variation(sorted(row.items()))) for key, row in rows.items())
    return {key: cov for key, cov in covs if cov is not None}


def merge_warnings(warnings: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return the first of the warnings of several answers, each once."""
    return tuple(dict.fromkeys((*warnings, *more)))[:WARNINGS]


def is_plausible(value: float, *, signed: bool = False) -> bool:
    """Whether a number may be what it is said to be; NaN and infinity are no number at all."""
    return not math.isfinite(value) or (-LARGEST if signed else 0.0) <= value <= LARGEST


def _list_servers(group: SeriesGroup) -> tuple[Values, ...]:
    """The servers of a group, and nobody."""
    return *group.values, ("",) * len(group.labels)


def _select_of_group(group: SeriesGroup, answer: QueryResult) -> Iterator[tuple[Values, Sample]]:
    """Yield the samples of the servers of a group, and those of nobody."""
    of_group, values_of = frozenset(_list_servers(group)), _values_of(group)
    return ((v, sample) for sample in answer.samples if (v := values_of(sample)) in of_group)


def _describe(query: Query, values: Values) -> str:
    pairs = ", ".join(f"{n}={v}" for n, v in zip(query.group.labels, values, strict=True))
    return f"{query.group.name}: {query.name} of {{{shortened(pairs)}}}"


def coefficient_of_variation(buckets: Sequence[tuple[float, float]]) -> float | None:
    """Return the coefficient of variation of a histogram; None if it is empty.

    Parameters
    ----------
    buckets
        The upper bound of each bucket and the number of values up to it, in order.
    """
    if not buckets:
        return None
    below, counted, total, first, second = 0.0, 0.0, buckets[-1][1], 0.0, 0.0
    if total <= 0:
        return None
    for bound, cumulative in buckets:
        above = bound if math.isfinite(bound) else below
        share = (cumulative - counted) / total
        first += share * (below + above) / 2
        second += share * (below * below + below * above + above * above) / 3
        below, counted = above, cumulative
    return math.sqrt(max(0.0, second / (first * first) - 1)) if first > 0 else None


def _values_of(group: SeriesGroup) -> Callable[[Sample], Values]:
    """Return a function that returns the values of the labels of the group; "" if absent."""
    labels = group.labels
    if len(labels) == 1:
        (label,) = labels
        return lambda sample: (sample.labels.get(label, ""),)
    several: Callable[[Mapping[str, str]], Values] = itemgetter(*labels)

    def values(sample: Sample) -> Values:
        try:
            return several(sample.labels)  # much faster than one by one
        except KeyError:
            return tuple(sample.labels.get(label, "") for label in labels)

    return values
