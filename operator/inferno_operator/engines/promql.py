"""Builds PromQL for groups of servers; pure.

The answer has one series for each combination of values of the labels of a group, and the label
`inferno_part` says which part of the answer a series is.

One rule holds for counters, gauges and histograms of all sources: the series of a target that
differ in labels of `parts` or `replicas` of the source are parts of its work and are added up. Over
any other label they are copies, such as those of a second Prometheus, and the largest counts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from inferno_operator.engines.catalogue import (
    ACCEPTED_SHARE,
    CACHED_SHARE,
    ITL_OF_REQUESTS,
    OfReplicas,
    Quotient,
    Term,
)
from inferno_operator.engines.series_groups import PART, RateWindows, SeriesGroup

PERCENTILES = (0.5, 0.95, 0.99)

MARGIN_SECONDS = 15
"""Age of the newest sample [s], beyond two scrape intervals, up to which it is fresh."""

ENOUGH_REQUESTS = 20
"""Requests of which a mean is taken from the short window."""

SCRAPES = 4
"""Scrape intervals that the short window has at least."""

EXTRAPOLATED = 1.1
"""Scrape intervals up to which `rate` and `delta` extrapolate to the ends of their window."""

UP = ("job", "instance", "cluster", "namespace", "pod")
"""Labels that `up` shares with the series of a target; all but the first two may be absent."""

ADDRESS = ("instance", "namespace", "pod")
"""Labels that tell the targets of a cluster apart."""

START = "process_start_time_seconds"
"""When a process started, as most libraries of metrics say it."""

STEP_SECONDS = 60
"""Time between two moments at which the newest sample is looked for [s]."""

LOW_QUANTILE, LOW_SECONDS = 0.1, 3600
"""Plans count on this quantile of the shares of cached tokens in this time [s]."""

FEW, FEW_COUNT = "few ", "number of few "
"""Prefixes of the parts with means of few requests, and with their number."""

OWN = "inferno_own_"
"""Prefix of labels that only a metric has, whatever its target calls them."""

BUCKETS = "buckets "
"""Prefix of the names of queries for the buckets of a histogram."""

TIMES = ("itlAverage", "ttftAverage", "waitAverage")
"""Means with percentiles."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression for a group, by name; `is_signed` if numbers may be negative, as a slope."""

    group: SeriesGroup
    name: str
    expression: str
    is_signed: bool = False


def arrivals(group: SeriesGroup, seconds: int, before: int, name: str) -> Query:
    """Return the query for arrival rates; part i is the i-th alternative of the source.

    Parameters
    ----------
    group
        The servers.
    seconds
        The window [s].
    before
        How long before the window the sample may be that a gauge had at its begin [s].
    name
        Name of the query.
    """
    parts = (
        (str(number), _sum(group, terms, seconds, before))
        for number, terms in enumerate(group.source.arrivals)
    )
    return Query(group, name, _union(parts), is_signed=True)


def means(group: SeriesGroup, windows: RateWindows) -> Query | None:
    """Return the query for means; None if the source has none.

    Times are those of the short window if enough requests ended in it, else of the long one;
    tokens are those of the long window. If few requests ended in it, their mean and their number
    are parts of their own. The share of accepted tokens is the lower one of both windows; that of
    cached tokens is not above a low quantile of the last hour either.
    """
    parts = [
        (name, " or ".join(text(item) for item in items))
        for quantity, items in group.source.means.items()
        for name, text in _means(group, quantity, windows)
    ]
    return Query(group, "means", _union(parts)) if parts else None


def replicas(group: SeriesGroup, windows: RateWindows) -> Query:
    """Return the query for gauges and for the replicas.

    Most servers have the first two parts only. Parts: the gauges by name; `reporting` replicas;
    `pods`, whose newest sample is fresh, unless they are as many as these; `absent` replicas, which
    have reported in the long window, are targets whose scrapes fail, and do not report now; `moved`
    targets, which had more copies in the long window than now; `restarting` replicas, whose
    counters began anew again and again in it; `young`, the replicas of a server of which none was
    known before the window; `late`, the time of the newest sample [s] of a server that is not
    scraped in time; `newest`, the same where `rate` and `delta` do not extrapolate to the end of
    their window; `copies` of each series, if there are several; `unused`, if no counter of requests
    has a series, the most requests that ran or waited in the long window; `twice`, the targets that
    may be the same as others; and once, without labels, `interval`: the time between two scrapes
    [s] of nearly all servers.
    """
    seconds, recently = windows.long, windows.short // SCRAPES
    heartbeat = _alive(group)
    older = _each(group, f"last_over_time({{}}[{windows.short}s] offset {seconds}s)")
    samples = f"max {group.by} ({_each(group, f'count_over_time({{}}[{seconds}s])')})"
    newest = f"max {group.by} ({_each(group, 'timestamp({})')})"
    of_replicas = ", ".join((group.of_targets, *group.source.replicas))
    reporting = f"count {group.by} (group by ({of_replicas}) ({heartbeat}))"
    absent = f"{_failing(group, seconds)} unless {_targets(heartbeat, group)}"
    usual = f"{seconds} / ({samples} and count {group.by} ({older}))"
    between = f"min {group.by} ({_interval(group, recently)}) or {usual}"
    since = f"time() - {MARGIN_SECONDS} - 2 * {seconds} / {samples}"
    copies = (_number_of_copies(group, *each) for each in _copied_series(group))
    parts = [
        *((name, _gauge(group, gauge)) for name, gauge in group.source.gauges.items()),
        ("reporting", reporting),
        *_pods(group, reporting, since),
        ("absent", f"count {group.by} ({absent})"),
        ("moved", f"count {group.by} ({_of_changed_labels(group, seconds)})"),
        *_restarting(group, seconds),
        ("young", f"({reporting} unless count {group.by} ({older}))"),
        ("late", f"({newest} < {since})"),
        ("newest", f"({newest} < time() - {EXTRAPOLATED} * {seconds} / {samples})"),
        ("copies", f"(max {group.by} ({' or '.join(copies)}) > 1)"),
        *_unused(group, seconds),
        ("twice", _counted_twice(group)),
        ("interval", f"quantile(0.95, {between})"),
    ]
    return Query(group, "replicas", _union(parts))


def _targets(expression: str, group: SeriesGroup) -> str:
    """One series of each target."""
    return f"group by ({group.of_targets}) ({expression})"


def _largest(expression: str, group: SeriesGroup, own: Sequence[str] = ()) -> str:
    """One series of each part of the work of a target: the largest of its copies."""
    return f"max by ({_parts_with(own, group)}) ({_with_own(expression, own)})"


def _parts_with(own: Sequence[str], group: SeriesGroup) -> str:
    return ", ".join((*group.part_labels, *(OWN + label for label in own)))


def _with_own(expression: str, own: Sequence[str]) -> str:
    """The series with labels of their metric, whose names the target may have taken."""
    for label in own:
        for name in (label, f"exported_{label}"):
            expression = f'label_replace({expression}, "{OWN}{label}", "$1", "{name}", "(.+)")'
    return expression


def _counted_twice(group: SeriesGroup) -> str:
    """Addresses with and without the name of a pod, or of several clusters or collectors."""
    names = group.source.heartbeat

    def by(*labels: str) -> str:
        return f"by ({', '.join(dict.fromkeys((*labels, *group.labels)))})"

    def having(*conditions: str) -> str:
        return " or ".join(_any_of(group, names, condition) for condition in conditions)

    def repeated(which: str, labels: Sequence[str], *others: str) -> str:
        return f"count {by(*labels)} (group {by(*labels, *others)} ({which})) > 1"

    exported = [f"exported_{label}" for label in ADDRESS]
    unnamed, named = having('pod=""', 'namespace=""'), having('pod!="",namespace!=""')
    twice = (
        f"group {by('instance')} ({unnamed}) and group {by('instance')} ({named})",
        repeated(_alive(group), (*ADDRESS, *exported), "cluster", "k8s_cluster_name"),
        repeated(having('exported_instance!=""', 'exported_pod!=""'), exported, "instance"),
    )
    return f"count {group.by} ({' or '.join(twice)})"


def _pods(group: SeriesGroup, reporting: str, since: str) -> Iterator[tuple[str, str]]:
    """The part for pods, which may have several targets; one that names no pod is one of its own.

    Where another Prometheus writes the series, nothing marks their ends, and each is there for
    minutes after its target is gone: what counts is the time of its newest sample.
    """
    if group.source.without_replicas or "instance" in group.labels:
        return
    places = (
        ("exported_pod", 'exported_pod!=""'),  # of a collector, whose own pod is `pod`
        ("pod", 'exported_pod="",pod!=""'),
        ("instance", 'exported_pod="",pod=""'),
    )
    names = {
        label: ", ".join(dict.fromkeys(("cluster", "namespace", label, *group.labels)))
        for label, _ in places
    }
    newest = " or ".join(
        f"max by ({names[label]}) ({_each(group, 'timestamp({})', where)})"
        for label, where in places
    )
    fresh = f"({newest}) > on ({', '.join(group.labels)}) group_left () ({since})"
    yield "pods", f"(count {group.by} ({fresh}) != {reporting})"


def _of_changed_labels(group: SeriesGroup, seconds: int) -> str:
    """The parts of targets that had more copies than have fresh samples now.

    When a label changes, such as the name of a job, all counters begin anew, and Prometheus does
    not mark their ends; where another one writes the series, they are there for minutes.
    """
    labels = f"(__name__, {group.of_parts})"
    before = f"count by {labels} ({_each(group, f'last_over_time({{}}[{seconds}s])')})"
    due = f"timestamp({{0}}) + 2 * {seconds} / count_over_time({{0}}[{seconds}s])"
    fresh = f"({_each(group, due)}) > time() - {MARGIN_SECONDS}"
    now = f"({_alive(group)}) and ignoring (__name__) ({fresh})"
    return f"{before} > on {labels} count by {labels} ({now})"


def _alive(group: SeriesGroup) -> str:
    """The series of the heartbeat as they are now, by one selector."""
    return _any_of(group, group.source.heartbeat)


def _any_of(group: SeriesGroup, names: Sequence[str], where: str = "") -> str:
    if len(names) == 1:
        return _selected(group, names[0], where)
    return _selected(group, "", ",".join(filter(None, (f'__name__=~"{"|".join(names)}"', where))))


def _counters(group: SeriesGroup) -> list[Term]:
    """The counters of requests: the first term of each alternative."""
    return [terms[0] for terms in group.source.arrivals if terms[0].rate]


def _copied_series(group: SeriesGroup) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The series whose copies are counted, by a selector for each way to count requests.

    Each comes with the labels that only its metric has.
    """
    counters = ((_any_of(group, each.rate, each.where), each.parts) for each in _counters(group))
    return dict([(_alive(group), ()), *counters]).items()


def _number_of_copies(group: SeriesGroup, series: str, own: Sequence[str]) -> str:
    """How many copies there are of each part of the work of a target."""
    return f"count by (__name__, {_parts_with(own, group)}) ({_with_own(series, own)})"


def _unused(group: SeriesGroup, seconds: int) -> Iterator[tuple[str, str]]:
    """The part for servers that report before their first request is counted."""
    counters = " or ".join(_any_of(group, each.rate, each.where) for each in _counters(group))
    gauges = (group.source.gauges.get(name) for name in ("running", "waiting"))
    busy = [
        f"max_over_time({_selected(group, name)}[{seconds}s])"
        for gauge in gauges
        if gauge
        for name in gauge.sum
    ]
    if counters:
        requests = " or ".join([*busy, f"0 * group {group.by} ({_alive(group)})"])
        yield "unused", f"(max {group.by} ({requests}) unless count {group.by} ({counters}))"


def unlike_copies(group: SeriesGroup, seconds: int) -> Query | None:
    """Return the query for series that are no copies; None without counters.

    Part: `unlike`, the counters whose copies differ by more than they count in a window.
    """
    selected = {
        _selected(group, name, term.where): term.parts
        for term in _counters(group)
        for name in term.rate
    }
    texts = []
    for each, own in selected.items():
        by = f"by ({_parts_with(own, group)})"
        now, before = _with_own(each, own), _with_own(f"{each} offset {seconds}s", own)
        counted = f"max {by} ({now}) - max {by} ({before})"
        texts.append(f"(max {by} ({now}) - min {by} ({now}) > 0) > {counted}")
    parts = [("unlike", f"count {group.by} ({' or '.join(texts)})")]
    return Query(group, "copies", _union(parts)) if selected else None


def labels_of_copies(group: SeriesGroup) -> Query:
    """Return the query for the copies of a series, of one target of each server."""
    texts = (
        f"{_with_own(each, own)} and on (__name__, {_parts_with(own, group)})"
        f" topk {group.by} (1, {_number_of_copies(group, each, own)} > 1)"
        for each, own in _copied_series(group)
    )
    return Query(group, "labels of copies", " or ".join(texts))


def _restarting(group: SeriesGroup, seconds: int) -> Iterator[tuple[str, str]]:
    """The part for targets whose counters began at 0 more than once; nothing without counters.

    What is lost each time, and what ends before it is scraped, is in no rate. The histogram of
    first tokens sees a replica that restarts before any request ends. A counter that is as large
    again when it is scraped does not show it: the start of the process does, which has the labels
    of the target only.
    """
    source = group.source
    counters = [name for terms in source.arrivals for term in terms for name in term.rate]
    counters += [item.counters[1] for item in source.means.get("ttftAverage", ())]
    if counters:
        each = (f"resets({_selected(group, name)}[{seconds}s]) > 1" for name in counters)
        started = f"changes({START}{{{group.selector_by(UP)}}}[{seconds}s]) > 1"
        again = f"({_alive(group)}) and on ({', '.join(UP)}) {started}"
        texts = [*dict.fromkeys(each), again]
        targets = " or ".join(_targets(text, group) for text in texts)
        yield "restarting", f"count {group.by} ({targets})"


def _failing(group: SeriesGroup, seconds: int) -> str:
    """The targets that have reported in the last seconds and whose scrapes fail now.

    `up` need not have the labels that name a pod; but those that it has are the same, because
    pods of several namespaces or clusters may have the same address.
    """
    reported = f"({_each(group, f'last_over_time({{}}[{seconds}s])')})"
    return _targets(
        f"{reported} and on ({', '.join(UP)}) (up == 0)"
        f' or {reported} and on (job, instance, cluster) (up{{namespace="",pod=""}} == 0)',
        group,
    )


def _interval(group: SeriesGroup, seconds: int) -> str:
    """The time between the last scrapes of each replica [s]."""
    return _each(
        group,
        f"(timestamp({{0}}) - timestamp({{0}} offset {seconds}s))"
        f" / count_over_time({{0}}[{seconds}s])",
    )


def known_since(group: SeriesGroup, seconds: int, interval: int) -> Query:
    """Return the query for what is known of servers in the last seconds.

    The interval is that between two scrapes [s] at least: a sample that is older than two of
    them is one from before an interruption. Parts: `since` and `until`, the times of the first
    and of the newest sample [s]; `samples`, the most that there are of a replica.
    """
    sample = f"timestamp({{}}) > time() - {2 * interval}"
    first = _each(group, f"min_over_time(({sample})[{seconds}s:{interval}s])")
    newest = _each(group, "timestamp({})")
    samples = _each(group, f"count_over_time({{}}[{seconds}s])")
    parts = [
        ("since", f"min {group.by} ({first})"),
        ("until", f"max {group.by} ({newest})"),
        ("samples", f"max {group.by} ({samples})"),
    ]
    return Query(group, "known since", _union(parts))


def scrapes(group: SeriesGroup, seconds: int) -> str:
    """Return the expression for the most samples that a replica has in some seconds."""
    return f"max ({_each(group, f'count_over_time({{}}[{seconds}s])')})"


def demand(group: SeriesGroup, seconds: int) -> Query:
    """Return the query for requests that wait or run now, and those that arrived in a window.

    The parts are the terms of arrivals. A counter that has just begun, such as with the first
    request after a gateway started, counts as a whole: `increase` does not see where it began.
    """
    terms = (term for alternative in group.source.arrivals for term in alternative)
    parts = (
        f"sum {group.by} ({_largest(text, group, term.parts)})"
        for term in terms
        for text in _demanded(group, term, seconds)
    )
    return Query(group, "demand", _union((str(n), text) for n, text in enumerate(parts)))


def _demanded(group: SeriesGroup, term: Term, seconds: int) -> Iterator[str]:
    for name in term.growth:
        yield _selected(group, name, term.where)
    for name in term.rate:
        counter = _selected(group, name, term.where)
        yield f"({counter} unless {counter} offset {seconds}s) or increase({counter}[{seconds}s])"


def last_seen(group: SeriesGroup, seconds: int) -> Query:
    """Return the query for servers that do not report now, but did in the last seconds.

    Parts: `values` replicas; `newest`, the time of the newest sample [s], which is only looked
    for at some moments, so that it is absent for replicas that ended at once.
    """
    values = _each(group, f"last_over_time({{}}[{seconds}s])")
    newest = _each(group, f"max_over_time(timestamp({{}})[{seconds}s:{STEP_SECONDS}s])")
    parts = [
        ("known", f"count {group.by} ({_targets(values, group)})"),
        ("newest", f"max {group.by} ({newest})"),
    ]
    return Query(group, "last seen", _union(parts))


def percentiles(group: SeriesGroup, share: float, seconds: int) -> Query | None:
    """Return the query for a percentile of the times; None if the source has none."""
    parts = [
        (quantity, " or ".join(_percentile(group, item, share, seconds) for item in histograms))
        for quantity in (*TIMES, ITL_OF_REQUESTS)
        if (histograms := [i for i in group.source.means.get(quantity, ()) if i.metric])  # type: ignore[call-overload]  # any text may be asked for
    ]
    return Query(group, f"p{share * 100:g}", _union(parts)) if parts else None


def buckets(group: SeriesGroup, quantity: str, seconds: int) -> Query | None:
    """Return the query for the buckets of a histogram; None if the source has none."""
    items = group.source.means.get(quantity, ())  # type: ignore[call-overload]  # as above
    histograms = [item.metric for item in items if item.metric]
    if not histograms:
        return None
    by = f"by (le, {', '.join(group.labels)})"
    rates = (
        _largest(f"rate({name}_bucket{{{group.selector}}}[{seconds}s])", group)
        for name in histograms
    )
    return Query(group, f"{BUCKETS}{quantity}", " or ".join(f"sum {by} ({rate})" for rate in rates))


def _union(parts: Iterable[tuple[str, str]]) -> str:
    return " or ".join(
        f'label_replace({expression}, "{PART}", "{name}", "", "")' for name, expression in parts
    )


def _selected(group: SeriesGroup, metric: str, where: str = "") -> str:
    matchers = ",".join(filter(None, (group.selector, where)))
    return f"{metric}{{{matchers}}}"


def _each(group: SeriesGroup, template: str, where: str = "") -> str:
    """A function of each metric of the heartbeat; `{}` or `{0}` is the selector."""
    names = group.source.heartbeat
    return " or ".join(template.format(_selected(group, name, where)) for name in names)


def _sum(group: SeriesGroup, terms: Sequence[Term], seconds: int, before: int) -> str:
    """The sum of terms; a term without series counts as 0, if another one has series."""
    restarted = _restarted(group, terms, seconds)
    texts = (
        _rate(group, term, seconds)
        if term.rate
        else _growth(group, term, seconds, before, restarted)
        for term in terms
    )
    return f"sum {group.by} ({_union((str(number), text) for number, text in enumerate(texts))})"


def _rate(group: SeriesGroup, term: Term, seconds: int) -> str:
    selected = (_selected(group, name, term.where) for name in term.rate)
    rates = (_largest(f"rate({each}[{seconds}s])", group, term.parts) for each in selected)
    return " or ".join(f"sum {group.by} ({rate})" for rate in rates)


def _restarted(group: SeriesGroup, terms: Iterable[Term], seconds: int) -> str:
    """What matches series of targets whose counters began at 0 again; "" without counters."""
    counters = [_selected(group, name, term.where) for term in terms for name in term.rate]
    resets = " or ".join(f"resets({each}[{seconds}s]) > 0" for each in counters)
    return f"on ({group.of_targets}) ({resets})" if counters else ""


def _growth(group: SeriesGroup, term: Term, seconds: int, before: int, restarted: str) -> str:
    """The growth of gauges in a window [1/s]: what they had last, less what they had before it.

    A replica that ended counts with its last sample: what ran there had arrived. So does what
    was lost when one restarted; it is taken as much as there was before the window. A replica
    that began counts as `rate` counts the counters beside it: what its first sample has is left
    out, as the replica may be older than its series, and the rest is extrapolated.
    """

    def growth(selected: str) -> str:
        last = f"last_over_time({selected}[{seconds}s])"
        earlier = f"last_over_time({selected}[{before}s] offset {seconds}s)"
        new = f"delta({selected}[{seconds}s])"
        if not restarted:
            return f"{last} - {earlier} or {new}"
        again = f"{last} and {restarted} and {earlier}"
        return f"{last} - ({earlier} unless {restarted}) or ({again}) or {new}"

    selected = (_selected(group, name, term.where) for name in term.growth)
    texts = (_largest(growth(each), group) for each in selected)
    return " or ".join(f"sum {group.by} ({text}) / {seconds}" for text in texts)


def _means(
    group: SeriesGroup, quantity: str, windows: RateWindows
) -> Iterator[tuple[str, Callable[[Quotient], str]]]:
    """Yield the parts of a mean: the name, and the expression for one of the alternatives."""
    enough = f">= {ENOUGH_REQUESTS / windows.long:g}"
    few = f"> 0 < {ENOUGH_REQUESTS / windows.long:g}"
    if quantity == ITL_OF_REQUESTS:
        return
    if quantity in TIMES:
        yield quantity, lambda item: _time(group, item, windows)
        return
    if quantity == CACHED_SHARE:
        yield quantity, lambda item: _low(group, item, windows)
        return
    if quantity == ACCEPTED_SHARE:
        yield quantity, lambda item: _lower(group, item, windows)
        return
    yield quantity, lambda item: _quotient(group, item, windows.long, enough)
    yield FEW + quantity, lambda item: _quotient(group, item, windows.long, few)
    yield (
        FEW_COUNT + quantity,
        lambda item: f"({_count(group, item, windows.long)} {few}) * {windows.long}",
    )


def _time(group: SeriesGroup, item: Quotient, windows: RateWindows) -> str:
    long = _quotient(group, item, windows.long, "> 0")
    least = ENOUGH_REQUESTS / windows.short
    return f"{_quotient(group, item, windows.short, f'>= {least:g}')} or {long}"


def _lower(group: SeriesGroup, item: Quotient, windows: RateWindows) -> str:
    """The lower one of the means of both windows: it falls at once, and rises later."""
    short, long = (_quotient(group, item, each, "> 0") for each in (windows.short, windows.long))
    return f"({short} < {long} or {long})"


def _low(group: SeriesGroup, item: Quotient, windows: RateWindows) -> str:
    """The lower one of both windows, but for the past: a low quantile of what it was in an hour.

    A share that is often lower does not carry the load then; one that rose for good is used after
    most of the hour. Servers without requests in the long window have none.
    """
    short, long = (_quotient(group, item, each, "> 0") for each in (windows.short, windows.long))
    before = f"quantile_over_time({LOW_QUANTILE}, {long}[{LOW_SECONDS}s:{windows.long}s])"
    parts = _union((("short", short), ("long", long), ("before", before)))
    return f"(min {group.by} ({parts}) and {long})"


def _quotient(group: SeriesGroup, item: Quotient, seconds: int, condition: str) -> str:
    """A mean in a window, for servers whose rate of the denominator meets a condition."""
    above, _ = item.counters
    total = _rate_of(group, above, item, seconds)
    return f"({total} / ({_count(group, item, seconds)} {condition}))"


def _count(group: SeriesGroup, item: Quotient, seconds: int) -> str:
    """The rate of the denominator of a mean."""
    _, below = item.counters
    return _rate_of(group, below, item, seconds)


def _rate_of(group: SeriesGroup, counter: str, item: Quotient, seconds: int) -> str:
    rate = f"rate({_selected(group, counter, item.where)}[{seconds}s])"
    return f"sum {group.by} ({_largest(rate, group)})"


def _gauge(group: SeriesGroup, gauge: OfReplicas) -> str:
    function = "sum" if gauge.sum else "avg"
    names = gauge.sum or gauge.average
    texts = (_largest(_selected(group, name, gauge.where), group) for name in names)
    return " or ".join(f"{function} {group.by} ({text})" for text in texts)


def _percentile(group: SeriesGroup, item: Quotient, share: float, seconds: int) -> str:
    by = f"by (le, {', '.join(group.labels)})"
    selected = _selected(group, f"{item.metric}_bucket", item.where)
    rate = _largest(f"rate({selected}[{seconds}s])", group)
    return f"histogram_quantile({share:g}, sum {by} ({rate}))"
