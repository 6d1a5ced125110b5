"""One step: count what each Server cost and would have cost, and write it now and then."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from inferno_operator.controllers.savings import status
from inferno_operator.controllers.savings.counting import (
    CountedServer,
    NamespaceAccount,
    ServerAccount,
    counted_server,
    running_costs,
)
from inferno_operator.resources import SYSTEM_RESOURCES, Measured, Resource, Server
from inferno_operator.resources.objects import Key, Now, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.observer import Observer, ServerSpending
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import FieldUpdate, Writer
from inferno_optimizer.errors import InfernoError, UnavailableError
from inferno_optimizer.replay.ledger import STATIC_PEAK
from inferno_optimizer.system import System

logger = logging.getLogger(__name__)

KINDS = tuple(map(kind_of, SYSTEM_RESOURCES))
SERVER = kind_of(Server)

WRITE_STEPS = 10
"""Steps between two writes: so many are lost at most when an operator ends."""

SystemOf = Callable[[Iterable[Resource]], System]


class MeasuredLoads(Protocol):
    """Knows what was measured of Servers."""

    def measured(self) -> Mapping[Key, Measured]:
        """Return what was measured last."""


@dataclass(frozen=True, slots=True)
class Context:
    """What steps need; a step is `step_s` long [s]. The accounts, by namespace, outlive them."""

    cluster: Cluster
    objects: Subscription
    measurements: MeasuredLoads
    system_of: SystemOf
    now: Now
    step_s: float
    observer: Observer
    accounts: defaultdict[str, NamespaceAccount] = field(
        default_factory=lambda: defaultdict(NamespaceAccount)
    )


async def reconcile(context: Context, step: int) -> None:
    """Count a step of each namespace, and write what is due; failures are tried again later."""
    measured = context.measurements.measured()
    for namespace in sorted({key.namespace for key in measured} | context.accounts.keys()):
        servers = _counted_servers(namespace, measured, context)
        _count(namespace, servers, context)
        accounts = context.accounts[namespace].accounts
        context.observer.spent(namespace, [*_spending(servers, accounts)])
        if step % WRITE_STEPS == 0:
            await _write(namespace, servers, context)


def _counted_servers(
    namespace: str, measured: Mapping[Key, Measured], context: Context
) -> dict[str, CountedServer]:
    """Return the Servers that can be counted by their spec.name; of several, the oldest."""
    candidates = (
        counted_server(observation, measured.get(observation.reference.key))
        for observation in _servers(namespace, context)
    )
    in_order = sorted(
        filter(None, candidates), key=lambda counted: counted.server.age, reverse=True
    )
    return {counted.server.spec.name: counted for counted in in_order}


def _servers(namespace: str, context: Context) -> Iterator[Observation]:
    return (o for o in context.objects.observations(SERVER, namespace) if o.deleted is None)


def _count(namespace: str, servers: Mapping[str, CountedServer], context: Context) -> None:
    """Count a step of a namespace; while its cards are not counted yet, none passes."""
    account, now = context.accounts[namespace], context.now()
    accounts = [status.kept_account(counted.observation, now) for counted in servers.values()]
    account.open(accounts, servers)
    others = (
        observation.resource
        for kind in KINDS
        if kind != SERVER
        for observation in context.objects.observations(kind, namespace)
    )
    resources = [*filter(None, others), *(counted.server for counted in servers.values())]
    try:
        system = context.system_of(resources)
    except UnavailableError:
        return
    if servers:
        lead_s = fmean(counted.server.lead_seconds for counted in servers.values())
        account.count(servers, system, context.step_s, lead_s)


async def _write(namespace: str, servers: Mapping[str, CountedServer], context: Context) -> None:
    """Write the accounts, and clear those of Servers that are not measured any more."""
    accounts, now = context.accounts[namespace].accounts, context.now()
    updates: list[FieldUpdate | None] = [
        status.update(counted.observation, accounts[name], now)
        for name, counted in servers.items()
        if accounts[name].entry.seconds
    ]
    unmeasured = (o for o in _servers(namespace, context) if _is_unmeasured(o))
    updates += map(status.cleared, unmeasured)
    writer = Writer(context.cluster, FieldManager.SAVINGS, context.now)
    try:
        await writer.write_all(filter(None, updates))
    except InfernoError as error:
        logger.warning("some savings are not written: %s", error)


def _is_unmeasured(observation: Observation) -> bool:
    return isinstance(observation.resource, Server) and observation.resource.spec.measure is None


def _spending(
    servers: Mapping[str, CountedServer], accounts: Mapping[str, ServerAccount]
) -> Iterator[ServerSpending]:
    """Yield what is reported of each Server that was counted."""
    for name, account in accounts.items():
        entry, server = account.entry, servers[name].server
        if entry.seconds:
            workloads = {item.accelerator: item.name for item in server.spec.workloads}
            costs = running_costs(server, account.prices)
            own = {"paid": entry.paid, "planned": entry.planned, STATIC_PEAK: account.static_peak}
            yield ServerSpending(
                server=name,
                running={(place, workloads.get(place, "")): cost for place, cost in costs.items()},
                cents={**own, **entry.cost},
                requests=entry.requests,
                kept={"paid": entry.kept, **entry.kept_by},
            )
