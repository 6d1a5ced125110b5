"""What else was possible when a Plan was made: the next best for each Server, and its price."""

from collections.abc import Iterable, Mapping

from inferno_operator.cli.kubectl.console.past import inputs_of
from inferno_operator.cli.tables.plans import Alternative
from inferno_operator.resources import Plan, PlanStep, Server
from inferno_optimizer.explain.options import next_best
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role

MOST = 200
"""Most steps whose alternatives are computed: those with the largest change of cost."""


def alternatives_of(plan: Plan, servers: Iterable[Server]) -> Mapping[str, Alternative]:
    """The next best of the steps of a Plan, by name of the Server.

    A Plan names the objects, and its inputs the servers: the objects have both names. Nothing is
    known of Servers that are gone, and where the inputs were left out.
    """
    system = inputs_of(plan)
    if system is None:
        return {}
    names = {server.metadata.name: server.spec.name for server in servers}
    steps = {names[s.server]: s for s in plan.spec.steps[:MOST] if s.server in names}
    found = next_best(system, {name: _accelerator(step) for name, step in steps.items()})
    catalogue = Catalogue(system)
    models = {server.name: server.model for server in system.servers}
    return {
        steps[name].server: Alternative(
            option.placement, option.cost - _cost(catalogue, models[name], steps[name])
        )
        for name, option in found.items()
    }


def _accelerator(step: PlanStep) -> str:
    return step.after[0].accelerator if step.after else ""


def _cost(catalogue: Catalogue, model: str, step: PlanStep) -> float:
    """Cost of what a step decides [cents/hour]."""
    return sum(
        part.replicas * catalogue.unit_cost(model, part.accelerator, Role(part.role))
        for part in step.after
    )
