"""Compare the inputs of a Plan with the objects as they are now; pure.

A Plan is out of date if its inputs changed: the specs of the objects of the namespace, without
what the operator writes there itself, and the parameters of the Optimizer. A digest of these is
compared. Two inputs change all the time, so they are not part of the digest: the measured load of
each Server that the Plan changes has to stay within a tolerance, and the cards that the Plan takes
have to be there.
"""

from collections.abc import Iterable, Mapping

from inferno_operator.controllers.approval.contents import StoredDecision
from inferno_operator.controllers.approval.seal import digest_of
from inferno_operator.resources import (
    CURRENT_ALLOC,
    DESIRED_ALLOC,
    Count,
    Load,
    Optimizer,
    Resource,
    Server,
    moved,
)
from inferno_operator.resources.objects import Manifest


def inputs_digest(resources: Iterable[Resource], optimizer: Optimizer) -> str:
    """Return the digest of what an optimization decides from.

    Parameters
    ----------
    resources
        The objects of the namespace, in any order; Optimizers among them are ignored.
    optimizer
        The Optimizer whose parameters are used.
    """
    objects = sorted(
        ([r.kind, r.metadata.name, _inputs(r)] for r in resources if _is_input(r)),
        key=lambda item: item[:2],
    )
    parameters = optimizer.spec.data.optimizer.model_dump(mode="json")
    return digest_of([parameters, objects])


def moved_load(decisions: Iterable[StoredDecision], resources: Iterable[Resource]) -> str:
    """Return which measured Server has another load than its decision was made for; "" if none.

    Servers that are not measured have their load in the digest.
    """
    servers = {r.metadata.name: r for r in resources if isinstance(r, Server)}
    for decision in decisions:
        server = servers.get(decision.server)
        if server is None or server.spec.measure is None or decision.load is None:
            continue
        current = server.spec.current_alloc
        if current is None or current.load is None:
            return f"Server {decision.server} is not measured any more"
        if change := moved(Load.model_validate(decision.load), current.load):
            return f"Server {decision.server}: {change}"
    return ""


def missing_cards(needed: Iterable[Count], capacity: Mapping[str, int]) -> str:
    """Return which type has fewer cards than a Plan takes; "" if none.

    Parameters
    ----------
    needed
        The cards that all Servers take by the Plan.
    capacity
        The cards that there are now, by type.
    """
    for cards in needed:
        available = capacity.get(cards.type, 0)
        if cards.count > available:
            return f"there are {available} cards of type {cards.type}, and it takes {cards.count}"
    return ""


def _is_input(resource: Resource) -> bool:
    return not isinstance(resource, Optimizer)


def _inputs(resource: Resource) -> Manifest:
    """Return the spec of an object without what the operator writes there."""
    spec = resource.spec.to_json()
    if not isinstance(resource, Server):
        return spec
    current = resource.spec.current_alloc
    kept = {k: v for k, v in spec.items() if k not in (DESIRED_ALLOC, CURRENT_ALLOC)}
    if current is None:
        return kept
    typed: dict[str, object] = {}
    if resource.spec.measure is None:
        typed["load"] = current.load.to_json() if current.load else None
    if not resource.names_workloads:
        typed["runs"] = [[part.accelerator, part.num_replicas] for part in current.parts]
    return {**kept, "typed": typed}
