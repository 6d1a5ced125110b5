"""What Prometheus answers about one server, before it is judged; pure."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from inferno_operator.controllers.measurement.expressions import PART, WINDOWS, Group, Windows
from inferno_operator.runtime.prometheus import Answer, Sample

Values = tuple[str, ...]
"""The values of the labels of a group."""

Parts = Mapping[str, float]
"""The parts of an answer by name; parts without a series are absent."""


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
    """

    answers: Mapping[str, Parts] = field(default_factory=dict)
    refused: str = ""
    unavailable: str = ""
    warnings: tuple[str, ...] = ()
    time: float = 0.0
    windows: Windows = WINDOWS

    def part(self, query: str, part: str) -> float | None:
        """Return a part of an answer; None if it is absent, NaN or infinite."""
        value = self.answers.get(query, {}).get(part)
        return None if value is None or not math.isfinite(value) else value


def by_server(group: Group, samples: Sequence[Sample]) -> Mapping[Values, dict[str, float]]:
    """Return the parts of an answer for each combination of labels of a group."""
    found: defaultdict[Values, dict[str, float]] = defaultdict(dict)
    values = _values_of(group)
    for sample in samples:
        found[values(sample)][sample.labels.get(PART, "")] = sample.value
    return found


def cov_by_server(group: Group, answer: Answer) -> Mapping[Values, float]:
    """Return the coefficient of variation of a histogram for each server of a group.

    Within a bucket, values count as evenly distributed; the last bucket, which has no upper
    bound, counts as its lower bound.
    """
    values, rows = _values_of(group), defaultdict(list)
    for sample in answer.samples:
        if math.isfinite(sample.value):
            rows[values(sample)].append((float(sample.labels["le"]), sample.value))
    covs = ((key, coefficient_of_variation(sorted(row))) for key, row in rows.items())
    return {key: cov for key, cov in covs if cov is not None}


def coefficient_of_variation(buckets: Sequence[tuple[float, float]]) -> float | None:
    """Return the coefficient of variation of a histogram; None if it is empty.

    Parameters
    ----------
    buckets
        The upper bound of each bucket and the number of values up to it, in order.
    """
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


def _values_of(group: Group) -> Callable[[Sample], Values]:
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
