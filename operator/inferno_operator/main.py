"""`inferno operator`: read the settings, connect, and run until a signal stops it."""

import asyncio
import gc
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from inferno_operator.adapters.http import health
from inferno_operator.adapters.http.decisions import Decisions
from inferno_operator.adapters.http.metrics import Metrics
from inferno_operator.adapters.kubernetes import api_server, lease
from inferno_operator.adapters.kubernetes.api_server import ApiServer
from inferno_operator.adapters.optimizers.local import LocalOptimizer
from inferno_operator.adapters.optimizers.remote import RemoteOptimizer, StatefulRemoteOptimizer
from inferno_operator.adapters.prometheus import client as prometheus
from inferno_operator.controllers.actuation.controller import ActuationController
from inferno_operator.controllers.actuation.publication.controller import Publication
from inferno_operator.controllers.actuation.workloads.controller import WorkloadController
from inferno_operator.controllers.boosters.controller import BoosterController
from inferno_operator.controllers.calibration.controller import CalibrationController
from inferno_operator.controllers.calibration.replicas import (
    PrometheusWindows,
    Subject,
    subject,
)
from inferno_operator.controllers.capacity.controller import CapacityController
from inferno_operator.controllers.measurement.catalogue import catalogue_with
from inferno_operator.controllers.measurement.controller import MeasurementController
from inferno_operator.controllers.measurement.survey import Survey
from inferno_operator.controllers.optimization.controller import OptimizationController
from inferno_operator.controllers.optimization.ports import Loads, Machines, Optimizer
from inferno_operator.controllers.optimization.reconcile import Context
from inferno_operator.controllers.optimization.snapshot import build_system
from inferno_operator.controllers.optimization.source import OnDemand
from inferno_operator.controllers.plans.controller import PlansController
from inferno_operator.logs import configure
from inferno_operator.resources import RESOURCES, Resource
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.leader_election import Election
from inferno_operator.runtime.manager import Controller, Manager
from inferno_operator.runtime.prometheus import Prometheus
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import HEALTH_PORT, Settings, unknown_variables
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import System

LEASE = "inferno-operator"

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file with the name of the pod's namespace."""

WORKLOAD_KINDS = 8
"""Kinds of workloads that Servers name, with pods; more of them share the connections of calls."""

WATCHED_KINDS = len(RESOURCES) + 1 + 2 + 4 + WORKLOAD_KINDS + 3 * len(DIALECTS) + 7 + 4
"""Upper limit: our kinds, those of plans, measurement and actuation, boosters with their children,
and those of counts: nodes, pods, Servers and Capacities."""

CALIBRATED_SOURCE = "vLLM"
"""The source whose replicas report what a calibration needs."""

PROGRESS_SECONDS = 300.0
"""Seconds without progress, in addition to the solver's time limit, after which it is stuck."""

COLLECTION = 50_000, 20, 20
"""Thresholds of the garbage collector: most objects live long, and there are many."""

logger = logging.getLogger(__name__)


def run(
    environment: Mapping[str, str] = os.environ,
    health_port: int = HEALTH_PORT,
    *,
    json_logs: bool = False,
) -> None:
    """Run the operator in the foreground; SIGTERM and SIGINT stop it.

    Raises
    ------
    InfernoError
        The operator cannot start, because a setting is invalid or there is no access to a
        cluster. Or it must exit, because another operator leads.
    """
    settings = Settings.from_environment(environment)
    configure(as_json=json_logs)
    for warning in unknown_variables(environment):
        logger.warning(warning)
    in_cluster = "KUBERNETES_SERVICE_HOST" in environment
    gc.set_threshold(*COLLECTION)
    asyncio.run(_operate(settings, in_cluster=in_cluster, health_port=health_port))


async def _operate(settings: Settings, *, in_cluster: bool, health_port: int) -> None:
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    key = Key(_lease_namespace(settings, in_cluster=in_cluster), LEASE)
    watches = WATCHED_KINDS * (len(settings.namespaces) or 1)
    metrics = Metrics()
    async with (
        api_server.connect(watches, _now, identity) as cluster,
        lease.connect(key) as store,
        _optimizer(settings) as optimizer,
        _prometheus(settings, metrics) as prometheus_client,
    ):
        election = Election(store, identity, _elapsed, _now) if settings.leader_election else None
        remaining = election.remaining if election else lambda: inf
        guard = GuardedCluster(cluster, remaining, metrics, _elapsed)
        measurement = _measurement(settings, guard, prometheus_client, metrics)
        workloads = WorkloadController(guard, settings.namespaces, _system_of, _now)
        capacity = CapacityController(guard, settings.namespaces, _now, workloads.recheck)
        plans = PlansController(guard, OnDemand(guard), measurement, settings.namespaces, _now)
        others = measurement, capacity, plans
        optimization = _optimization(settings, guard, optimizer, others, metrics)
        dialect = settings.model_booster
        if in_cluster and dialect is not None:
            dialect = await with_images(dialect, cluster, key.namespace)
        controllers: list[Controller] = [  # in the order in which they are stopped
            plans,  # before the optimization, which it would complete
            optimization,
            measurement,
            *_calibration(settings, guard, prometheus_client, measurement),
            capacity,
            workloads,
            *_others(settings, guard, dialect),
        ]
        patience = PROGRESS_SECONDS + settings.time_limit
        wva = settings.wva_metrics
        publication = Publication(guard, settings.namespaces, names_variants=wva)
        manager = Manager(guard, controllers, election, _elapsed, patience, (publication,))
        metrics.follow(
            leading=lambda: remaining() > 0, queue_depth=lambda: optimization.queue.depth
        )
        # Only the leader exports decisions: autoscalers add the series of several operators up.
        metrics.publish(
            lambda: publication.decisions() if remaining() > 0 else (),
            publication.variant if wva else None,
        )
        decisions = Decisions(publication.decision, settings.publish_token)

        def unready() -> str:
            answers = publication.unready() if settings.publish_token else ""
            return manager.unready(optimization.unready) or answers

        host = "" if in_cluster else health.LOOPBACK
        async with health.serve(host, health_port, manager.stuck, unready, metrics.page, decisions):
            await manager.run()


@asynccontextmanager
async def _optimizer(settings: Settings) -> AsyncIterator[Optimizer]:
    """Yield the embedded or the remote optimizer."""
    if settings.remote is None:
        local = LocalOptimizer()
        warm_up = asyncio.create_task(local.warm_up())
        try:
            yield local
        finally:
            warm_up.cancel()
            await asyncio.wait([warm_up])
    elif settings.stateless:
        yield RemoteOptimizer(settings.remote, settings.time_limit)
    else:
        yield StatefulRemoteOptimizer(settings.remote, settings.time_limit)


@asynccontextmanager
async def _prometheus(settings: Settings, metrics: Metrics) -> AsyncIterator[Prometheus | None]:
    """Yield what answers queries; None if the settings do not say where Prometheus is."""
    if settings.prometheus is None:
        yield None
        return
    async with prometheus.connect(settings.prometheus, metrics) as client:
        yield client


def _measurement(
    settings: Settings, cluster: GuardedCluster, client: Prometheus | None, metrics: Metrics
) -> MeasurementController:
    """Return the measurement controller; without Prometheus it only says so on the Servers."""
    sources = catalogue_with(settings.measure_sources)
    survey = None if client is None else Survey(client, sources, time.time)
    interval = settings.measure_interval
    return MeasurementController(cluster, survey, settings.namespaces, interval, _now, metrics)


def _calibration(
    settings: Settings,
    cluster: GuardedCluster,
    client: Prometheus | None,
    measurement: MeasurementController,
) -> Sequence[Controller]:
    """Return the calibration controller, if there is a Prometheus."""
    if client is None:
        return ()

    def subjects() -> Sequence[Subject]:
        found = (
            subject(key.namespace, server, server.spec.measure.labels)
            for key, server in measurement.servers()
            if server.spec.measure and server.spec.measure.source == CALIBRATED_SOURCE
        )
        return [item for item in found if item is not None]

    windows = PrometheusWindows(client, subjects)
    return (CalibrationController(cluster, windows, settings.namespaces, _now),)


def _optimization(
    settings: Settings,
    cluster: GuardedCluster,
    optimizer: Optimizer,
    others: tuple[Loads, Machines, PlansController],
    metrics: Metrics,
) -> OptimizationController:
    """Return the optimization controller; it asks the others for loads, nodes and permissions."""
    loads, machines, plans = others
    context = Context(
        cluster,
        OnDemand(cluster),
        optimizer,
        _now,
        settings.time_limit,
        metrics,
        loads,
        machines,
        plans.gate,
        plans.locks,
    )
    store = optimizer if isinstance(optimizer, StatefulRemoteOptimizer) else None
    return OptimizationController(
        context, settings.namespaces, stateful=not settings.stateless, store=store
    )


def _others(
    settings: Settings, cluster: GuardedCluster, dialect: Dialect | None
) -> Sequence[Controller]:
    """Return the controller of boosters and, with a dialect, the Model Booster controller."""
    actuation = ActuationController(cluster, settings.namespaces, _now)
    if dialect is None:
        return (actuation,)
    return actuation, BoosterController(cluster, dialect, settings.namespaces, _now)


def _system_of(resources: Iterable[Resource]) -> System:
    """Return the system that the objects of a namespace describe."""
    return build_system(resources).system


async def with_images(dialect: Dialect, cluster: ApiServer, namespace: str) -> Dialect:
    """Return the dialect with the images in the controller's ConfigMap, if it exists."""
    try:
        return dialect.with_images(await cluster.config_map(Key(namespace, dialect.images)))
    except InfernoError as error:
        logger.info("Model Booster: the default images are used: %s", error)
        return dialect


def _lease_namespace(settings: Settings, *, in_cluster: bool) -> str:
    if in_cluster and OWN_NAMESPACE.exists():
        return OWN_NAMESPACE.read_text().strip()
    return settings.namespaces[0] if settings.namespaces else "default"


def _now() -> datetime:
    return datetime.now(UTC)


def _elapsed() -> float:
    """Return a monotonic time [s]; on Linux it includes the time of a suspend."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
