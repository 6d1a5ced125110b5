"""The policies by their names."""

from collections.abc import Mapping
from types import MappingProxyType

from inferno_optimizer.replay.hindsight import Clairvoyant, StaticPeak
from inferno_optimizer.replay.planning import PlanningRules, planner
from inferno_optimizer.replay.policy import NamedPolicy
from inferno_optimizer.replay.scaling import Hpa

BOUND = NamedPolicy("clairvoyant", Clairvoyant, hindsight=True, percentiles=False)
"""What the others are measured against."""

REACTIVE = PlanningRules(ahead=False, short_s=30.0)

CALIBRATED = PlanningRules(calibrates=True)

UNCORRECTED = PlanningRules(corrects=False)

POLICIES: Mapping[str, NamedPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            NamedPolicy("inferno", planner(PlanningRules()), percentiles=False),
            NamedPolicy("inferno-calibrated", planner(CALIBRATED), percentiles=False),
            NamedPolicy("inferno-exact", planner(PlanningRules(exact=True)), percentiles=False),
            NamedPolicy("inferno-reactive", planner(REACTIVE), percentiles=False),
            NamedPolicy("inferno-uncorrected", planner(UNCORRECTED), percentiles=False),
            NamedPolicy("hpa", Hpa, percentiles=False),
            NamedPolicy("static-peak", StaticPeak, hindsight=True, percentiles=False),
            BOUND,
        )
    }
)
