"""How good a plan is, as a number that a page begins with."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.answer import in_order
from inferno_operator.cli.options.currency import Money
from inferno_operator.controllers.planning.ports import READ
from inferno_operator.controllers.planning.proposal import inputs_digest
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.resources import (
    Certificate,
    LastOptimization,
    Optimizer,
    Server,
    moved,
)
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.observation import Observation, readable

TITLE = "Could cost less by"


def could_cost_less(
    proof: Certificate | None, money: Money, time: datetime | None = None
) -> KeyFigure:
    """How far a plan may be from the best one, as its certificate says; None: there is no plan.

    `time` is when the plan was made.
    """
    if proof is None:
        return KeyFigure(TITLE, "-", "no plan was made yet")
    if proof.objective is None or proof.bound is None:
        return KeyFigure(TITLE, "-", f"the solver {proof.solver} proves no bound")
    less = money.amount(max(proof.objective - proof.bound, 0.0))
    inputs = f"the inputs of {time:%H:%M} UTC" if time else "the load it serves"
    return KeyFigure(TITLE, less, f"{money.rate} at most, proven for {inputs}")


def could_cost_less_now(
    observations: Sequence[Observation], last: LastOptimization | None, money: Money
) -> KeyFigure:
    """How far the last plan may be from the best one, unless its inputs have changed since."""
    if last is None:
        return could_cost_less(None, money)
    if any(_changes_since(observations, last)):
        old = f"inputs changed since the proof of {last.time:%H:%M} UTC"
        return KeyFigure(TITLE, "-", f"not known: {old}")
    return could_cost_less(last.certificate, money, last.time)


def _changes_since(observations: Sequence[Observation], last: LastOptimization) -> Iterator[bool]:
    """Yield whether inputs were added, changed or deleted since an optimization, where it shows."""
    inputs = [o for o in observations if o.kind in READ]
    yield sum(o.kind is Server for o in inputs) != last.servers
    for observation in inputs:
        resource = observation.resource
        born = resource.metadata.creation_timestamp if resource else None
        yield born is not None and born > last.time
        if isinstance(resource, Server):
            yield _has_other_load(resource)
        else:
            ready = observation.status.condition(READY)
            seen = ready.observed_generation if ready else None
            yield seen is not None and observation.generation > seen
    resources, plans = readable(observations), in_order(observations)
    if plans and plans[0].spec.certificate == last.certificate:
        names = {r.metadata.name: r for r in resources if isinstance(r, Optimizer)}
        optimizer = names.get(plans[0].spec.optimizer)
        digest = plans[0].spec.inputs_digest
        yield optimizer is not None and inputs_digest(resources, optimizer) != digest


def _has_other_load(server: Server) -> bool:
    """Whether the load is another one than was decided for, beyond the tolerance of Plans."""
    current, desired = server.spec.current_alloc, server.spec.desired_alloc
    if not (current and current.load and desired and desired.load):
        return False
    return bool(moved(desired.load, current.load))
