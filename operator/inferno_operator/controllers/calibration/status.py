"""What to write on a Model after a calibration, and whether it is worth a write; pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from inferno_operator.resources import CalibratedData, ModelStatus
from inferno_operator.resources.conditions import CALIBRATED, Verdict, changed, merge_conditions
from inferno_operator.resources.objects import Event, Manifest, Reference
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.updates import FieldUpdate, undefined
from inferno_optimizer.calibration.verdict import CalibrationReason

NOTICEABLE = 0.01
"""Relative change of a parameter that is written."""

NOTICEABLE_ROWS = 0.1
"""Relative change of the number of windows that is written."""

ACTION = "Calibrate"
"""The action in events of this controller."""


def update(
    observation: Observation, rows: Sequence[CalibratedData], now: datetime
) -> FieldUpdate | None:
    """What to write; None if nothing changed noticeably.

    Without rows, what was written before is removed.
    """
    before = known(observation)
    if not rows:
        had = before or observation.status.condition(CALIBRATED)
        return FieldUpdate(observation.reference, {}) if had else None
    result = verdict(rows)
    same = len(rows) == len(before) and all(
        not noticeable(old, new) for old, new in zip(before, rows, strict=True)
    )
    if same and not changed(observation.status, result):
        return None
    conditions = merge_conditions(observation.status, [result], observation.generation, now)
    status = {**_fields(rows), "conditions": [condition.to_json() for condition in conditions]}
    events = tuple(_events(observation.reference, before, rows))
    otherwise = partial(undefined, observation, CALIBRATED, _fields(before), now)
    return FieldUpdate(observation.reference, status, news=events, otherwise=otherwise)


def _fields(rows: Sequence[CalibratedData]) -> Manifest:
    """The calibration as the status has it; nothing without rows."""
    return {"calibration": [row.to_json() for row in rows]} if rows else {}


def known(observation: Observation) -> tuple[CalibratedData, ...]:
    """The calibration in the status of a Model."""
    status = observation.status
    return status.calibration if isinstance(status, ModelStatus) else ()


def verdict(rows: Sequence[CalibratedData]) -> Verdict:
    """The condition Calibrated: true if the parameters of all accelerators may be used.

    The reason is that of the first accelerator whose parameters may not be used.
    """
    refused = [row for row in rows if not CalibrationReason(row.reason).usable]
    message = "; ".join(f"{row.acc}: {row.reason}" for row in rows)
    first = refused[0] if refused else None
    if first is None:
        return Verdict(
            CALIBRATED, holds=True, reason=str(CalibrationReason.CALIBRATED), message=message
        )
    return Verdict(
        CALIBRATED, holds=False, reason=first.reason, message=f"{first.acc}: {first.message}"
    )


def noticeable(old: CalibratedData, new: CalibratedData) -> bool:
    """Whether a calibration differs enough from the one in the status to be written."""
    if _words(old) != _words(new):
        return True
    if abs(new.rows - old.rows) > NOTICEABLE_ROWS * old.rows:
        return True
    before, after = _parameters(old), _parameters(new)
    return len(before) != len(after) or any(
        abs(b - a) > NOTICEABLE * abs(a) for a, b in zip(before, after, strict=True)
    )


def _words(row: CalibratedData) -> tuple[str, ...]:
    return row.acc, row.reason, *(one.name for one in row.hardly_known)


def _parameters(row: CalibratedData) -> list[float]:
    parts = (row.expected, row.decode_parms, row.prefill_parms, row.step_parms)
    return [value for part in parts if part for value in part.model_dump().values()]


def _events(
    reference: Reference, before: Sequence[CalibratedData], rows: Sequence[CalibratedData]
) -> Iterator[Event]:
    """A warning for each engine that has just been noticed to have changed."""
    reasons = {row.acc: row.reason for row in before}
    for row in rows:
        if (
            row.reason == CalibrationReason.SHIFTED
            and reasons.get(row.acc) != CalibrationReason.SHIFTED
        ):
            message = f"{row.acc}: {row.message}"
            yield Event(reference, "Warning", row.reason, message, ACTION)
