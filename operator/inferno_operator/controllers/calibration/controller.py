"""Calibrate Models every minute: read windows, fit, write what changed noticeably."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from inferno_operator.controllers.calibration.parameters import add_prefill_batch, calibrate_models
from inferno_operator.controllers.calibration.windows import Pair, UnreadPast, WindowSource
from inferno_operator.resources import CalibratedData, Model, ModelStatus
from inferno_operator.resources.conditions import (
    CALIBRATED,
    Verdict,
    is_new_verdict,
    merge_conditions,
)
from inferno_operator.resources.objects import Event, Manifest, Now, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import FieldUpdate, Writer, report_unknown_field
from inferno_operator.runtime.work_queue import Cycles, ReconcileResult
from inferno_optimizer.calibration.verdict import CalibrationReason
from inferno_optimizer.calibration.windows import Window, retained
from inferno_optimizer.errors import InfernoError

NOTICEABLE = 0.01
"""Relative change of a parameter that is written."""

NOTICEABLE_ROWS = 0.1
"""Relative change of the number of windows that is written."""

ACTION = "Calibrate"
"""The action in events of this controller."""


def report_calibration(
    observation: Observation, rows: Sequence[CalibratedData], now: datetime
) -> FieldUpdate | None:
    """What to write; None if nothing changed noticeably. Without rows, the old ones go."""
    before = find_calibration(observation)
    if not rows:
        had = before or observation.status.condition(CALIBRATED)
        return FieldUpdate(observation.reference, {}) if had else None
    result = judge_calibration(rows)
    same = len(rows) == len(before) and all(
        not is_noticeable(old, new) for old, new in zip(before, rows, strict=True)
    )
    if same and not is_new_verdict(observation.status, result):
        return None
    conditions = merge_conditions(observation.status, [result], observation.generation, now)
    status = {**_fields(rows), "conditions": [condition.to_json() for condition in conditions]}
    events = tuple(_find_events(observation.reference, before, rows))
    otherwise = partial(report_unknown_field, observation, CALIBRATED, _fields(before), now)
    return FieldUpdate(observation.reference, status, news=events, otherwise=otherwise)


def _fields(rows: Sequence[CalibratedData]) -> Manifest:
    return {"calibration": [row.to_json() for row in rows]} if rows else {}


def find_calibration(observation: Observation) -> tuple[CalibratedData, ...]:
    """The calibration in the status of a Model."""
    status = observation.status
    return status.calibration if isinstance(status, ModelStatus) else ()


def judge_calibration(rows: Sequence[CalibratedData]) -> Verdict:
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


def is_noticeable(old: CalibratedData, new: CalibratedData) -> bool:
    """Whether a calibration differs enough from the one in the status to be written."""
    if _words_of(old) != _words_of(new):
        return True
    if abs(new.rows - old.rows) > NOTICEABLE_ROWS * old.rows:
        return True
    before, after = _list_parameters(old), _list_parameters(new)
    return len(before) != len(after) or any(
        abs(b - a) > NOTICEABLE * abs(a) for a, b in zip(before, after, strict=True)
    )


def _words_of(row: CalibratedData) -> tuple[str, ...]:
    return row.acc, row.reason, *(one.name for one in row.hardly_known)


def _list_parameters(row: CalibratedData) -> list[float]:
    parts = (row.expected, row.decode_parms, row.prefill_parms, row.step_parms)
    return [value for part in parts if part for value in part.model_dump().values()]


def _find_events(
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


MODEL = kind_of(Model)
OFF = "Off"

FORGET_S = 24 * 3600.0
"""Age at which a window is forgotten [s]."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What cycles need.

    `namespaces` are those of the Models; if empty, all. `memory` has the windows to calibrate
    with, and `past` says which of the time before the start are still to be read; both outlive
    the cycles.
    """

    cluster: Cluster
    windows: WindowSource
    namespaces: Sequence[str]
    now: Now
    memory: dict[Pair, list[Window]] = field(default_factory=dict)
    past: UnreadPast = field(default_factory=UnreadPast)


async def reconcile(context: Context) -> None:
    """Calibrate all Models; what cannot be read or written now is left to the next cycle."""
    try:
        read = await context.windows.read()
        models = await _read_models(context)
    except InfernoError as error:
        logger.warning("no calibration: %s", error)
        return
    if read:  # else nothing is known yet of the replicas to ask about
        await _remember_past(context)
    _remember(context.memory, read, context.now().timestamp())
    wanted = {key: model for key, (_, model) in models.items() if model.spec.calibrate != OFF}
    now = context.now()
    rows = calibrate_models(context.memory, wanted, now)
    updates = []
    for key, (observation, model) in models.items():
        # Without windows, what the status has stays; unless calibration is switched off.
        last = () if model.spec.calibrate == OFF else model.status.calibration
        updates.append(report_calibration(observation, rows.get(key) or last, now))
    writer = Writer(context.cluster, FieldManager.CALIBRATION, context.now)
    try:
        await writer.write_all(filter(None, updates))
    except InfernoError as error:
        logger.warning("some calibrations are not written: %s", error)


async def _read_models(context: Context) -> Mapping[tuple[str, str], tuple[Observation, Model]]:
    """The valid Models by namespace and spec.name; of several of a name, the oldest."""
    listings = [
        await context.cluster.list(MODEL, namespace) for namespace in context.namespaces or ("",)
    ]
    observations = [observe(Model, m) for listing in listings for m in listing.manifests]
    valid = [
        (o, o.resource) for o in observations if isinstance(o.resource, Model) and not o.deleted
    ]
    return {
        (observation.reference.key.namespace, model.spec.name): (observation, model)
        for observation, model in sorted(valid, key=lambda item: item[1].age, reverse=True)
    }


async def _remember_past(context: Context) -> None:
    """Read some windows of the time before the start; those that cannot be read are left out."""
    now = context.now().timestamp()
    for end in context.past.take(now):
        try:
            _remember(context.memory, await context.windows.read(end), now)
        except InfernoError as error:
            logger.warning("some windows before the start are not read: %s", error)


def _remember(
    memory: dict[Pair, list[Window]], read: Mapping[Pair, Sequence[Window]], now: float
) -> None:
    for pair in {*memory, *read}:
        before = memory.pop(pair, [])
        windows = (*before, *add_prefill_batch(read.get(pair, ()), before))
        if kept := retained(window for window in windows if window.end >= now - FORGET_S):
            memory[pair] = kept


CYCLE = "calibrate all Models"
"""The name of the cycle."""

INTERVAL_SECONDS = 60.0
"""Seconds between two cycles, and the length of a window."""


class CalibrationController:
    """Finds the parameters of Models from what their replicas do; without namespaces in all."""

    def __init__(
        self, cluster: Cluster, windows: WindowSource, namespaces: Sequence[str], now: Now
    ) -> None:
        self._context = Context(cluster, windows, namespaces, now)
        self.queue = Cycles({CYCLE: self._cycle})

    async def run(self) -> None:
        """Calibrate until cancelled."""
        self.queue.start()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Stop calibrating."""
        await self.queue.close()

    async def _cycle(self) -> ReconcileResult:
        await reconcile(self._context)
        return ReconcileResult.due_after(INTERVAL_SECONDS)
