"""`inferno operator`: read the settings, connect, and run until a signal stops it."""

import asyncio
import gc
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from inferno_operator.adapters.http import app
from inferno_operator.adapters.http.app import Decisions
from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.adapters.kubernetes import api_server, lease
from inferno_operator.adapters.kubernetes.api_server import ApiServer
from inferno_operator.adapters.kubernetes.client import open_access
from inferno_operator.adapters.kubernetes.plan_key import (
    SECRET,
    KeyOfProcess,
    KeyOfSecret,
    key_of_file,
)
from inferno_operator.adapters.optimizers.local import LocalOptimizer
from inferno_operator.adapters.optimizers.remote import RemoteOptimizer, StatefulRemoteOptimizer
from inferno_operator.adapters.prometheus import client as prometheus
from inferno_operator.composition import Components, compose
from inferno_operator.controllers.planning.ports import KeySource, SystemOptimizer
from inferno_operator.controllers.scaling.publication import Publication
from inferno_operator.logs import configure
from inferno_operator.resources import RESOURCES
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.leader_election import Election
from inferno_operator.runtime.manager import Manager
from inferno_operator.runtime.steady_clock import SteadyClock
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import HEALTH_PORT, Settings, unknown_variables
from inferno_optimizer.errors import InfernoError

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file with the name of the pod's namespace."""

WORKLOAD_KINDS = 8
"""Kinds of workloads that Servers name, with pods; more of them share the connections of calls."""

WATCHED_KINDS = (
    len(RESOURCES) + sum(1 + len(d.children) for d in DIALECTS.values()) + (WORKLOAD_KINDS + 3)
)
"""Upper limit: our kinds, boosters with their children, workloads; nodes, and pods of the cluster
and of the namespaces to watch."""

MAX_MANAGER = 128
"""Most characters of the name of a field manager."""

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
    key = Key(_lease_namespace(settings, in_cluster=in_cluster), lease.LEASE)
    watches = WATCHED_KINDS * (len(settings.namespaces) or 1)
    metrics = OperatorMetrics()
    async with (
        open_access() as access,
        api_server.connect(access, watches, _now, identity) as cluster,
        lease.connect(access, key) as store,
        _optimizer(settings) as optimizer,
        _prometheus(settings, metrics) as prometheus_client,
    ):
        election = Election(store, identity, _elapsed, _now) if settings.leader_election else None
        remaining = election.remaining if election else lambda: inf
        guard = GuardedCluster(cluster, remaining, metrics, _elapsed)
        dialect = await _dialect(settings, cluster, key.namespace, in_cluster=in_cluster)
        plan_key = _plan_key(settings, cluster, key.namespace, identity, in_cluster=in_cluster)
        informers = Informers(guard, settings.namespaces)
        parts = Components(
            guard,
            informers,
            optimizer,
            metrics,
            prometheus_client,
            dialect,
            _now,
            SteadyClock(_now, _elapsed),
            plan_key,
        )
        controllers = compose(settings, parts)
        publication = _publication(settings, guard, informers, metrics, remaining)
        patience = PROGRESS_SECONDS + settings.time_limit
        manager = Manager(guard, controllers.all, election, _elapsed, patience, (publication,))
        optimization = controllers.optimization
        metrics.follow(
            leading=lambda: remaining() > 0, queue_depth=lambda: optimization.queue.depth
        )

        def unready() -> str:
            answers = publication.unready() if settings.publish_token else ""
            return manager.unready(optimization.unready) or answers

        decisions = Decisions(publication.decision, settings.publish_token)
        host = "" if in_cluster else app.LOOPBACK
        probes = (manager.stuck, unready)
        async with app.serve(
            host, health_port, probes, metrics.page, decisions, settings.metrics_token
        ):
            logger.info(settings.summary)
            await manager.run()


def _publication(
    settings: Settings,
    cluster: GuardedCluster,
    informers: Informers,
    metrics: OperatorMetrics,
    remaining: Callable[[], float],
) -> Publication:
    """Return what knows the decisions; only the leader exports them as metrics.

    Autoscalers add the series of several operators up.
    """
    with_variants = settings.wva_metrics
    publication = Publication(cluster, informers, names_variants=with_variants, now=_now)
    metrics.publish(
        lambda: publication.decisions() if remaining() > 0 else (),
        publication.find_variant if with_variants else None,
    )
    return publication


async def _dialect(
    settings: Settings, cluster: ApiServer, namespace: str, *, in_cluster: bool
) -> Dialect | None:
    """Return the dialect of the Model Booster controller, in a cluster with the images there."""
    dialect = settings.model_booster
    if dialect is None or not in_cluster:
        return dialect
    return await with_images(dialect, cluster, namespace)


def _plan_key(
    settings: Settings, cluster: ApiServer, namespace: str, identity: str, *, in_cluster: bool
) -> KeySource:
    """Return what gives the key that signs Plans."""
    if settings.plan_key is not None:
        return key_of_file(settings.plan_key)
    if in_cluster:
        return KeyOfSecret(cluster, Key(namespace, SECRET), identity[:MAX_MANAGER])
    return KeyOfProcess()


@asynccontextmanager
async def _optimizer(settings: Settings) -> AsyncIterator[SystemOptimizer]:
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
async def _prometheus(
    settings: Settings, metrics: OperatorMetrics
) -> AsyncIterator[prometheus.PrometheusClient | None]:
    """Yield what answers queries; None if the settings do not say where Prometheus is."""
    if settings.prometheus is None:
        yield None
        return
    async with prometheus.connect(settings.prometheus, metrics) as client:
        yield client


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
