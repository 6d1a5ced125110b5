"""Give Servers without replicas their first one at once; safe to repeat.

This runs beside the optimization of the namespace, and shares only the moment of the write with it.
"""

import logging
from collections.abc import Sequence
from itertools import filterfalse

from inferno_operator.controllers.optimization.nodes import Nodes, solve_on_nodes, spanning
from inferno_operator.controllers.optimization.permission import Optimization
from inferno_operator.controllers.optimization.reconcile import OPTIMIZER, Context, numbered
from inferno_operator.controllers.optimization.snapshot import build_system
from inferno_operator.controllers.optimization.source import OnDemand
from inferno_operator.controllers.optimization.wake_changes import (
    is_asleep,
    is_wanted,
    waiting_updates,
    waking_system,
    waking_updates,
)
from inferno_operator.resources import Optimizer
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation, observe, readable, still_running
from inferno_operator.runtime.ports import GoneError
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System

logger = logging.getLogger(__name__)


class Greedy:
    """Solves small systems in this process, in milliseconds."""

    async def optimize(self, system: System) -> Solution:
        """Solve a system."""
        return optimize(system)


async def wake(key: Key, context: Context) -> ReconcileResult:
    """Give all Servers that are wanted a replica, if cards are free and nobody has to approve."""
    try:
        observation = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
        optimizer = observation.resource
        if isinstance(optimizer, Optimizer) and observation.deleted is None:
            nodes = await context.machines.nodes(key.namespace)
            async with context.writes[key.namespace]:
                await _wake(optimizer, Nodes(nodes), key, context)
    except GoneError:
        return ReconcileResult.SETTLED
    except InfernoError as error:
        logger.warning("Optimizer %s: a Server does not wake yet: %s", key, error)
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


async def _wake(optimizer: Optimizer, where: Nodes, key: Key, context: Context) -> None:
    observations = await _objects(key.namespace, context)
    if not any(map(is_wanted, observations)):
        return
    resources = readable(observations)
    running = [*resources, *still_running(observations)]
    snapshot = build_system(running, optimizer, context.time_limit)
    system = waking_system(snapshot, observations)
    placed = await solve_on_nodes(system, Nodes(where.nodes, spanning(resources)), Greedy())
    solution = placed.solution
    updates = waking_updates(observations, solution)
    permission = await context.approver.permit_additions(
        Optimization(optimizer, observations, updates, snapshot, solution, is_requested=False)
    )
    memory, given = context.memories[key.namespace], [*numbered(permission.updates)]
    memory.woken.update(given)
    await context.writer.write_all([*permission.updates, *waiting_updates(observations, solution)])
    memory.note_written(given, context.steady())
    for update in permission.updates:
        logger.info("%s wakes: %s", update.reference, update.main.message)


async def _objects(namespace: str, context: Context) -> Sequence[Observation]:
    """Return the objects as the API server has them, and what waits for Servers that sleep."""
    objects = await OnDemand(context.cluster).objects(namespace)
    asleep, others = filter(is_asleep, objects), filterfalse(is_asleep, objects)
    return [*others, *context.loads.with_known_loads([*asleep])]
