"""Mode Recommend of Optimizers: in their namespace, actuation writes nothing but status.

Which Optimizer made a decision cannot be told from a Server. So one Optimizer with this mode
stops actuation in its whole namespace. A reconcile reads the Optimizers themselves: a decision is
written after its Optimizer, so no decision is seen without the mode of its Optimizer. If the
Optimizer is deleted, what it recommended stays a recommendation until there is another one.
"""

from collections.abc import Collection

from inferno_operator.controllers.actuation.decision import Wanted, wanted
from inferno_operator.resources import Optimizer
from inferno_operator.resources.conditions import ACTUATED, RECOMMENDED
from inferno_operator.resources.objects import Manifest, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.ports import Cluster, GoneError

OPTIMIZER = kind_of(Optimizer)


async def recommending(namespace: str, cluster: Cluster) -> str | None:
    """Return what `recommended_by` returns for the Optimizers of a namespace."""
    try:
        listing = await cluster.list(OPTIMIZER, namespace)
    except GoneError:  # the kind is not installed
        return None
    return recommended_by(listing.manifests)


def recommended_by(optimizers: Collection[Manifest]) -> str | None:
    """Return why only recommendations are made in a namespace; "" if decisions are actuated.

    None if there is no Optimizer.
    """
    if not optimizers:
        return None
    names = sorted(m["metadata"]["name"] for m in optimizers if recommends(m))
    return f"Optimizer {names[0]!r} has mode Recommend" if names else ""


def decision_for(observation: Observation, why: str | None) -> Wanted:
    """Read the decision for a Server; `why` is that of `recommending`."""
    before = observation.status.condition(ACTUATED)
    if why is None and before is not None and before.reason == RECOMMENDED:
        why = "its Optimizer, which had mode Recommend, was deleted"
    return Wanted(None, why, reason=RECOMMENDED) if why else wanted(observation)


def recommends(manifest: Manifest | None) -> bool:
    """Whether an Optimizer has the mode, also if the rest of its spec is invalid."""
    return manifest is not None and manifest.get("spec", {}).get("mode") == "Recommend"


def is_change_of_mode(difference: ObjectDifference) -> bool:
    """Whether an Optimizer got or lost the mode."""
    return recommends(difference.before) != recommends(difference.after)
