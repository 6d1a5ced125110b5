"""What is written on a measured Server, and when: the numbers, the condition, the load; pure."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from inferno_operator.controllers.measurement.correction import TARGETS_KEPT, correction_verdict
from inferno_operator.controllers.measurement.load import differs, load, load_moved
from inferno_operator.resources import (
    CURRENT_ALLOC,
    Allocation,
    LoadCorrection,
    Measure,
    Measured,
    Server,
    ServerStatus,
    Status,
)
from inferno_operator.resources.conditions import (
    ACTUATED,
    CORRECTED,
    Verdict,
    changed,
    merge_conditions,
)
from inferno_operator.resources.objects import Event, Manifest
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.updates import FieldUpdate, undefined

MEASURED = "Measured"
"""The type of the condition."""

AT_MOST_EVERY = timedelta(minutes=1)
"""Time between two writes of numbers of a Server."""

PATIENCE = timedelta(minutes=15)
"""Age of the last good values at which the condition of a stale Server becomes False."""

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


def verdict(measured: Measured, now: datetime) -> Verdict:
    """Return the condition Measured."""
    holds: bool | None = measured.quality in ("Fresh", "Idle", "Partial")
    if measured.quality == "Stale":
        is_known = measured.arrival_rate is not None
        holds = None if is_known and now - measured.time < PATIENCE else False
    return Verdict(MEASURED, holds, measured.quality, measured.message)


def hint(observation: Observation, otherwise: str) -> str:
    """Return what to say if there are no series: that no replica is ready, if that is known."""
    server, actuated = observation.resource, observation.status.condition(ACTUATED)
    if actuated is None or not isinstance(server, Server) or _replicas(server):
        return otherwise
    return f"no replica is ready (condition {ACTUATED}): {actuated.message}"


def _replicas(server: Server) -> int:
    """The ready replicas that the operator knows of."""
    current = server.spec.current_alloc
    if current is None:
        return 0
    apart = current.roles.by_place.values() if current.roles else ()
    return current.num_replicas + sum(place.num_replicas for place in apart)


def unconfigured() -> Verdict:
    """Return the condition if the operator does not know where Prometheus is."""
    message = "spec.measure has no effect: set INFERNO_PROMETHEUS_URL of the operator"
    return Verdict(MEASURED, holds=False, reason="NoPrometheus", message=message)


def update(observation: Observation, measured: Measured, now: datetime) -> FieldUpdate | None:
    """Return what to write after a measurement; None if nothing is to be written now.

    A change of the quality, of the missed targets, of what corrects plans or of which replicas of a
    Partial measurement report is written at once; numbers at most once a minute, and only if one of
    them moved.
    """
    server, before = observation.resource, _before(observation)
    if not isinstance(server, Server):
        return None
    judged = verdict(measured, now)
    news = _is_news(observation.status, before, measured, judged)
    if not news and not (before and _is_due(before, measured, server.spec.measure, now)):
        return None
    return FieldUpdate(
        observation.reference,
        _status(observation, judged, now, measured),
        _spec(server, measured),
        (*_news(observation, judged), *_news_of_correction(observation, measured)),
        partial(undefined, observation, MEASURED, {}, now),
    )


def refused(observation: Observation, judged: Verdict, now: datetime) -> FieldUpdate | None:
    """Return what to write if a Server is not measured; None if it is written already."""
    if not changed(observation.status, judged):
        return None
    status = _status(observation, judged, now, _before(observation))
    return FieldUpdate(observation.reference, status, news=_news(observation, judged))


def cleared(observation: Observation) -> FieldUpdate | None:
    """Return what to write on a Server without spec.measure; None if there is nothing to clear."""
    if _before(observation) is None and observation.status.condition(MEASURED) is None:
        return None
    return FieldUpdate(observation.reference, {})


def _before(observation: Observation) -> Measured | None:
    status = observation.status
    return status.measured if isinstance(status, ServerStatus) else None


def _is_news(status: Status, before: Measured | None, measured: Measured, judged: Verdict) -> bool:
    old = status.condition(MEASURED)
    if before is None or old is None:
        return True
    return (
        (old.status, old.reason, before.misses_targets)
        != (
            judged.status,
            judged.reason,
            measured.misses_targets,
        )
        or (judged.holds is False and old.message != judged.message)
        or bool(old.message) != bool(judged.message)
        or (measured.quality == "Partial" and before.replicas != measured.replicas)
        or _turns(before, measured)
    )


def _turns(before: Measured, measured: Measured) -> bool:
    """Whether a correction begins, grows or ends, or it shows that it does not help."""
    uncorrected = LoadCorrection(factor=1.0)
    old, new = before.correction or uncorrected, measured.correction or uncorrected
    ends = new.factor <= 1 < old.factor
    return new.factor > old.factor or new.vain != old.vain or ends


def _is_due(before: Measured, measured: Measured, measure: Measure | None, now: datetime) -> bool:
    """Whether a number or the load moved noticeably, and the last write is some time ago."""
    if timedelta() <= now - before.time < AT_MOST_EVERY:  # the clock of Prometheus may be ahead
        return False
    if measured.load is not None and load_moved(before.load, measured.load, measure):
        return True
    if _missed_since(before) != _missed_since(measured):
        return True
    pairs = ((getattr(before, name), getattr(measured, name)) for name in NUMBERS)
    return any(differs(old, new) for old, new in pairs)


def _missed_since(measured: Measured) -> datetime | None:
    return measured.correction.missed_since if measured.correction else None


def _status(
    observation: Observation, judged: Verdict, now: datetime, measured: Measured | None
) -> Manifest:
    corrected = _corrected(observation, measured)
    verdicts = [judged, corrected] if corrected else [judged]
    merged = merge_conditions(observation.status, verdicts, observation.generation, now)
    numbers = {"measured": measured.to_json()} if measured else {}
    return {**numbers, "conditions": [condition.to_json() for condition in merged]}


def _corrected(observation: Observation, measured: Measured | None) -> Verdict | None:
    """The condition Corrected; None where plans are for the load as it is."""
    server = observation.resource
    if measured is None or not isinstance(server, Server):
        return None
    return correction_verdict(server, measured)


def _spec(server: Server, measured: Measured) -> Manifest | None:
    """Return the fields of spec.currentAlloc; None if they have not moved."""
    current, newest = server.spec.current_alloc, load(server, measured)
    if newest is None or not load_moved(
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


def _news(observation: Observation, judged: Verdict) -> tuple[Event, ...]:
    """Return an event if measuring begins to fail, or works again."""
    old = observation.status.condition(MEASURED)
    was_bad = old is not None and old.status == "False"
    is_bad = judged.holds is False
    if was_bad == is_bad and (not is_bad or (old and old.reason == judged.reason)):
        return ()
    message = judged.message or "measured again"
    severity: Literal["Warning", "Normal"] = "Warning" if is_bad else "Normal"
    return (Event(observation.reference, severity, judged.reason, message),)


def _news_of_correction(observation: Observation, measured: Measured) -> tuple[Event, ...]:
    """Return an event if a correction begins, ends, or shows that it does not help."""
    old, judged = observation.status.condition(CORRECTED), _corrected(observation, measured)
    if judged is not None and (old is None or old.reason != judged.reason):
        return (Event(observation.reference, "Warning", judged.reason, judged.message),)
    if old is not None and judged is None:
        message = "the correction ended: targets are met, or the Model has changed"
        return (Event(observation.reference, "Normal", TARGETS_KEPT, message),)
    return ()
