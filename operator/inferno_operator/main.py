"""`inferno operator`: read the settings, connect, and work until told to stop."""

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from inferno_operator.adapters.http import health
from inferno_operator.adapters.kubernetes import boosters, cluster, lease, workloads
from inferno_operator.adapters.kubernetes import watch as watches
from inferno_operator.adapters.optimizers.local import LocalOptimizer
from inferno_operator.adapters.optimizers.remote import RemoteOptimizer, StatefulRemoteOptimizer
from inferno_operator.controllers.actuation.controller import Actuation
from inferno_operator.controllers.actuation.guard import GuardedObjects
from inferno_operator.controllers.boosters.controller import BoosterController
from inferno_operator.controllers.boosters.guard import GuardedBoosters
from inferno_operator.controllers.boosters.ports import BoosterCluster
from inferno_operator.controllers.optimization.mode import Mode, Work
from inferno_operator.logs import configure
from inferno_operator.manager import Operation
from inferno_operator.resources import RESOURCES
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.leader_election import Election
from inferno_operator.runtime.ports import Watch
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import HEALTH_PORT, Settings, unknown_variables

LEASE = "inferno-operator"

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its namespace."""

logger = logging.getLogger(__name__)


def run(
    environment: Mapping[str, str] = os.environ,
    health_port: int = HEALTH_PORT,
    *,
    json_logs: bool = False,
) -> None:
    """Run the operator in the foreground; SIGTERM and SIGINT end it.

    Raises
    ------
    InfernoError
        It cannot start: a setting makes no sense, or there is no access to a cluster. Or it
        has to end, for another operator leads.
    """
    settings = Settings.from_environment(environment)
    configure(as_json=json_logs)
    for warning in unknown_variables(environment):
        logger.warning(warning)
    in_cluster = "KUBERNETES_SERVICE_HOST" in environment
    asyncio.run(_operate(settings, in_cluster=in_cluster, health_port=health_port))


async def _operate(settings: Settings, *, in_cluster: bool, health_port: int) -> None:
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    key = Key(_lease_namespace(settings, in_cluster=in_cluster), LEASE)
    async with cluster.connect(_now, identity) as api_server, lease.connect(key) as store:
        election = Election(store, identity, _elapsed, _now) if settings.leader_election else None
        async with (
            _watch(settings) as watch,
            _boosters(settings, identity) as models,
            workloads.connect(len(settings.namespaces) or 1, _now, identity) as objects,
        ):
            if in_cluster:
                settings = await _with_images(settings, models, key.namespace)
            mode = partial(_mode, settings, watch, models, objects)
            operation = Operation(settings, api_server, mode, election, _now, _elapsed)
            host = "" if in_cluster else health.LOOPBACK
            async with health.serve(
                host, health_port, operation.stuck, operation.unready, operation.metrics.page
            ):
                await operation.run()


def _watch(settings: Settings) -> AbstractAsyncContextManager[Watch | None]:
    """What is mirrored, if anything is; every kind in every namespace takes a connection."""
    if settings.stateless:
        return nullcontext()
    return watches.connect(len(RESOURCES) * (len(settings.namespaces) or 1))


def _boosters(
    settings: Settings, identity: str
) -> AbstractAsyncContextManager[boosters.ApiServerBoosters | None]:
    """Where ModelBoosters are, if they are looked after; every kind is watched."""
    dialect = settings.model_booster
    if dialect is None:
        return nullcontext()
    kinds = (dialect.booster, *dialect.children)
    return boosters.connect(len(kinds) * (len(settings.namespaces) or 1), _now, identity)


async def _with_images(
    settings: Settings, models: boosters.ApiServerBoosters | None, namespace: str
) -> Settings:
    """The settings with the images that the controller's ConfigMap names."""
    if settings.model_booster is None or models is None:
        return settings
    dialect = await models.with_images(settings.model_booster, namespace)
    return replace(settings, model_booster=dialect)


def _controllers(
    settings: Settings, models: BoosterCluster | None, guard: GuardedCluster
) -> Sequence[BoosterController]:
    """The Model Booster controller, if it is to run."""
    if settings.model_booster is None or models is None:
        return ()
    cluster = GuardedBoosters(models, guard)
    return (BoosterController(cluster, settings.model_booster, settings.namespaces, _now),)


def _mode(
    settings: Settings,
    watch: Watch | None,
    models: BoosterCluster | None,
    objects: workloads.ApiServerObjects,
    cluster: GuardedCluster,
) -> Mode:
    """The way to run that the settings ask for."""
    actuation = Actuation(cluster, GuardedObjects(objects, cluster), settings.namespaces, _now)
    beside: list[Work] = [actuation, *_controllers(settings, models, cluster)]
    make = partial(Mode, cluster, settings.namespaces, _now, watch=watch, beside=beside)
    if settings.remote is None:
        local = LocalOptimizer()
        beside.append(local)
        return make(local)
    if settings.stateless:
        return make(RemoteOptimizer(settings.remote, settings.time_limit))
    keeper = StatefulRemoteOptimizer(settings.remote, settings.time_limit)
    return make(keeper, keeper=keeper)


def _lease_namespace(settings: Settings, *, in_cluster: bool) -> str:
    if in_cluster and OWN_NAMESPACE.exists():
        return OWN_NAMESPACE.read_text().strip()
    return settings.namespaces[0] if settings.namespaces else "default"


def _now() -> datetime:
    return datetime.now(UTC)


def _elapsed() -> float:
    """Seconds that nobody sets; on Linux those in which the machine sleeps count too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
