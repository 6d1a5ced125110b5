"""Limit a route to the backends that can serve; pure.

The router picks a target by its weight before it looks for pods, so requests to a target without
pods would fail. Such a target is left out instead of getting the weight 0, because routers of
the original crash if all weights of a rule are 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from inferno_operator.controllers.boosters.convert.context import ChildPlace
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Manifest

Json = dict[str, Any]


class Prospect(NamedTuple):
    """How well a backend can serve; greater is better."""

    available: bool
    """A replica is available."""
    staying: bool
    """It keeps or gets replicas."""


NONE = Prospect(available=False, staying=False)


def with_best_targets(
    children: Sequence[Json], existing: Mapping[ChildPlace, Manifest], dialect: Dialect
) -> list[Json]:
    """Return the children, with a route that has only targets that can serve.

    Parameters
    ----------
    children
        The wanted children, with a route to all backends.
    existing
        The existing children.
    dialect
        The dialect, which has the kinds of servings and routes.
    """
    asked = {(child["kind"], child["metadata"]["name"]): child for child in children}
    prospects = {
        name: _prospect(existing.get((kind, name), {}), asked.get((kind, name), {}))
        for kind, name in existing.keys() | asked.keys()
        if kind == dialect.serving.kind
    }
    route = dialect.route.kind
    return [_narrowed(each, prospects) if each["kind"] == route else each for each in children]


def _prospect(current: Manifest, wanted: Manifest) -> Prospect:
    """Return the prospect of a serving, from its current and its wanted state."""
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
    """Return the targets with the best prospect.

    These are the targets that are available and keep replicas, else those that are available,
    else those that get replicas. Any target with a weight of 0 is worse than all others.
    """
    ranked = [
        ((target.get("weight") != 0, *prospects.get(target["modelServerName"], NONE)), target)
        for target in targets
    ]
    best = max((rank for rank, _ in ranked), default=None)
    return [target for rank, target in ranked if rank == best]
