"""Which backends a route leads to: those that can serve; pure.

The router picks a target by its weight before it looks for pods, so a target without any would
take its share of the requests, which then fail. It is left out rather than given a weight of 0:
where all weights of a rule are 0, routers of the original end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from inferno_operator.controllers.boosters.convert.context import Place
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Manifest

Json = dict[str, Any]


class Prospect(NamedTuple):
    """How well a backend can serve; of two the greater does better."""

    available: bool
    """A replica is available."""
    staying: bool
    """It is to have replicas."""


NONE = Prospect(available=False, staying=False)


def with_best_targets(
    children: Sequence[Json], there: Mapping[Place, Manifest], dialect: Dialect
) -> list[Json]:
    """The children, with a route that leads to what can serve only.

    Parameters
    ----------
    children
        As they are to be, with a route to all backends.
    there
        What is there.
    dialect
        Tells which of them are servings, and which is the route.
    """
    asked = {(child["kind"], child["metadata"]["name"]): child for child in children}
    prospects = {
        name: _prospect(there.get((kind, name), {}), asked.get((kind, name), {}))
        for kind, name in there.keys() | asked.keys()
        if kind == dialect.serving.kind
    }
    route = dialect.route.kind
    return [_narrowed(each, prospects) if each["kind"] == route else each for each in children]


def _prospect(current: Manifest, wanted: Manifest) -> Prospect:
    """What to expect of a serving as it is and as it is to be."""
    status = current.get("status") or {}
    spec = {**current.get("spec", {}), **wanted.get("spec", {})}
    return Prospect(status.get("availableReplicas", 0) > 0, spec.get("replicas", 1) > 0)


def _narrowed(route: Json, prospects: Mapping[str, Prospect]) -> Json:
    rules = [
        {**rule, "targetModels": _best(rule["targetModels"], prospects)}
        for rule in route["spec"]["rules"]
    ]
    return {**route, "spec": {**route["spec"], "rules": rules}}


def _best(targets: Iterable[Json], prospects: Mapping[str, Prospect]) -> list[Json]:
    """Targets that are available and stay, else those that are, else those that are to come.

    One of weight 0 is to get no requests and is worse than any other, whatever it can do.
    """
    ranked = [
        ((target.get("weight") != 0, *prospects.get(target["modelServerName"], NONE)), target)
        for target in targets
    ]
    best = max((rank for rank, _ in ranked), default=None)
    return [target for rank, target in ranked if rank == best]
