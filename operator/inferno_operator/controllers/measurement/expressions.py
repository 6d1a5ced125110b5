"""Builds PromQL for many servers at once; values of labels are quoted, never pasted.

Servers whose series have the same names of labels share each query: the answer has one series
for each combination of values, and the label `inferno_part` says which part of the answer a
series is.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from inferno_operator.controllers.measurement.catalogue import OfReplicas, Quotient, Source, Term
from inferno_operator.runtime.prometheus import is_label_name, quoted
from inferno_optimizer.errors import InputError

PART = "inferno_part"
"""The label that says which part of an answer a series is."""

VALUES_NAMED = 50
"""If there are more values of a label, the query of a whole group selects all its values."""

LONGEST_SELECTOR = 2**13
LONGEST_SELECTOR_OF_PART = 2**16
"""Largest size of a selector [bytes]: a query has up to forty, and Prometheus takes 10 MB."""

PERCENTILES = (0.5, 0.95, 0.99)

MARGIN_SECONDS = 15
"""Age of the newest sample [s], beyond two scrape intervals, up to which it is fresh."""

ENOUGH_REQUESTS = 20
"""Requests of which a mean is taken from the short window."""

STEP_SECONDS = 60
"""Time between two moments at which the newest sample is looked for [s]."""

BUCKETS = "buckets "
"""Prefix of the names of queries for the buckets of a histogram."""

TIMES = ("itlAverage", "ttftAverage", "waitAverage")
"""Means with percentiles."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of rates [s]: `short` to see an increase at once, `long` for a steady load."""

    short: int = 60
    long: int = 300


WINDOWS = Windows()
"""The default windows."""


Identity = tuple[str, tuple[str, ...]]
"""The name of a source, and the names of the labels of its series."""


@dataclass(frozen=True)
class Group:
    """Servers of one source whose series have the same names of labels.

    `labels` are the names in order, `values` the values of each server. The queries of a part of
    a larger group name its values, so that the answers are about nobody else.
    """

    name: str
    source: Source
    labels: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    is_part: bool = False

    @property
    def identity(self) -> Identity:
        """What the group has in common."""
        return self.name, self.labels

    @cached_property
    def selector(self) -> str:
        """Matchers that select the series of all servers of the group, of limited size."""
        limit = LONGEST_SELECTOR_OF_PART if self.is_part else LONGEST_SELECTOR
        matchers = {label: self._matcher(n, limit) for n, label in enumerate(self.labels)}
        for label in sorted(matchers, key=lambda label: len(matchers[label]), reverse=True):
            if len(",".join(matchers.values()).encode()) <= limit:
                break
            matchers[label] = f'{label}!=""'
        return ",".join(matchers.values())

    def _matcher(self, number: int, limit: int) -> str:
        label, values = self.labels[number], sorted({each[number] for each in self.values})
        if len(values) == 1:
            return f"{label}={quoted(values[0])}"
        few = len(values) <= VALUES_NAMED or self.is_part
        if few and sum(map(len, values)) <= limit:
            return f"{label}=~{quoted('|'.join(map(re.escape, values)))}"
        return f'{label}!=""'

    @property
    def by(self) -> str:
        """The clause that keeps the labels of the group."""
        return f"by ({', '.join(self.labels)})"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression for a group, by name; `is_signed` if numbers may be negative, as a slope."""

    group: Group
    name: str
    expression: str
    is_signed: bool = False


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Return names of labels in order.

    Raises
    ------
    InputError
        A name is not a valid name of a label.
    """
    names = tuple(sorted(labels))
    for name in names:
        if not is_label_name(name) or name == PART:
            raise InputError(f"spec.measure.labels: {name!r} is not a name of a label")
    return names


def arrivals(group: Group, seconds: int, name: str) -> Query:
    """Return the query for arrival rates; part i is the i-th alternative of the source."""
    parts = (
        (str(number), _sum(group, terms, seconds))
        for number, terms in enumerate(group.source.arrivals)
    )
    return Query(group, name, _union(parts), is_signed=True)


def means(group: Group, windows: Windows) -> Query | None:
    """Return the query for means; None if the source has none.

    Times are those of the short window if enough requests ended in it, else of the long one;
    tokens are those of the long window.
    """
    parts = [
        (
            quantity,
            " or ".join(_mean(group, item, windows, is_time=quantity in TIMES) for item in items),
        )
        for quantity, items in group.source.means.items()
    ]
    return Query(group, "means", _union(parts)) if parts else None


def replicas(group: Group, seconds: int) -> Query:
    """Return the query for gauges and for the replicas; `seconds` is the long window.

    Most servers have the first two parts only. Parts: the gauges by name; `reporting` replicas;
    `absent` replicas, which have reported in the window, are still targets, and do not report
    now; `young`, the replicas of a server of which none was known before the window; `late`, the
    time of the newest sample [s] of a server that is not scraped in time; and once, without
    labels, `interval`: the time between two scrapes [s] of nearly all servers at most.
    """
    heartbeat, older = _each(group, "{}"), _each(group, f"{{}} offset {seconds}s")
    recent = _each(group, f"last_over_time({{}}[{seconds}s])")
    samples = f"max {group.by} ({_each(group, f'count_over_time({{}}[{seconds}s])')})"
    newest = f"max {group.by} ({_each(group, 'timestamp({})')})"
    target = f"group by (job, instance, {', '.join(group.labels)})"
    reporting = f"count {group.by} ({target} ({heartbeat}))"
    known = f"({target} ({recent})) and on (job, instance) up"
    parts = [
        *((name, _gauge(group, gauge)) for name, gauge in group.source.gauges.items()),
        ("reporting", reporting),
        ("absent", f"(count {group.by} ({known}) - {reporting} > 0)"),
        ("young", f"({reporting} unless count {group.by} ({older}))"),
        ("late", f"({newest} < time() - {MARGIN_SECONDS} - 2 * {seconds} / {samples})"),
        ("interval", f"quantile(0.95, {seconds} / ({samples} and count {group.by} ({older})))"),
    ]
    return Query(group, "replicas", _union(parts))


def last_seen(group: Group, seconds: int) -> Query:
    """Return the query for servers that do not report now, but did in the last seconds.

    Parts: `known` replicas; `newest`, the time of the newest sample [s], which is only looked
    for at some moments, so that it is absent for replicas that ended at once.
    """
    known = _each(group, f"last_over_time({{}}[{seconds}s])")
    newest = _each(group, f"max_over_time(timestamp({{}})[{seconds}s:{STEP_SECONDS}s])")
    parts = [
        ("known", f"count {group.by} ({known})"),
        ("newest", f"max {group.by} ({newest})"),
    ]
    return Query(group, "last seen", _union(parts))


def percentiles(group: Group, share: float, seconds: int) -> Query | None:
    """Return the query for a percentile of the times; None if the source has none."""
    parts = [
        (quantity, " or ".join(_percentile(group, item, share, seconds) for item in histograms))
        for quantity in TIMES
        if (histograms := [i for i in group.source.means.get(quantity, ()) if i.metric])  # type: ignore[call-overload]  # any text may be asked for
    ]
    return Query(group, f"p{share * 100:g}", _union(parts)) if parts else None


def buckets(group: Group, quantity: str, seconds: int) -> Query | None:
    """Return the query for the buckets of a histogram; None if the source has none."""
    items = group.source.means.get(quantity, ())  # type: ignore[call-overload]  # as above
    histograms = [item.metric for item in items if item.metric]
    if not histograms:
        return None
    by = f"by (le, {', '.join(group.labels)})"
    rates = (f"rate({name}_bucket{{{group.selector}}}[{seconds}s])" for name in histograms)
    return Query(group, f"{BUCKETS}{quantity}", " or ".join(f"sum {by} ({rate})" for rate in rates))


def _union(parts: Iterable[tuple[str, str]]) -> str:
    return " or ".join(
        f'label_replace({expression}, "{PART}", "{name}", "", "")' for name, expression in parts
    )


def _selected(group: Group, metric: str, where: str = "") -> str:
    matchers = ",".join(filter(None, (group.selector, where)))
    return f"{metric}{{{matchers}}}"


def _each(group: Group, template: str) -> str:
    """A function of each metric of the heartbeat; `{}` in the template is the selector."""
    return " or ".join(template.format(_selected(group, name)) for name in group.source.heartbeat)


def _sum(group: Group, terms: Iterable[Term], seconds: int) -> str:
    """The sum of terms; a term without series counts as 0, if another one has series."""
    numbered = enumerate(_term(group, term, seconds) for term in terms)
    return f"sum {group.by} ({_union((str(number), text) for number, text in numbered)})"


def _term(group: Group, term: Term, seconds: int) -> str:
    function = "rate" if term.rate else "deriv"
    return " or ".join(
        f"sum {group.by} ({function}({_selected(group, name, term.where)}[{seconds}s]))"
        for name in term.rate or term.growth
    )


def _mean(group: Group, item: Quotient, windows: Windows, *, is_time: bool) -> str:
    long = _quotient(group, item, windows.long, "> 0")
    if not is_time:
        return long
    least = ENOUGH_REQUESTS / windows.short
    return f"{_quotient(group, item, windows.short, f'>= {least:g}')} or {long}"


def _quotient(group: Group, item: Quotient, seconds: int, condition: str) -> str:
    """A mean in a window, for servers whose rate of the denominator meets a condition."""
    above, below = (
        f"sum {group.by} (rate({_selected(group, name, item.where)}[{seconds}s]))"
        for name in item.counters
    )
    return f"({above} / ({below} {condition}))"


def _gauge(group: Group, gauge: OfReplicas) -> str:
    function = "sum" if gauge.sum else "avg"
    names = gauge.sum or gauge.average
    return " or ".join(f"{function} {group.by} ({_selected(group, name)})" for name in names)


def _percentile(group: Group, item: Quotient, share: float, seconds: int) -> str:
    by = f"by (le, {', '.join(group.labels)})"
    selected = _selected(group, f"{item.metric}_bucket", item.where)
    return f"histogram_quantile({share:g}, sum {by} (rate({selected}[{seconds}s])))"
