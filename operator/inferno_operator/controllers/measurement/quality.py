"""Judges what Prometheus answers about a server: may its numbers be used, and for what; pure.

Nothing that is missing counts as zero. Numbers that are not fresh keep the last good values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log
from typing import Any

from inferno_operator.controllers.measurement.arrivals import ENOUGH_ARRIVALS, arrival_rate
from inferno_operator.engines.catalogue import (
    ACCEPTED_SHARE,
    CACHED_SHARE,
    ITL_OF_REQUESTS,
    TOKENS,
    MetricSource,
    tokens_per_step,
)
from inferno_operator.engines.own_queries import YOUNG
from inferno_operator.engines.promql import ENOUGH_REQUESTS, FEW, FEW_COUNT, PERCENTILES, TIMES
from inferno_operator.engines.reading import (
    COVS,
    CUSTOM_ANSWERS,
    LAST_SEEN,
    LOAD_LONG,
    MEANS,
    REPLICAS,
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
from inferno_optimizer.units import MS_PER_SECOND, SECONDS_PER_MINUTE

TAIL = -log(0.05)
"""Ratio of the 95th percentile of an exponential distribution to its mean."""


NOTHING = "no request arrives, runs or waits"
"""What is said of an idle server."""

STAYS = (
    "; one replica stays at least, also with minNumReplicas 0, because nothing is measured without"
    " one: name in spec.measure.demand what sees requests then"
)
"""What is said of it besides, unless it may have no replica."""


@dataclass(frozen=True, slots=True)
class QualityVerdict:
    """A quality, and what to do unless it is Fresh."""

    quality: Quality
    message: str = ""


def measured(
    reading: Reading,
    source: MetricSource | None,
    before: Measured | None,
    hint: str = "",
    ready_pods: tuple[int, int] | None = None,
) -> Measured:
    """Return what was measured.

    Parameters
    ----------
    reading
        The answers about the server.
    source
        Its source; None for a source of queries only.
    before
        The last good values; None if there are none.
    hint
        What to say if there are no series: near names, and what to correct.
    ready_pods
        Pods that have been ready for so long that each must report: those that answer requests, of
        which alone a source may tell, and all. None if it is not known.
    """
    rate = arrival_rate(reading)
    replicas = None
    if source is not None:
        replicas = _replicas(reading, None if source.without_replicas else ready_pods)
    verdict = _verdict(reading, rate, source, hint, replicas)
    if verdict.quality not in USABLE:
        return _kept(reading, before, verdict)
    fields = _numbers(reading, rate, before, replicas)
    if verdict.quality == "Idle":
        fields["arrival_rate"] = 0.0
    return Measured(
        time=_time(reading),
        quality=verdict.quality,
        message=verdict.message,
        **fields,
    )


def with_missing_lengths(now: Measured, name: str, source: MetricSource | None) -> Measured:
    """Say which lengths of requests plans lack, and where they come from; after `load` is known.

    Parameters
    ----------
    now
        What was measured, with the load that plans are made for.
    name, source
        The source of the Server; None for a source of queries only.
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
    """Whether a length is measured, or in the load for plans, which may have the total alone."""
    in_load = now.load is not None and (getattr(now.load, field) or now.load.avg_length)
    return bool(getattr(now, field) or in_load)


def with_targets(now: Measured, target: Target | None) -> Measured:
    """Add the targets that the measured times miss."""
    missed = tuple(_missed(now, target)) if target and now.quality in USABLE else ()
    return now.model_copy(update={"misses_targets": missed}) if missed else now


def _kept(reading: Reading, before: Measured | None, verdict: QualityVerdict) -> Measured:
    changes = {"quality": verdict.quality, "message": verdict.message, "misses_targets": ()}
    if before is None:
        return Measured(time=_time(reading), quality=verdict.quality, message=verdict.message)
    return before.model_copy(update=changes)


def _time(reading: Reading) -> datetime:
    return datetime.fromtimestamp(reading.time, UTC)


def _verdict(
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
    late = None if source is None else _late(reading, source, hint)
    if late is not None:
        return late
    if rate is None and reading.is_young:
        return QualityVerdict("Partial", _TOO_FEW)
    if rate is None:
        return _uncounted(reading, source, hint)
    gaps = _partial(reading, replicas)
    targets = "" if source is None or source.replicas else _describe_targets(reading)
    remarks = "; ".join(filter(None, (reading.copies, targets)))
    return gaps or _idle(reading, rate) or QualityVerdict("Fresh", remarks)


_TOO_FEW = (
    "what runs stays: fewer than"
    f" {ENOUGH_ARRIVALS} requests are counted so far, within less than a minute"
)


def _late(reading: Reading, source: MetricSource, hint: str) -> QualityVerdict | None:
    """Return the verdict if the samples are old or there are none."""
    if reading.part(REPLICAS, "reporting") is not None:
        late = reading.part(REPLICAS, "late")
        if late is None:
            return None
        return _stale("Prometheus does not scrape the replicas in time", late)
    if reading.part(LAST_SEEN, "known") is None:
        return QualityVerdict("Missing", hint or f"no series of {source.heartbeat[0]}")
    return _stale("no replica reports now with these labels", reading.part(LAST_SEEN, "newest"))


def _stale(why: str, newest: float | None) -> QualityVerdict:
    when = "less than an hour old" if newest is None else f"of {_clock(newest)}"
    return QualityVerdict(
        "Stale",
        f"{why}: the newest sample is {when}; the last good values are kept;"
        " look at the pods of the server, and at the targets of Prometheus and their labels",
    )


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{seconds} s" if rest or minutes == 1 else f"{minutes} minutes"


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%SZ")


def _uncounted(reading: Reading, source: MetricSource | None, hint: str) -> QualityVerdict:
    if source is None:
        return QualityVerdict("Missing", "the query of arrivalRate returns no number" + _also(hint))
    if reading.answers.get(LOAD_LONG):
        return QualityVerdict(
            "Missing",
            "the arrival rate is not a number, because a replica reports NaN or infinity: look at"
            f" {source.counted} and the other metrics of each pod, and restart the pods that do",
        )
    return QualityVerdict(
        "Missing", f"no series of {source.counted} with these labels" + _also(hint)
    )


def _also(hint: str) -> str:
    return f"; {hint}" if hint else ""


def _partial(reading: Reading, replicas: MeasuredReplicas | None) -> QualityVerdict | None:
    """Return the verdict if what was counted may be less than what arrived."""
    why = next(_gaps(reading, replicas), None)
    return QualityVerdict("Partial", f"the load may grow but not shrink: {why}") if why else None


def _gaps(reading: Reading, replicas: MeasuredReplicas | None) -> Iterator[str]:
    """Yield why requests may be missing in what was counted."""
    window = _duration(reading.windows.long)
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
        yield f"the query of arrivalRate had no number {_duration(round(young))} ago"
    if reading.is_young:
        yield f"the replicas are known for less than {window}"


def _describe_targets(reading: Reading) -> str:
    """Return that pods have several targets, which may be one under another address."""
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


def _idle(reading: Reading, rate: float) -> QualityVerdict | None:
    """Return the verdict if no request arrives, runs or waits."""
    busy = (_gauge(reading, "running") or 0.0) + (_gauge(reading, "waiting") or 0.0)
    if rate > 0 or busy > 0:
        return None
    return QualityVerdict("Idle", f"{NOTHING}{STAYS}{_also(reading.copies)}")


def _numbers(
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
        value = _newer(reading, name, kept, before, scale) if is_known else kept
        fields[field] = _rounded(value)
    fields["tokens_per_step"] = _tokens_per_step(reading)
    fields["avg_computed_tokens"] = _computed(reading, fields["avg_in_tokens"])
    for name, field in _GAUGES:
        fields[field] = _rounded(_gauge(reading, name))
    if fields["kv_cache_usage"] is not None:
        fields["kv_cache_usage"] = min(max(fields["kv_cache_usage"], 0.0), 1.0)
    for quantity, field in _TAILS:
        fields[field] = _percentiles(reading, quantity)
    for name, field in zip(TOKENS, ("in_tokens_cov", "out_tokens_cov"), strict=True):
        fields[field] = _rounded(reading.part(COVS, name))
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


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _gauge(reading: Reading, name: str) -> float | None:
    custom = reading.part(CUSTOM_ANSWERS, name)
    return reading.part(REPLICAS, name) if custom is None else custom


def _mean(reading: Reading, name: str) -> float | None:
    custom = reading.part(CUSTOM_ANSWERS, name)
    if custom is not None:
        return custom
    value = reading.part(MEANS, name)
    return None if value is None else _per_token(reading, name, value)


def _per_token(reading: Reading, name: str, value: float) -> float:
    """Return the time for each token, where a source tells that of a step which makes several."""
    return value / (_tokens_per_step(reading) or 1.0) if name == TIMES[0] else value


def _tokens_per_step(reading: Reading) -> float | None:
    """Return the output tokens that a step makes of an answer; None if no draft was accepted."""
    share = reading.part(MEANS, ACCEPTED_SHARE)
    return _rounded(tokens_per_step(share)) if share else None


def _computed(reading: Reading, inputs: float | None) -> float | None:
    """Return the input tokens that were in no prefix cache; None if the source does not tell."""
    share = reading.part(MEANS, CACHED_SHARE)
    if share is None or inputs is None:
        return None
    return _rounded(inputs * (1.0 - min(max(share, 0.0), 1.0)))


def _newer(
    reading: Reading, name: str, kept: float | None, before: Measured | None, scale: float
) -> float | None:
    """Return a mean in the unit of its field; the one before where there is no newer one."""
    value = _mean(reading, name)
    if value is not None:
        return value * scale
    return _of_few(reading, name, kept, before) if name in TOKENS else kept


def _of_few(
    reading: Reading, name: str, kept: float | None, before: Measured | None
) -> float | None:
    """Return a mean of few requests, which moves the one before by their weight.

    Those that end last are the longest: when a load ends, their mean is not that of the load.
    """
    value, count = reading.part(MEANS, FEW + name), reading.part(MEANS, FEW_COUNT + name)
    if value is None or count is None or before is None or kept is None:
        return kept if value is None else value
    passed = (_time(reading) - before.time).total_seconds() / reading.windows.long
    weight = min(1.0, max(0.0, passed)) * min(1.0, count / ENOUGH_REQUESTS)
    return kept + weight * (value - kept)


_PERCENTILE_NAMES = tuple(f"p{share * 100:g}" for share in PERCENTILES)
"""The queries of percentiles, which are called like the fields."""


def _percentiles(reading: Reading, quantity: str) -> Percentiles | None:
    values = {
        name: round(_per_token(reading, quantity, value) * MS_PER_SECOND, DIGITS)
        for name in _PERCENTILE_NAMES
        if (value := reading.part(name, quantity)) is not None
    }
    return Percentiles(**values) if values else None


def _replicas(reading: Reading, ready_pods: tuple[int, int] | None) -> MeasuredReplicas | None:
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


def _missed(now: Measured, target: Target) -> Iterable[str]:
    """Yield the names of the targets that the measured times miss."""
    return (name for name, value, limit in against_targets(now, target) if value > limit)


def against_targets(now: Measured, target: Target) -> Iterable[tuple[str, float, float]]:
    """Yield each target with a measured time: its name, the time and the limit [ms]."""
    limited: Sequence[tuple[str, float | None, float | None]] = (
        ("slo-itl", _itl(now, target.slo_itl_percentile), target.slo_itl),
        ("slo-ttw", _wait(now, target.slo_ttw_percentile), target.slo_ttw),
        ("slo-ttft", _ttft(now, target.slo_ttft_percentile), target.slo_ttft),
    )
    for name, value, limit in limited:
        if limit and value is not None:
            yield name, value, limit


def _itl(now: Measured, percent: float | None) -> float | None:
    """Return the latency that a target limits; the mean if its percentiles are not measured."""
    percentile = _percentile(now.itl_of_requests, percent) if percent else None
    return now.itl_average if percentile is None else percentile


def _ttft(now: Measured, percent: float | None) -> float | None:
    return _percentile(now.ttft, percent) if percent else now.ttft_average


def _wait(now: Measured, percent: float | None) -> float | None:
    """Return the waiting time that a target limits; without a percentile it is the 95th."""
    percentile = _percentile(now.wait, percent or 95.0)
    if percentile is None and not percent and now.wait_average is not None:
        return now.wait_average * TAIL
    return percentile


def _percentile(percentiles: Percentiles | None, percent: float) -> float | None:
    """Return the largest percentile that is not above this one: if it is too long, so is this."""
    if percentiles is None:
        return None
    values: Mapping[float, float | None] = {
        50: percentiles.p50,
        95: percentiles.p95,
        99: percentiles.p99,
    }
    return next((v for p, v in sorted(values.items(), reverse=True) if p <= percent), None)
