"""The policies by their names."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inferno_optimizer.replay.hindsight import Clairvoyant, StaticPeak
from inferno_optimizer.replay.keda import (
    KedaQueue,
    KedaQueueGuard,
    KedaSaturation,
    KedaSlo,
    KedaToken,
)
from inferno_optimizer.replay.planning import PlanningRules, planner
from inferno_optimizer.replay.policy import Policy
from inferno_optimizer.replay.scaling import DynamoSla, Hpa


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, and whether it knows the whole load beforehand."""

    name: str
    make: Policy
    hindsight: bool = False


BOUND = NamedPolicy("clairvoyant", Clairvoyant, hindsight=True)
"""What the others are measured against."""

POLICIES: Mapping[str, NamedPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            NamedPolicy("inferno", planner(PlanningRules())),
            NamedPolicy("inferno-exact", planner(PlanningRules(exact=True))),
            NamedPolicy("inferno-reactive", planner(PlanningRules(ahead=False))),
            NamedPolicy("hpa", Hpa),
            NamedPolicy("keda-slo", KedaSlo),
            NamedPolicy("keda-queue", KedaQueue),
            NamedPolicy("keda-queue-guard", KedaQueueGuard),
            NamedPolicy("keda-saturation", KedaSaturation),
            NamedPolicy("keda-token", KedaToken),
            NamedPolicy("dynamo-sla", DynamoSla),
            NamedPolicy("static-peak", StaticPeak, hindsight=True),
            BOUND,
        )
    }
)
