"""Compare the latencies of a server with their targets; pure. In ms."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from inferno_operator.controllers.measurement.quality import compare_with_targets
from inferno_operator.resources import Allocation, Measured, Target

Latency = Literal["itl", "wait", "ttft"]

DEFAULT_WAIT_PERCENTILE = 95.0
"""Default percentile of a target of the wait; see `inferno_optimizer.system.Target`."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """A latency and its target [ms]: the mean, or the percentile that the target names."""

    latency: Latency
    value_ms: float
    target_ms: float

    @property
    def share(self) -> float:
        """Unused share of the target, 0 to 1; negative if the target is missed."""
        return 1.0 - self.value_ms / self.target_ms


LATENCIES: Mapping[str, Latency] = {"slo-itl": "itl", "slo-ttw": "wait", "slo-ttft": "ttft"}
"""Latencies by the name of their target."""


def measured_headrooms(measured: Measured, target: Target | None) -> tuple[Headroom, ...]:
    """Return the headroom of each measured latency that has a target."""
    if target is None:
        return ()
    compared = compare_with_targets(measured, target)
    return tuple(Headroom(LATENCIES[name], value, limit) for name, value, limit in compared)


def headrooms(allocation: Allocation | None, target: Target | None) -> tuple[Headroom, ...]:
    """Return the headroom of each latency that is known and has a target.

    Parameters
    ----------
    allocation
        The current allocation, with the measured mean latencies.
    target
        The target of the server's class for its model.

    Notes
    -----
    Percentiles are estimates, because only means are measured: waits are assumed exponential, as
    in targets of the original, and the rest of the time to first token constant.
    """
    if allocation is None or target is None or not allocation.accelerator:
        return ()
    return tuple(_known(allocation, target))


def _known(allocation: Allocation, target: Target) -> Iterator[Headroom]:
    itl, wait, ttft = allocation.itl_average, allocation.wait_average, allocation.ttft_average
    if target.slo_itl and itl:
        yield Headroom("itl", itl, target.slo_itl)
    if target.slo_ttw and wait is not None:
        percentile = target.slo_ttw_percentile or DEFAULT_WAIT_PERCENTILE
        yield Headroom("wait", wait * _tail(percentile), target.slo_ttw)
    if target.slo_ttft and ttft:
        excess = _tail(target.slo_ttft_percentile) - 1.0 if target.slo_ttft_percentile else 0.0
        yield Headroom("ttft", ttft + excess * (wait or 0.0), target.slo_ttft)


def _tail(percentile: float) -> float:
    """Return a percentile of an exponential distribution, relative to its mean."""
    return -math.log(1.0 - percentile / 100.0)
