"""The load of a Server for an optimization: the measured one, and never less without evidence."""

import math
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from typing import Any

import numpy as np

from inferno_operator.engines.series_groups import windows_of
from inferno_operator.resources import (
    DIGITS,
    Load,
    Measure,
    Measured,
    Server,
    ServerAllocation,
    Target,
)
from inferno_operator.resources.measurement import CATCH_UP_SECONDS, Quality, misses_targets
from inferno_optimizer.noise import MOVED, find_moved, followed, noise
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.units import SECONDS_PER_MINUTE

SHRINKS: frozenset[Quality] = frozenset({"Fresh", "Idle"})
"""Qualities that may lower the load."""

JUMP = 0.2
"""Relative increase of a load that does not wait for the next plan."""

JUMP_NOISE = 5.0
"""Standard deviations of a Poisson count that it exceeds: by chance it never does."""

IDLE = Load(arrival_rate=0, avg_out_tokens=1)
"""The load of a server that has never served a request: nothing is known of its lengths."""

HEALTHY_WAIT_S = 1.0
"""How long requests wait in a healthy queue, if no target limits it [s]."""

LENGTHS = ("avg_length", "avg_in_tokens", "avg_out_tokens")
NUMBERS = ("arrival_rate", *LENGTHS)


def add_planned_load(
    newest: Measured,
    server: Server,
    before: Measured | None,
    target: Target | None,
    now: datetime,
) -> Measured:
    """Add the backlog and the load that plans are made for.

    `newest` has the targets that are missed, how far ahead plans are made and by how much more than
    the load they are. The load of `before` is the last valid one; without one, this is the largest
    of what a person gave and of the standing decision. `now` is the time, for which somebody may
    know that more is to come.
    """
    backlog = _find_backlog(newest, target)
    planned = _add_schedule(_plan_load(newest, backlog, server, before), server, now)
    if planned is not None and newest.correction is not None:
        planned = _multiply(planned, newest.correction.factor)
    return newest.model_copy(update={"backlog": backlog, "load": planned})


def may_shrink(measured: Measured | None) -> bool:
    """Whether there is evidence that less is needed than before."""
    return measured is not None and measured.quality in SHRINKS and not measured.misses_targets


def find_load(server: Server, measured: Measured | None) -> Load | None:
    """Return the load of a Server; None if it is not known."""
    if measured is not None and measured.load is not None:
        return measured.load
    return _plan_load(measured, measured.backlog if measured else None, server, None)


def has_moved_by(old: float | None, new: float | None, share: float = MOVED) -> bool:
    """Whether a number moved by more than a share."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > share * max(abs(old), abs(new))


def has_load_moved(old: Load | None, new: Load, measure: Measure | None = None) -> bool:
    """Whether a load moved noticeably, and not by chance in the long window."""
    if (
        old is None
        or has_moved_by(_count_computed_tokens(old), _count_computed_tokens(new))
        or _has_other_drafts(old, new)
    ):
        return True
    return bool(find_moved(_to_array(old), _to_array(new), windows_of(measure).long).any())


def _count_computed_tokens(load: Load) -> int | None:
    """Input tokens of which some are in prefix caches, without these; None if none are."""
    return (load.avg_in_tokens or 0) - load.cached_tokens if load.cached_tokens else None


def _has_other_drafts(old: Load, new: Load) -> bool:
    return has_moved_by(old.tokens_per_step or 1.0, new.tokens_per_step or 1.0)


def is_covered(
    planned: Load, server: Server, measured: Measured, target: Target | None, factor: float
) -> bool:
    """Whether a planned load is not noticeably less than what arrives and waits.

    What is measured of the rate is multiplied by a factor.
    """
    now = {"arrival_rate": measured.arrival_rate or 0.0, **_read_lengths(measured)}
    arriving = planned.model_copy(update=now)
    served = _add_backlog(arriving, _find_backlog(measured, target), server.spec.measure)
    most = _take_larger_numbers(planned, _multiply(served, factor))
    return not (
        has_moved_by(_count_computed_tokens(planned), _count_computed_tokens(most))
        or _has_other_drafts(planned, most)
        or any(has_moved_by(getattr(planned, name), getattr(most, name)) for name in NUMBERS)
    )


def has_jumped(old: Load | None, new: Load, measure: Measure | None = None) -> bool:
    """Whether so much more arrives that a plan is needed now."""
    if old is None:
        return True
    largest = max(old.arrival_rate, new.arrival_rate) / SECONDS_PER_MINUTE
    by_chance = float(noise(largest, windows_of(measure).long, JUMP_NOISE))
    return new.arrival_rate > old.arrival_rate + max(JUMP, by_chance) * new.arrival_rate


def _to_array(load: Load) -> FloatArray:
    """The rate [requests/s] and the lengths of a load; shape (numbers, 1), NaN where unknown."""
    lengths = (getattr(load, name) for name in LENGTHS)
    numbers = [math.nan if value is None else value for value in lengths]
    return np.array([load.arrival_rate / SECONDS_PER_MINUTE, *numbers])[:, None]


def _plan_load(
    measured: Measured | None, backlog: float | None, server: Server, before: Measured | None
) -> Load | None:
    """Return the load that plans are made for; None if nothing is known.

    Without evidence, no number is less than in the last valid load. With evidence, it stays
    while what is measured differs from it by noise.
    """
    last = _undo_correction(before) if before else None
    standing = [last] if last is not None else _find_given(server)
    arrivals = _find_arrivals(measured, standing)
    if measured is None or arrivals is None:
        return _find_largest(standing)
    measure = server.spec.measure
    newest = _add_backlog(arrivals, backlog, measure)
    if may_shrink(measured):
        return newest if last is None else _follow(last, newest, measure)
    if before is None or last is None or measured.quality not in SHRINKS:
        return _find_largest([*standing, newest])
    waited = _add_backlog(last, -(before.backlog or 0.0), measure)  # what waits now is known
    return _add_backlog(_take_larger_numbers(waited, arrivals), backlog, measure)


def _undo_correction(measured: Measured) -> Load | None:
    if measured.load is None or measured.correction is None:
        return measured.load
    return _multiply(measured.load, 1 / measured.correction.factor)


def _multiply(load: Load, factor: float) -> Load:
    return load.model_copy(update={"arrival_rate": round(load.arrival_rate * factor, DIGITS)})


def _add_schedule(measured: Load | None, server: Server, now: datetime) -> Load | None:
    least = max((window.min_arrival_rate or 0.0 for window in server.scheduled(now)), default=0.0)
    if measured is None or measured.arrival_rate >= least:
        return measured
    return measured.model_copy(update={"arrival_rate": least})


def _follow(last: Load, newest: Load, measure: Measure | None) -> Load:
    """Return the newest load; the last one while they differ by noise."""
    if not has_load_moved(last, newest, measure):
        return last
    seconds = windows_of(measure).long
    rate = float(followed(_to_array(last), _to_array(newest), seconds)[0, 0])
    rate = round(rate * SECONDS_PER_MINUTE, DIGITS)
    return newest.model_copy(update={"arrival_rate": rate})


def _find_given(server: Server) -> list[Load]:
    """The loads that a person gave and of the standing decision; one without lengths is none."""
    allocations = (server.spec.current_alloc, server.spec.desired_alloc)
    loads = (part.load for part in allocations if part is not None)
    return [part for part in loads if part is not None and (part.arrival_rate or _has_length(part))]


def _has_length(part: Load) -> bool:
    return bool(part.avg_out_tokens or part.avg_length)


def _find_arrivals(measured: Measured | None, standing: Sequence[Load]) -> Load | None:
    """The load that arrives when new replicas serve; unknown lengths are the first known ones."""
    if measured is None or measured.arrival_rate is None:
        return None
    last = next((part for part in standing if _has_length(part)), None)
    if last is None and measured.avg_out_tokens is None:
        return IDLE if measured.quality == "Idle" else None
    growth = measured.ahead.growth if measured.ahead else 1.0
    rate = round(measured.arrival_rate * growth, DIGITS)
    numbers = {"arrival_rate": rate, **_read_lengths(measured)}
    return (last or IDLE).model_copy(update=numbers)


def _add_backlog(load: Load, backlog: float | None, measure: Measure | None) -> Load:
    """The load with what waits, which is to be served within some time."""
    seconds = measure.catch_up_seconds if measure else CATCH_UP_SECONDS
    rate = max(load.arrival_rate + 60 * (backlog or 0.0) / seconds, 0.0)
    return load.model_copy(update={"arrival_rate": round(rate, DIGITS)})


def _read_lengths(measured: Measured) -> dict[str, Any]:
    if measured.avg_out_tokens is None:
        return {}
    tokens: dict[str, Any] = {"avg_out_tokens": max(round(measured.avg_out_tokens), 1)}
    if measured.avg_in_tokens is not None:
        tokens["avg_in_tokens"] = round(measured.avg_in_tokens)
        tokens["cached_tokens"] = _count_cached_tokens(measured)
    return {**tokens, "avg_length": None, "tokens_per_step": measured.tokens_per_step}


def _count_cached_tokens(measured: Measured) -> int | None:
    """The measured number of cached tokens, rounded down; None if there are none, or not known."""
    if measured.avg_in_tokens is None or measured.avg_computed_tokens is None:
        return None
    return int(max(round(measured.avg_in_tokens) - measured.avg_computed_tokens, 0)) or None


def _find_largest(loads: Sequence[Load]) -> Load | None:
    return reduce(_take_larger_numbers, loads) if loads else None


def _take_larger_numbers(first: Load, second: Load) -> Load:
    """The second load, with the larger number of both, but the smaller one of what saves work."""
    fewest = min(first.cached_tokens or 0, second.cached_tokens or 0)
    slowest = min(first.tokens_per_step or 1.0, second.tokens_per_step or 1.0)
    largest: dict[str, Any] = {
        "cached_tokens": fewest or None,
        "tokens_per_step": slowest if slowest > 1 else None,
    }
    for name in NUMBERS:
        values = [v for part in (first, second) if (v := getattr(part, name)) is not None]
        if values:
            largest[name] = max(values)
    if largest.get("avg_out_tokens") and "avg_length" in largest:
        total = largest.pop("avg_length")
        largest |= {"avg_out_tokens": max(largest["avg_out_tokens"], total), "avg_length": None}
    return second.model_copy(update=largest)


def _find_backlog(measured: Measured, target: Target | None) -> float | None:
    """Requests that wait beyond what a healthy queue holds.

    It holds what arrives in the time that requests may wait, and one request of each replica.
    """
    if measured.waiting is None:
        return None
    limit = target and (target.slo_ttw or target.slo_ttft)
    seconds = limit / 1000 if limit else HEALTHY_WAIT_S
    replicas = measured.replicas.reporting if measured.replicas else 1
    healthy = (measured.arrival_rate or 0.0) / 60 * seconds + replicas
    return round(max(0.0, measured.waiting - healthy), DIGITS)


def set_scheduled_replicas(server: Server, now: datetime) -> Server:
    """Return a Server with the fewest replicas that it is to have now, as somebody knows."""
    fewest = server.fewest_replicas(now)
    is_same = fewest == server.spec.min_num_replicas
    return server if is_same else server.replace_spec(min_num_replicas=fewest)


def set_last_good_load(server: Server) -> Server:
    """Return a Server with the load of its status, if it is measured; else as it is."""
    return (
        server if server.spec.measure is None else apply_measurement(server, server.status.measured)
    )


def apply_measurement(server: Server, measured: Measured | None) -> Server:
    """Return a Server as an optimization gets it after a measurement.

    It has its newest load; as it is if none is known. Without evidence that less is needed, it
    keeps as many replicas as run or were decided, whatever their load is; and the accelerator
    too, unless there is a decision.
    """
    newest = find_load(server, measured)
    if newest is None and (server.sleeps or _is_off(server, measured)):
        newest = IDLE
    if newest is None:
        return server
    loaded = set_load(server, newest)
    return loaded if may_shrink(measured) or server.sleeps else _keep_replicas(loaded, measured)


def _is_off(server: Server, measured: Measured | None) -> bool:
    """Whether nothing was ever measured because nothing runs: there is nothing to lose."""
    current = server.spec.current_alloc
    if measured is None or current is None or not server.names_workloads:
        return False
    return measured.quality == "Missing" and current.placed_replicas == 0


def _keep_replicas(server: Server, measured: Measured | None) -> Server:
    current, desired = server.spec.current_alloc, server.spec.desired_alloc
    running = current.placed_replicas if current else 0
    if not running and measured is not None and measured.replicas is not None:
        running = measured.replicas.reporting
    decided = desired.num_replicas if desired else 0
    missed = misses_targets(measured)
    moves = current is not None and len(current.parts) > 1
    least = min(running, decided) if decided and (moves or not missed) else running
    keeps_accelerator = bool(
        not decided and current and current.accelerator and current.placed_replicas
    )
    return server.replace_spec(
        min_num_replicas=max(server.spec.min_num_replicas, least),
        keep_accelerator=server.spec.keep_accelerator or keeps_accelerator,
    )


def remove_load(server: Server) -> Server:
    """Return the Server as one of which nothing is known: nothing is decided for it yet."""
    return server.replace_spec(current_alloc=None)


def set_load(server: Server, load: Load) -> Server:
    """Return the Server with this load."""
    current = server.spec.current_alloc or ServerAllocation(accelerator="", num_replicas=0)
    return server.replace_spec(current_alloc=current.model_copy(update={"load": load}))
