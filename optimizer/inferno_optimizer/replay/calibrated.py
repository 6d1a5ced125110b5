"""What a planner believes of its replicas, from what they did: `calibrate: Use` of the operator."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import Window, batch_at_poisson_arrivals, retained
from inferno_optimizer.replay.fleet import ReplayFleet, fleet_of, scaled_profile
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.system import (
    DecodeParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    StepParameters,
)

INTERVAL_S = 600.0
"""Time between two calibrations [s]."""

TYPED_ERROR = 0.2
"""Error of the times of profiles without measurements, the default of the operator.

Without one, an accelerator would seem faster because nobody measured it.
"""

CHANGED = 0.02
"""Relative change of a parameter that makes a plan."""


class CalibratedFleet:
    """The fleet as a planner believes it: the parameters that fit what its replicas did.

    Each server whose replicas serve on one accelerator is a window of calibration in each step.
    As in the operator, a refused calibration changes nothing, and targets are checked with the
    upper confidence of 90 %.
    """

    def __init__(self, setting: Setting) -> None:
        self._typed, self._step_s = setting.fleet, setting.step_s
        self._windows: defaultdict[tuple[str, str], list[Window]] = defaultdict(list)
        self._found: dict[tuple[str, str], PrefillDecodeParameters] = {}
        self._due_s = INTERVAL_S
        self.fleet = self._believed()

    def add(self, seen: Seen) -> bool:
        """Take note of a step; whether another fleet is believed in now."""
        for pair, window in _windows(self._typed, seen, self._step_s):
            self._windows[pair].append(window)
        if seen.time_s < self._due_s:
            return False
        self._due_s = seen.time_s + INTERVAL_S
        before = dict(self._found)
        self._calibrate(seen.time_s)
        if not any(_differs(before.get(pair), fitted) for pair, fitted in self._found.items()):
            self._found = before
            return False
        self.fleet = self._believed()
        return True

    def _calibrate(self, now: float) -> None:
        pairs = sorted(self._windows)
        for pair in pairs:
            self._windows[pair] = retained(self._windows[pair])
        profiles = {(p.model, p.accelerator): p for p in self._typed.system.profiles}
        evidence = [Evidence(self._windows[pair], _prior(profiles[pair])) for pair in pairs]
        for pair, result in zip(pairs, calibrate(evidence, now), strict=True):
            if result.reason.usable:
                self._found[pair] = result.upper

    def _believed(self) -> ReplayFleet:
        """The fleet with the parameters that were found, and with an error of all others."""
        system = self._typed.system
        profiles = (
            _with(profile, self._found.get((profile.model, profile.accelerator)))
            for profile in system.profiles
        )
        return fleet_of(replace(system, profiles=tuple(profiles)))[0]


def _with(profile: PerformanceProfile, found: PrefillDecodeParameters | None) -> PerformanceProfile:
    """A profile with what was found; lines do not replace steps, which hold for more lengths."""
    if found is None or isinstance(profile.parameters, StepParameters):
        return scaled_profile(profile, 1.0 + TYPED_ERROR)
    if isinstance(profile.parameters, DecodeParameters):
        return replace(profile, parameters=DecodeParameters(found.alpha, found.beta))
    return replace(profile, parameters=found)


def _prior(profile: PerformanceProfile) -> PrefillDecodeParameters | None:
    """The configured parameters, where they are lines."""
    match profile.parameters:
        case DecodeParameters(alpha, beta):
            return PrefillDecodeParameters(alpha, beta, 0.0, 0.0)
        case PrefillDecodeParameters() as typed:
            return typed
        case _:
            return None


def _windows(
    fleet: ReplayFleet, seen: Seen, step_s: float
) -> Iterator[tuple[tuple[str, str], Window]]:
    """What a replica of each server did in a step, with its model and accelerator.

    Servers that serve on several accelerators are left out: one latency tells nothing of each.
    """
    served, load = seen.served, seen.load
    for row in np.flatnonzero((seen.ready > 0).sum(axis=1) == 1).tolist():
        place = int(seen.ready[row].argmax())
        replicas = float(seen.ready[row, place])
        prompt, answer = load.lengths[:, row].tolist()
        prefills = float(load.rate[row]) * step_s / replicas
        yield (
            (fleet.servers[row].model, fleet.accelerators[place]),
            Window(
                end=seen.time_s,
                itl_ms=float(served.itl_ms[row]),
                intervals=prefills * max(answer - 1.0, 0.0),
                batch=batch_at_poisson_arrivals(float(served.running[row]) / replicas),
                prefill_ms=float(served.ttft_ms[row] - served.wait_ms[row]),
                prefills=prefills,
                input_tokens=max(prompt, 1.0),
                output_tokens=answer,
                replica=fleet.servers[row].name,
            ),
        )


def _differs(before: PrefillDecodeParameters | None, now: PrefillDecodeParameters) -> bool:
    """Whether parameters have changed noticeably."""
    if before is None:
        return True
    old, new = (np.array([p.alpha, p.beta, p.gamma, p.delta]) for p in (before, now))
    return bool((np.abs(new - old) > CHANGED * np.maximum(np.abs(old), np.abs(new))).any())
