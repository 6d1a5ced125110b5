"""`inferno operator`: read the settings, connect, watch and work until told to stop."""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

import kopf

from inferno_operator.adapters import cluster
from inferno_operator.adapters.optimizer_local import LocalOptimizer
from inferno_operator.handlers import register
from inferno_operator.ports import Key
from inferno_operator.reconcile import Context, reconcile_optimizer
from inferno_operator.settings import Settings, unknown_variables
from inferno_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)


def run(environment: Mapping[str, str] = os.environ) -> None:
    """Run the operator in the foreground; SIGTERM and SIGINT end it.

    Raises
    ------
    InfernoError
        It cannot start: a setting makes no sense, or there is no access to a cluster.
    """
    settings = Settings.from_environment(environment)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)  # it tells of every event it hands on
    for warning in unknown_variables(environment):
        logger.warning(warning)
    asyncio.run(_operate(settings))


async def _operate(settings: Settings) -> None:
    async with cluster.connect(_now) as api_server:
        context = Context(api_server, LocalOptimizer(), _now, settings.time_limit)
        queue: WorkQueue[Key] = WorkQueue(partial(reconcile_optimizer, context=context))
        ready = asyncio.Event()
        announcement = asyncio.create_task(_announce(ready, settings))
        try:
            await kopf.operator(
                registry=register(queue, observe_cluster=not settings.namespaces),
                clusterwide=not settings.namespaces,
                namespaces=settings.namespaces,
                standalone=True,
                ready_flag=ready,
            )
        finally:
            announcement.cancel()
            await queue.close()


async def _announce(ready: asyncio.Event, settings: Settings) -> None:
    await ready.wait()
    watched = ", ".join(settings.namespaces) or "all namespaces"
    logger.info("operator ready; watching %s", watched)


def _now() -> datetime:
    return datetime.now(UTC)
