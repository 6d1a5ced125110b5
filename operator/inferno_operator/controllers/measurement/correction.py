"""Corrects the planned load where replicas that should be enough miss targets; pure.

The state of a Server is in its status, so that an operator that has just started goes on with it.
"""

import json
import math
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256

import numpy as np

from inferno_operator.controllers.measurement.load import is_covered
from inferno_operator.controllers.measurement.quality import compare_with_targets
from inferno_operator.engines.series_groups import windows_of
from inferno_operator.resources import (
    DIGITS,
    LoadCorrection,
    Measured,
    Model,
    Server,
    ServerAllocation,
    Target,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, CORRECTED, Verdict
from inferno_operator.resources.measurement import CATCH_UP_SECONDS
from inferno_optimizer.correction import MISSED, MOST, MOST_VAIN, Correction, waiting_time
from inferno_optimizer.solution import Reason

TARGETS_MISSED = "TargetsMissed"
NO_IMPROVEMENT = "NoImprovement"
TARGETS_KEPT = "TargetsKept"

DIGEST_DIGITS = 16
"""Hexadecimal digits that tell the data of a Model from others."""


def add_correction(
    newest: Measured,
    server: Server,
    before: Measured | None,
    target: Target | None,
    model: Model | None,
) -> Measured:
    """Add by how much more than the load is planned for; nothing with other data of the Model.

    `newest` has the targets that the Server misses now, `before` the correction until now.
    """
    last = before.correction if before else None
    compared = compare_with_targets(newest, target) if target else ()
    ratio = max((value / limit for _, value, limit in compared), default=0.0)
    if last is None and ratio <= MISSED:
        return newest
    parameters = _digest(model) if model else last.parameters if last else ""
    state = _restore_state(before, parameters)
    enough = ratio > 0 and _is_enough(server, newest, target, float(state.factor[0]))
    current, measure = server.spec.current_alloc, server.spec.measure
    catch_up = measure.catch_up_seconds if measure else CATCH_UP_SECONDS
    rate = newest.arrival_rate or 0.0
    stepped = state.step(
        newest.time.timestamp(),
        np.array([ratio]),
        np.array([current.num_replicas if current else 0]),
        np.array([enough]),
        waiting_time(np.array([rate / 60]), max(windows_of(measure).long, catch_up)),
    )
    return newest.model_copy(update={"correction": _to_status(stepped, parameters)})


def _digest(model: Model) -> str:
    """Return a digest of the data of a Model, and of which it takes the calibrated ones."""
    calibrated = model.status.calibration if model.spec.calibrate == "Use" else ()
    data = [item.to_json() for item in model.spec.data], sorted(row.acc for row in calibrated)
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:DIGEST_DIGITS]


def judge_correction(server: Server, measured: Measured) -> Verdict | None:
    """Return the condition Corrected; None while plans are for the load as it is."""
    correction = measured.correction
    if correction is None or correction.factor <= 1:
        return None
    helps = correction.vain < MOST_VAIN
    reason = TARGETS_MISSED if helps else NO_IMPROVEMENT
    text_of = _describe_missed if helps else _describe_vain
    message = text_of(server, ", ".join(measured.misses_targets) or "targets", correction)
    return Verdict(CORRECTED, holds=True, reason=reason, message=message)


def _describe_missed(server: Server, targets: str, correction: LoadCorrection) -> str:
    runs = server.spec.current_alloc
    who = f"{runs.num_replicas} replicas" if runs and correction.missed_since else "replicas"
    most = ", and no more" if correction.factor >= MOST else ""
    return (
        f"{targets} missed with {who} that should be enough: planned for"
        f" {correction.factor:.3g} times the load{most}; calibrate Model {server.spec.model!r}"
    )


def _describe_vain(server: Server, targets: str, correction: LoadCorrection) -> str:
    return (
        f"{targets} missed, and more replicas do not help: planned for"
        f" {correction.factor:.3g} times the load, and no more; look for what else makes the"
        f" replicas slow, calibrate Model {server.spec.model!r}, or raise the target"
    )


def _is_enough(server: Server, newest: Measured, target: Target | None, factor: float) -> bool:
    """Whether what runs should be enough, as the Model says, and nothing else explains a miss.

    The decision is carried out, and was made for no less than what arrives and waits.
    """
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    if desired is None or desired.load is None or current is None or not desired.num_replicas:
        return False
    return (
        newest.quality == "Fresh"
        and _is_settled(server)
        and not current.cold_replicas
        and _count_by_accelerator(current) >= _count_by_accelerator(desired)
        and is_covered(desired.load, server, newest, target, factor)
    )


def _is_settled(server: Server) -> bool:
    """Whether the decision keeps all targets by the Model, and no step of it is left."""
    allocated = server.status.condition(ALLOCATED)
    actuated = server.status.condition(ACTUATED)
    keeps_all = allocated is not None and allocated.reason == Reason.ALLOCATED
    return keeps_all and (actuated is None or actuated.status == "True")


def _count_by_accelerator(whole: ServerAllocation) -> Counter[str]:
    return Counter({part.accelerator: part.num_replicas for part in whole.parts})


def _restore_state(before: Measured | None, parameters: str) -> Correction:
    """The correction of one server until now; none with other data of its Model."""
    last = before.correction if before else None
    if before is None or last is None or last.parameters not in ("", parameters):
        return Correction.none(1)
    since = last.missed_since or last.kept_since or before.time
    ratio_before = math.inf if last.ratio_before is None else last.ratio_before
    return Correction(
        time_s=before.time.timestamp(),
        factor=np.array([last.factor]),
        verdict=np.array([int(last.missed_since is not None) - int(last.kept_since is not None)]),
        since_s=np.array([since.timestamp()]),
        before=np.array([ratio_before]),
        vain=np.array([last.vain]),
    )


def _to_status(state: Correction, parameters: str) -> LoadCorrection | None:
    """The state as a status has it; None where there is nothing to go on with."""
    factor, verdict = float(state.factor[0]), int(state.verdict[0])
    if factor <= 1 and verdict <= 0:
        return None
    since = datetime.fromtimestamp(float(state.since_s[0]), UTC)
    before = float(state.before[0])
    return LoadCorrection(
        factor=round(factor, DIGITS),
        missed_since=since if verdict > 0 else None,
        kept_since=since if verdict < 0 else None,
        ratio_before=round(before, DIGITS) if math.isfinite(before) else None,
        vain=int(state.vain[0]),
        parameters=parameters,
    )
