"""Judges what Prometheus answers about a server: may its numbers be used, and for what; pure.

Nothing that is missing counts as zero. Numbers that are not fresh keep the last good values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log
from typing import Any

from inferno_operator.engines.catalogue import (
    ACCEPTED_SHARE,
    CACHED_SHARE,
    ITL_OF_REQUESTS,
    TOKENS,
    MetricSource,
    tokens_per_step,
)
from inferno_operator.engines.own_queries import YOUNG
from inferno_operator.engines.promql import (
    ENOUGH_REQUESTS,
    EXTRAPOLATED,
    FEW,
    FEW_COUNT,
    PERCENTILES,
    SCRAPES,
    TIMES,
)
from inferno_operator.engines.reading import (
    COVS,
    CUSTOM_ANSWERS,
    LAST_SEEN,
    LOAD_BRIEF,
    LOAD_LONG,
    LOAD_SHORT,
    MEANS,
    REPLICAS,
    SINCE,
    Reading,
)
from inferno_operator.resources import (
    DIGITS,
    Measured,
    MeasuredReplicas,
    Percentiles,
    Quality,
    Target,
)
from inferno_operator.resources.measurement import USABLE
from inferno_optimizer.noise import significant_rate
from inferno_optimizer.units import MS_PER_SECOND, SECONDS_PER_MINUTE

ENOUGH_ARRIVALS = 100
"""Requests of which a first measurement is made: their number has an error of 10 %."""

ENOUGH_SAMPLES = 3
"""Samples of a first measurement: between two, what is extrapolated is more than what is known."""


@dataclass(frozen=True, slots=True)
class Youth:
    """What is known of a server that is known for less than the long window.

    Its first and its newest sample have the times `since` and `until` [s]; `samples` are the most
    of a replica.
    """

    since: float
    until: float
    samples: float

    @classmethod
    def of(cls, reading: Reading) -> "Youth | None":
        """Return what is known of a young server; None of others, and of one scraped once."""
        since, until = reading.part(SINCE, "since"), reading.part(SINCE, "until")
        samples = reading.part(SINCE, "samples")
        if since is None or until is None or samples is None or until <= since:
            return None
        return cls(since, until, samples)

    @property
    def seconds(self) -> float:
        """The time between its samples [s]."""
        return self.until - self.since

    @property
    def interval(self) -> float:
        """The time between two scrapes [s]."""
        return self.seconds / max(self.samples - 1, 1)

    def tells(self, rate: float, seconds: float) -> bool:
        """Whether a rate is known well: from enough requests, or from so many seconds."""
        enough = rate * self.seconds >= ENOUGH_ARRIVALS and self.samples >= ENOUGH_SAMPLES
        return enough or self.seconds >= seconds


def find_arrival_rate(reading: Reading) -> float | None:
    """Return the arrival rate [requests/s]; None if it is not known.

    It is that of the long window, and that of a shorter one if it is significantly larger: an
    increase is seen at once, a decrease after the long window. That of a young server is not
    known before enough requests arrived. It is 0 where replicas wait for their first request.
    """
    custom = reading.part(CUSTOM_ANSWERS, "arrivalRate")
    if custom is not None:
        return max(custom, 0.0)
    known = _KnownTime.of(reading)
    for name in sorted(reading.answers.get(LOAD_LONG, {})):
        rate = _find_largest_rate(reading, name, known)
        if rate is not None:
            break
    else:
        rate = 0.0 if reading.is_unused else None
    if rate is None or known.youth is None or known.youth.tells(rate, reading.windows.short):
        return rate
    return None


@dataclass(frozen=True, slots=True)
class _KnownTime:
    """The parts of the windows that the rates of a reading cover.

    Prometheus divides by the whole window. What it counts begins half an interval before the
    first sample in it, and ends half an interval after the last one, where these are not near
    the ends of the window.

    `youth` is None but of a young server, whose `interval` between two scrapes [s] is known from
    itself. Prometheus evaluates the queries at `time` [s]; `uncounted_end` is the time after the
    last interval [s].
    """

    youth: Youth | None
    interval: float
    time: float
    uncounted_end: float

    @classmethod
    def of(cls, reading: Reading) -> "_KnownTime":
        youth, newest = Youth.of(reading), reading.part(REPLICAS, "newest")
        interval = youth.interval if youth else reading.interval
        end = 0.0 if newest is None else max(0.0, reading.time - newest - interval / 2)
        return cls(youth, interval, reading.time, end)

    def seconds(self, window: int) -> float:
        """Return the part of a window that is known [s]."""
        uncounted, begin = self.uncounted_end, self.time - window
        if self.youth is not None and self.youth.since - begin > EXTRAPOLATED * self.interval:
            uncounted += self.youth.since - begin - self.interval / 2
        return max(window - uncounted, self.interval, 1.0)


def _find_largest_rate(reading: Reading, name: str, known: _KnownTime) -> float | None:
    """Return the largest arrival rate of an alternative that is not larger by chance."""
    windows = reading.windows
    long = _scale_to_known(reading, LOAD_LONG, name, windows.long, known)
    if long is None:
        return None
    shorter = [
        (rate, known.seconds(window))
        for query, window in ((LOAD_SHORT, windows.short), (LOAD_BRIEF, windows.brief))
        if window >= (SCRAPES - 1) * known.interval
        and (rate := _scale_to_known(reading, query, name, window, known)) is not None
    ]
    return float(significant_rate(long, known.seconds(windows.long), shorter))


def _scale_to_known(
    reading: Reading, query: str, name: str, window: int, known: _KnownTime
) -> float | None:
    rate = reading.part(query, name)
    return None if rate is None else rate * window / known.seconds(window)


TAIL = -log(0.05)
"""Ratio of the 95th percentile of an exponential distribution to its mean."""


NO_REQUESTS = "no request arrives, runs or waits"
"""What is said of an idle server."""

ONE_STAYS = (
    "; one replica stays at least, also with minNumReplicas 0, because nothing is measured without"
    " one: name in spec.measure.demand what sees requests then"
)
"""What is said of it besides, unless it may have no replica."""


@dataclass(frozen=True, slots=True)
class QualityVerdict:
    """A quality, and what to do unless it is Fresh."""

    quality: Quality
    message: str = ""


def judge_reading(
    reading: Reading,
    source: MetricSource | None,
    before: Measured | None,
    hint: str = "",
    ready_pods: tuple[int, int] | None = None,
) -> Measured:
    """Return what was measured.

    `source` is None for a source of queries only; `before` has the last good values; `hint` is what
    to say if there are no series. `ready_pods` have been ready for so long that each must report:
    those that answer requests, of which alone a source may tell, and all.
    """
    rate = find_arrival_rate(reading)
    replicas = None
    if source is not None:
        replicas = _measure_replicas(reading, None if source.without_replicas else ready_pods)
    verdict = _judge(reading, rate, source, hint, replicas)
    if verdict.quality not in USABLE:
        return _keep_last_good(reading, before, verdict)
    fields = _read_numbers(reading, rate, before, replicas)
    if verdict.quality == "Idle":
        fields["arrival_rate"] = 0.0
    return Measured(
        time=_time_of(reading),
        quality=verdict.quality,
        message=verdict.message,
        **fields,
    )


def note_missing_lengths(now: Measured, name: str, source: MetricSource | None) -> Measured:
    """Say which lengths of requests plans lack, and where they come from; after `load` is known.

    `name` and `source` are those of the Server; None for a source of queries only.
    """
    if now.quality not in ("Fresh", "Partial") or not now.arrival_rate:
        return now
    lacks = [each for each, field in _LENGTHS if not _is_length_known(now, field)]
    if not lacks:
        return now
    means = source.means if source else {}
    metrics = [means[each][0].counters[1] for each in lacks if means.get(each)]
    releases = {source.since[each] for each in lacks if each in source.since} if source else ()
    if releases:
        why = f"{name} exports them from release {max(releases)} on"
    elif metrics:
        why = f"{name} has counted no request yet in {' and '.join(metrics)}"
    else:
        why = f"source {name} does not tell them"
    message = (
        f"plans lack the mean lengths of requests ({' and '.join(lacks)}): {why};"
        " set them by hand in spec.currentAlloc.load, or name queries for them in"
        " spec.measure.queries"
    )
    return now.model_copy(update={"message": "; ".join(filter(None, (now.message, message)))})


def _is_length_known(now: Measured, field: str) -> bool:
    in_load = now.load is not None and (getattr(now.load, field) or now.load.avg_length)
    return bool(getattr(now, field) or in_load)


def note_missed_targets(now: Measured, target: Target | None) -> Measured:
    """Add the targets that the measured times miss."""
    if target is None or now.quality not in USABLE:
        return now
    compared = compare_with_targets(now, target)
    missed = tuple(name for name, value, limit in compared if value > limit)
    return now.model_copy(update={"misses_targets": missed}) if missed else now


def _keep_last_good(reading: Reading, before: Measured | None, verdict: QualityVerdict) -> Measured:
    changes = {"quality": verdict.quality, "message": verdict.message, "misses_targets": ()}
    if before is None:
        return Measured(time=_time_of(reading), quality=verdict.quality, message=verdict.message)
    return before.model_copy(update=changes)


def _time_of(reading: Reading) -> datetime:
    return datetime.fromtimestamp(reading.time, UTC)


def _judge(
    reading: Reading,
    rate: float | None,
    source: MetricSource | None,
    hint: str,
    replicas: MeasuredReplicas | None,
) -> QualityVerdict:
    if reading.unavailable:
        return QualityVerdict("Stale", f"{reading.unavailable}; the last good values are kept")
    if reading.refused:
        return QualityVerdict("Refused", reading.refused)
    outdated = None if source is None else _judge_age(reading, source, hint)
    if outdated is not None:
        return outdated
    if rate is None:
        return _judge_uncounted(reading, source, hint)
    gap = next(_find_gaps(reading, replicas), None)
    busy = (_read_gauge(reading, "running") or 0.0) + (_read_gauge(reading, "waiting") or 0.0)
    if gap is not None:  # what was counted may be less than what arrived
        verdict = QualityVerdict("Partial", f"the load may grow but not shrink: {gap}")
    elif rate <= 0 and busy <= 0:
        verdict = QualityVerdict("Idle", f"{NO_REQUESTS}{ONE_STAYS}{_append(reading.copies)}")
    else:
        targets = "" if source is None or source.replicas else _describe_targets(reading)
        remarks = "; ".join(filter(None, (reading.copies, targets)))
        verdict = QualityVerdict("Fresh", remarks)
    return verdict


_TOO_FEW_REQUESTS = (
    "what runs stays: fewer than"
    f" {ENOUGH_ARRIVALS} requests are counted so far, within less than a minute"
)


def _judge_age(reading: Reading, source: MetricSource, hint: str) -> QualityVerdict | None:
    if reading.part(REPLICAS, "reporting") is not None:
        newest = reading.part(REPLICAS, "late")
        if newest is None:
            return None
        return _describe_stale("Prometheus does not scrape the replicas in time", newest)
    if reading.part(LAST_SEEN, "known") is None:
        return QualityVerdict("Missing", hint or f"no series of {source.heartbeat[0]}")
    return _describe_stale(
        "no replica reports now with these labels", reading.part(LAST_SEEN, "newest")
    )


def _describe_stale(why: str, newest: float | None) -> QualityVerdict:
    when = "less than an hour old"
    if newest is not None:
        when = f"of {datetime.fromtimestamp(newest, UTC):%H:%M:%SZ}"
    return QualityVerdict(
        "Stale",
        f"{why}: the newest sample is {when}; the last good values are kept;"
        " look at the pods of the server, and at the targets of Prometheus and their labels",
    )


def _format_duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{seconds} s" if rest or minutes == 1 else f"{minutes} minutes"


def _judge_uncounted(reading: Reading, source: MetricSource | None, hint: str) -> QualityVerdict:
    if reading.is_young:
        return QualityVerdict("Partial", _TOO_FEW_REQUESTS)
    if source is None:
        return QualityVerdict(
            "Missing", "the query of arrivalRate returns no number" + _append(hint)
        )
    if reading.answers.get(LOAD_LONG):
        return QualityVerdict(
            "Missing",
            "the arrival rate is not a number, because a replica reports NaN or infinity: look at"
            f" {source.counted} and the other metrics of each pod, and restart the pods that do",
        )
    return QualityVerdict(
        "Missing", f"no series of {source.counted} with these labels" + _append(hint)
    )


def _append(hint: str) -> str:
    return f"; {hint}" if hint else ""


def _find_gaps(reading: Reading, replicas: MeasuredReplicas | None) -> Iterator[str]:
    window = _format_duration(reading.windows.long)
    if reading.warnings:
        yield f"Prometheus warns: {'; '.join(reading.warnings)}"
    if replicas is not None and replicas.reporting < replicas.ready:
        yield _describe_missing(replicas, reading.part(REPLICAS, "absent") or 0.0)
    if reading.part(REPLICAS, "moved"):
        yield (
            f"labels of the series changed less than {window} ago, such as the job:"
            " their counters began anew"
        )
    if restarting := reading.part(REPLICAS, "restarting"):
        yield (
            f"replicas that restarted several times in {window}: {restarting:g}, and what they"
            " counted is lost; read why with kubectl logs --previous"
        )
    yield from reading.doubts
    if young := reading.part(CUSTOM_ANSWERS, YOUNG):
        yield f"the query of arrivalRate had no number {_format_duration(round(young))} ago"
    if reading.is_young:
        yield f"the replicas are known for less than {window}"


def _describe_targets(reading: Reading) -> str:
    pods, targets = reading.part(REPLICAS, "pods"), reading.part(REPLICAS, "reporting")
    if not pods or not targets or pods >= targets:
        return ""
    return f"pods with several targets, which are added up: {targets:g} targets of {pods:g} pods"


def _describe_missing(replicas: MeasuredReplicas, absent: float) -> str:
    """Return how many replicas do not report, and where to look; some are targets all the same."""
    if replicas.reporting + absent >= replicas.ready:
        return (
            f"{replicas.reporting} of {replicas.ready} replicas report;"
            " look for up == 0 among the targets of Prometheus"
        )
    why = (
        f"{replicas.reporting} of {replicas.ready} ready pods report, and Prometheus has no series"
        " of the others with these labels; compare its targets with the pods, then look at the"
        " PodMonitor, at relabeling and at shards"
    )
    if replicas.reporting == 1:
        why += "; if this target is a collector for all pods, single replicas cannot be seen"
    return why


def _read_numbers(
    reading: Reading,
    rate: float | None,
    before: Measured | None,
    replicas: MeasuredReplicas | None,
) -> dict[str, Any]:
    """Return the fields of a measurement; unknown ones are absent."""
    fields: dict[str, Any] = {"arrival_rate": before.arrival_rate if before else None}
    if rate is not None:
        fields["arrival_rate"] = round(rate * SECONDS_PER_MINUTE, DIGITS)
    for name, field, scale in _MEANS:
        kept = getattr(before, field) if before else None
        is_known = rate is not None or name not in TOKENS  # lengths are known with the rate
        value = _read_newer_mean(reading, name, kept, before, scale) if is_known else kept
        fields[field] = _round(value)
    fields["tokens_per_step"] = _read_tokens_per_step(reading)
    share, inputs = reading.part(MEANS, CACHED_SHARE), fields["avg_in_tokens"]
    if share is not None and inputs is not None:  # what was in no prefix cache
        computed = inputs * (1.0 - min(max(share, 0.0), 1.0))
        fields["avg_computed_tokens"] = _round(computed)
    for name, field in _GAUGES:
        fields[field] = _round(_read_gauge(reading, name))
    if fields["kv_cache_usage"] is not None:
        fields["kv_cache_usage"] = min(max(fields["kv_cache_usage"], 0.0), 1.0)
    for quantity, field in _TAILS:
        fields[field] = _read_percentiles(reading, quantity)
    for name, field in zip(TOKENS, ("in_tokens_cov", "out_tokens_cov"), strict=True):
        fields[field] = _round(reading.part(COVS, name))
    fields["replicas"] = replicas
    return {name: value for name, value in fields.items() if value is not None}


_MEANS = (
    ("avgInTokens", "avg_in_tokens", 1.0),
    ("avgOutTokens", "avg_out_tokens", 1.0),
    ("itlAverage", "itl_average", MS_PER_SECOND),
    ("ttftAverage", "ttft_average", MS_PER_SECOND),
    ("waitAverage", "wait_average", MS_PER_SECOND),
)
"""Name in the catalogue, field, and units of the field in one unit of Prometheus."""

_LENGTHS = tuple((name, field) for name, field, _ in _MEANS if name in TOKENS)
"""Names in the catalogue, and fields, of the lengths of requests."""

_TAILS = (*zip(TIMES, ("itl", "ttft", "wait"), strict=True), (ITL_OF_REQUESTS, "itl_of_requests"))
"""Name in the catalogue, and field of its percentiles."""

_GAUGES = (("running", "running"), ("waiting", "waiting"), ("kvCacheUsage", "kv_cache_usage"))


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _read_gauge(reading: Reading, name: str) -> float | None:
    custom = reading.part(CUSTOM_ANSWERS, name)
    return reading.part(REPLICAS, name) if custom is None else custom


def _read_mean(reading: Reading, name: str) -> float | None:
    custom = reading.part(CUSTOM_ANSWERS, name)
    if custom is not None:
        return custom
    value = reading.part(MEANS, name)
    return None if value is None else _scale_to_token(reading, name, value)


def _scale_to_token(reading: Reading, name: str, value: float) -> float:
    """Return the time for each token, where a source tells that of a step which makes several."""
    return value / (_read_tokens_per_step(reading) or 1.0) if name == TIMES[0] else value


def _read_tokens_per_step(reading: Reading) -> float | None:
    share = reading.part(MEANS, ACCEPTED_SHARE)
    return _round(tokens_per_step(share)) if share else None


def _read_newer_mean(
    reading: Reading, name: str, kept: float | None, before: Measured | None, scale: float
) -> float | None:
    """Return a mean in the unit of its field; the one before where there is no newer one."""
    value = _read_mean(reading, name)
    if value is not None:
        return value * scale
    return _weigh_few(reading, name, kept, before) if name in TOKENS else kept


def _weigh_few(
    reading: Reading, name: str, kept: float | None, before: Measured | None
) -> float | None:
    """Return a mean of few requests, which moves the one before by their weight.

    Those that end last are the longest: when a load ends, their mean is not that of the load.
    """
    value, count = reading.part(MEANS, FEW + name), reading.part(MEANS, FEW_COUNT + name)
    if value is None or count is None or before is None or kept is None:
        return kept if value is None else value
    passed = (_time_of(reading) - before.time).total_seconds() / reading.windows.long
    weight = min(1.0, max(0.0, passed)) * min(1.0, count / ENOUGH_REQUESTS)
    return kept + weight * (value - kept)


_PERCENTILE_NAMES = tuple(f"p{share * 100:g}" for share in PERCENTILES)
"""The queries of percentiles, which are called like the fields."""


def _read_percentiles(reading: Reading, quantity: str) -> Percentiles | None:
    values = {
        name: round(_scale_to_token(reading, quantity, value) * MS_PER_SECOND, DIGITS)
        for name in _PERCENTILE_NAMES
        if (value := reading.part(name, quantity)) is not None
    }
    return Percentiles(**values) if values else None


def _measure_replicas(
    reading: Reading, ready_pods: tuple[int, int] | None
) -> MeasuredReplicas | None:
    """Return the targets, or the pods if fewer of them report than are ready."""
    reporting = reading.part(REPLICAS, "reporting")
    if reporting is None:
        return None
    pods = int(reading.part(REPLICAS, "pods") or reporting)
    ready = next((count for count in ready_pods or () if pods <= count), pods)
    if pods < ready:
        return MeasuredReplicas(ready=ready, reporting=pods)
    absent = reading.part(REPLICAS, "absent") or 0.0
    return MeasuredReplicas(ready=int(reporting + absent), reporting=int(reporting))


def compare_with_targets(now: Measured, target: Target) -> Iterable[tuple[str, float, float]]:
    """Yield each target with a measured time: its name, the time and the limit [ms]."""
    itl_percent, ttft_percent = target.slo_itl_percentile, target.slo_ttft_percentile
    itl = _find_percentile(now.itl_of_requests, itl_percent) if itl_percent else None
    if itl is None:  # its percentiles are not measured by every engine
        itl = now.itl_average
    ttft = _find_percentile(now.ttft, ttft_percent) if ttft_percent else now.ttft_average
    wait = _find_percentile(now.wait, target.slo_ttw_percentile or 95.0)
    if wait is None and not target.slo_ttw_percentile and now.wait_average is not None:
        wait = now.wait_average * TAIL
    limited: Sequence[tuple[str, float | None, float | None]] = (
        ("slo-itl", itl, target.slo_itl),
        ("slo-ttw", wait, target.slo_ttw),
        ("slo-ttft", ttft, target.slo_ttft),
    )
    for name, value, limit in limited:
        if limit and value is not None:
            yield name, value, limit


def _find_percentile(percentiles: Percentiles | None, percent: float) -> float | None:
    """Return the largest percentile that is not above this one: if it is too long, so is this."""
    if percentiles is None:
        return None
    values: Mapping[float, float | None] = {
        50: percentiles.p50,
        95: percentiles.p95,
        99: percentiles.p99,
    }
    return next((v for p, v in sorted(values.items(), reverse=True) if p <= percent), None)
