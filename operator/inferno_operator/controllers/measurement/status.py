"""What is written on a measured Server, when, and what metrics say of it; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from inferno_operator.controllers.measurement.correction import TARGETS_KEPT, judge_correction
from inferno_operator.controllers.measurement.load import find_load, has_load_moved, has_moved_by
from inferno_operator.controllers.measurement.quality import compare_with_targets
from inferno_operator.resources import (
    CURRENT_ALLOC,
    Allocation,
    LoadCorrection,
    Measure,
    Measured,
    Server,
    ServerStatus,
    Status,
    Target,
)
from inferno_operator.resources.conditions import (
    ACTUATED,
    CORRECTED,
    Verdict,
    is_new_verdict,
    merge_conditions,
)
from inferno_operator.resources.objects import Event, Key, Manifest
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.observer import MeasuredServer, ObservedLatency
from inferno_operator.runtime.updates import FieldUpdate, report_unknown_field

MEASURED = "Measured"
"""The type of the condition."""

AT_MOST_EVERY = timedelta(minutes=1)
"""Time between two writes of numbers of a Server."""

PATIENCE = timedelta(minutes=15)
"""Age of the last good values at which the condition of a stale Server becomes False."""

NOT_CONFIGURED = Verdict(
    MEASURED,
    holds=False,
    reason="NoPrometheus",
    message="spec.measure has no effect: set INFERNO_PROMETHEUS_URL of the operator",
)
"""The condition if the operator does not know where Prometheus is."""

NUMBERS = (
    "arrival_rate",
    "avg_in_tokens",
    "avg_out_tokens",
    "avg_computed_tokens",
    "tokens_per_step",
    "itl_average",
    "ttft_average",
)
"""Numbers whose change is written; the others are written with them."""


def judge_measurement(measured: Measured, now: datetime) -> Verdict:
    """Return the condition Measured."""
    holds: bool | None = measured.quality in ("Fresh", "Idle", "Partial")
    if measured.quality == "Stale":
        is_known = measured.arrival_rate is not None
        holds = None if is_known and now - measured.time < PATIENCE else False
    return Verdict(MEASURED, holds, measured.quality, measured.message)


def find_hint(observation: Observation[Server], server: Server, otherwise: str) -> str:
    """Return what to say if there are no series: that no replica is ready, if that is known."""
    actuated, current = observation.status.condition(ACTUATED), server.spec.current_alloc
    if actuated is None:
        return otherwise
    if current is not None:
        apart = current.roles.by_place.values() if current.roles else ()
        if current.num_replicas + sum(place.num_replicas for place in apart):
            return otherwise
    return f"no replica is ready (condition {ACTUATED}): {actuated.message}"


def find_last_good(observation: Observation[Server]) -> Measured | None:
    """Return what the status of a Server has: what this operator or another one measured."""
    status = observation.status
    return status.measured if isinstance(status, ServerStatus) else None


def report_measurement(
    observation: Observation[Server], server: Server, measured: Measured, now: datetime
) -> FieldUpdate | None:
    """Return what to write after a measurement; None if nothing is to be written now.

    A change of the quality, of the missed targets, of what corrects plans or of which replicas of a
    Partial measurement report is written at once; numbers at most once a minute, and only if one of
    them moved.
    """
    before = find_last_good(observation)
    judged, corrected = judge_measurement(measured, now), judge_correction(server, measured)
    is_news = _is_news(observation.status, before, measured, judged)
    if not is_news and not (before and _is_due(before, measured, server.spec.measure, now)):
        return None
    return FieldUpdate(
        observation.reference,
        _build_status(observation, judged, corrected, measured, now),
        _build_spec(server, measured),
        (*_find_news(observation, judged), *_find_correction_news(observation, corrected)),
        partial(report_unknown_field, observation, MEASURED, {}, now),
    )


def report_refusal(
    observation: Observation[Server], judged: Verdict, now: datetime
) -> FieldUpdate | None:
    """Return what to write if a Server is not measured; None if it is written already."""
    if not is_new_verdict(observation.status, judged):
        return None
    server, before = observation.resource, find_last_good(observation)
    corrected = judge_correction(server, before) if server and before else None
    status = _build_status(observation, judged, corrected, before, now)
    return FieldUpdate(observation.reference, status, news=_find_news(observation, judged))


def clear_measurement(observation: Observation[Server]) -> FieldUpdate | None:
    """Return what to write on a Server without spec.measure; None if there is nothing to clear."""
    if find_last_good(observation) is None and observation.status.condition(MEASURED) is None:
        return None
    return FieldUpdate(observation.reference, {})


def _is_news(status: Status, before: Measured | None, measured: Measured, judged: Verdict) -> bool:
    """Whether something changed that nobody should learn a minute later."""
    old = status.condition(MEASURED)
    if before is None or old is None:
        return True
    if (old.status, old.reason) != (judged.status, judged.reason):
        return True
    if (judged.holds is False and old.message != judged.message) or (
        bool(old.message) != bool(judged.message)
    ):
        return True
    if before.misses_targets != measured.misses_targets:
        return True
    if measured.quality == "Partial" and before.replicas != measured.replicas:
        return True
    # A correction begins, grows or ends, or it shows that it does not help.
    uncorrected = LoadCorrection(factor=1.0)
    last, newest = before.correction or uncorrected, measured.correction or uncorrected
    ends = newest.factor <= 1 < last.factor
    return newest.factor > last.factor or newest.vain != last.vain or ends


def _is_due(before: Measured, measured: Measured, measure: Measure | None, now: datetime) -> bool:
    """Whether a number or the load moved noticeably, and the last write is some time ago."""
    if timedelta() <= now - before.time < AT_MOST_EVERY:  # the clock of Prometheus may be ahead
        return False
    if measured.load is not None and has_load_moved(before.load, measured.load, measure):
        return True
    missed_since = [m.correction.missed_since if m.correction else None for m in (before, measured)]
    if missed_since[0] != missed_since[1]:
        return True
    pairs = ((getattr(before, name), getattr(measured, name)) for name in NUMBERS)
    return any(has_moved_by(old, new) for old, new in pairs)


def _build_status(
    observation: Observation[Server],
    judged: Verdict,
    corrected: Verdict | None,
    measured: Measured | None,
    now: datetime,
) -> Manifest:
    verdicts = [judged, corrected] if corrected else [judged]
    merged = merge_conditions(observation.status, verdicts, observation.generation, now)
    numbers = {"measured": measured.to_json()} if measured else {}
    return {**numbers, "conditions": [condition.to_json() for condition in merged]}


def _build_spec(server: Server, measured: Measured) -> Manifest | None:
    current, newest = server.spec.current_alloc, find_load(server, measured)
    if newest is None or not has_load_moved(
        current.load if current else None, newest, server.spec.measure
    ):
        return None
    fields: dict[str, Any] = {
        "load": newest,
        "itl_average": measured.itl_average,
        "ttft_average": measured.ttft_average,
        "wait_average": measured.wait_average,
    }
    if current is None or not (current.accelerator or current.num_replicas):
        fields |= {"accelerator": "", "num_replicas": 0}  # required, and set by nobody else
    return {CURRENT_ALLOC: Allocation.model_construct(**fields).to_json()}


def _find_news(observation: Observation[Server], judged: Verdict) -> tuple[Event, ...]:
    old = observation.status.condition(MEASURED)
    was_bad = old is not None and old.status == "False"
    is_bad = judged.holds is False
    if was_bad == is_bad and (not is_bad or (old and old.reason == judged.reason)):
        return ()
    message = judged.message or "measured again"
    severity: Literal["Warning", "Normal"] = "Warning" if is_bad else "Normal"
    return (Event(observation.reference, severity, judged.reason, message),)


def _find_correction_news(
    observation: Observation[Server], corrected: Verdict | None
) -> tuple[Event, ...]:
    old = observation.status.condition(CORRECTED)
    if corrected is not None and (old is None or old.reason != corrected.reason):
        return (Event(observation.reference, "Warning", corrected.reason, corrected.message),)
    if old is not None and corrected is None:
        message = "the correction ended: targets are met, or the Model has changed"
        return (Event(observation.reference, "Normal", TARGETS_KEPT, message),)
    return ()


ReportedServer = tuple[Key, Server, Measured, Target | None]
"""A Server, what was measured of it, and its target."""


def group_by_namespace(
    servers: Iterable[ReportedServer], now: datetime
) -> Mapping[str, Sequence[MeasuredServer]]:
    """Return the measured Servers of each namespace."""
    servers_of: defaultdict[str, list[MeasuredServer]] = defaultdict(list)
    for key, server, measured, target in servers:
        compared = compare_with_targets(measured, target) if target else ()
        is_known, desired = measured.arrival_rate is not None, server.spec.desired_alloc
        limits = {
            "itl": target.slo_itl if target else None,
            "ttft": target.slo_ttft if target else None,
            "wait": target.slo_ttw if target else None,
        }
        latencies = {
            name: ObservedLatency(
                getattr(measured, f"{name}_average"),
                getattr(desired, f"{name}_average", None),
                limit,
            )
            for name, limit in limits.items()
        }
        servers_of[key.namespace].append(
            MeasuredServer(
                server=server.spec.name,
                quality=measured.quality,
                arrival_rate=measured.arrival_rate,
                age=max(0.0, (now - measured.time).total_seconds()) if is_known else None,
                latencies=latencies,
                misses={name: value > limit for name, value, limit in compared},
                correction=measured.correction.factor if measured.correction else 1.0,
            )
        )
    return servers_of
