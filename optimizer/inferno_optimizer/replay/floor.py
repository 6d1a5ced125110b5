"""The least that an ideal autoscaler could have got away with."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.hindsight import cheapest
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class FloorOfTrace:
    """The least cost that meets all targets in each step of a trace, without any lead time.

    Attributes
    ----------
    servers, types
        Names, in the order of the arrays.
    hours
        Length of the trace.
    cost
        Least cost of each server [cents]. No limit of cards is counted, so that no plan with one
        accelerator for each server costs less.
    replicas, most_replicas
        Their mean and their largest number.
    accelerators
        For each server, the accelerators with their shares of the time, the largest first.
    cards, most_cards
        Mean and largest number of cards by type that this takes.
    capacity
        Cards by type that there are.
    """

    servers: tuple[str, ...]
    types: tuple[str, ...]
    hours: float
    cost: FloatArray
    replicas: FloatArray
    most_replicas: FloatArray
    accelerators: tuple[tuple[tuple[str, float], ...], ...]
    cards: FloatArray
    most_cards: FloatArray
    capacity: FloatArray


def floor_of(fleet: ReplayFleet, trace: Trace) -> FloorOfTrace:
    """The floor of a fleet under a load."""
    place, count = cheapest(fleet, trace)
    hours = trace.seconds / SECONDS_PER_HOUR
    servers = np.arange(len(fleet.servers))
    cost = fleet.unit_cost[servers, place] * count
    cards = np.zeros((trace.steps, len(fleet.types)))
    used = fleet.cards[servers, place] * count
    for kind in range(len(fleet.types)):
        cards[:, kind] = np.where(fleet.card_type[place] == kind, used, 0).sum(axis=1)
    return FloorOfTrace(
        servers=tuple(server.name for server in fleet.servers),
        types=fleet.types,
        hours=hours,
        cost=cost.sum(axis=0) * trace.step_s / SECONDS_PER_HOUR,
        replicas=count.mean(axis=0),
        most_replicas=count.max(axis=0).astype(np.float64),
        accelerators=tuple(
            _shares(fleet, *column) for column in zip(place.T, count.T, strict=True)
        ),
        cards=cards.mean(axis=0),
        most_cards=cards.max(axis=0),
        capacity=fleet.capacity.astype(np.float64),
    )


def _shares(
    fleet: ReplayFleet, place: FloatArray, count: FloatArray
) -> tuple[tuple[str, float], ...]:
    """Accelerators of a server with their shares of the time, the largest first."""
    used = np.bincount(place[count > 0].astype(np.int64), minlength=len(fleet.accelerators))
    order = np.argsort(-used, kind="stable")
    return tuple((fleet.accelerators[i], used[i] / len(place)) for i in order if used[i])
