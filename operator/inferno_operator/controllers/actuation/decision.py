"""What a Server's decision asks for: replicas by accelerator, or to leave what runs; pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from inferno_operator.resources import Allocation, Condition, Server, ServerAllocation
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.observation import Observation
from inferno_optimizer.system import Reason

UNDECIDED = frozenset(reason for reason in Reason if not reason.decided)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Replicas by accelerator; None holds what runs, and `why` tells the cause.

    `fresh` is False while the decision and what is told of it are not of one version yet:
    then there is nothing to say either.
    """

    replicas: Mapping[str, int] | None
    why: str = ""
    fresh: bool = True


def wanted(observation: Observation) -> Wanted:
    """Read the decision for a Server.

    It is written before the condition that tells of it. In between, a decision that was
    cleared because none is possible looks like one for no replicas, which is why nothing is
    taken down before the condition is of the same version.
    """
    server, told = observation.resource, observation.status.condition(ALLOCATED)
    if not isinstance(server, Server) or told is None:
        return Wanted(None, "nothing was decided yet; set spec.optimize of an Optimizer to true")
    if told.reason in UNDECIDED:
        return Wanted(None, f"{told.reason}: {told.message}")
    replicas = _replicas(server)
    if not replicas and not _is_about(told, observation):
        return Wanted(None, fresh=False)
    if replicas and told.status != "True":
        return Wanted(None, fresh=False)
    return Wanted(replicas)


def placements(whole: ServerAllocation | None) -> tuple[Allocation, ...]:
    """The allocation on each accelerator that has replicas."""
    if whole is None:
        return ()
    return tuple(part for part in whole.parts if part.num_replicas > 0)


def _replicas(server: Server) -> Mapping[str, int]:
    replicas: Counter[str] = Counter()
    for part in placements(server.spec.desired_alloc):
        replicas[part.accelerator] += part.num_replicas
    return replicas


def _is_about(told: Condition, observation: Observation) -> bool:
    """No capacity is told only after the decision was cleared, and nothing else looks like it."""
    return told.reason == Reason.NO_CAPACITY or told.observed_generation == observation.generation
