"""What kopf watches for us, and how its credentials, settings and end are wired.

Only `event` handlers: unlike create, update and timer handlers they write nothing on the
users' objects. What an event means is found out by reconciling.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import kopf

from inferno_operator.resources import GROUP, VERSION, Optimizer
from inferno_operator.resources.objects import Key

WATCH_TIMEOUT = 300
"""Seconds after which a watch is opened anew: one that died silently is noticed."""


@dataclass(frozen=True, slots=True)
class News:
    """An Optimizer is there in this generation, or is gone."""

    key: Key
    uid: str
    generation: int
    gone: bool


Tell = Callable[[News], object]
"""Is told of every Optimizer that is there, appears, changes or goes."""


async def follow(tell: Tell, namespaces: Sequence[str]) -> None:
    """Watch Optimizers in some namespaces, or in all, until cancelled or until kopf ends.

    It runs in a thread: as it ends, it cancels every task of its event loop.
    """
    stop, loop = threading.Event(), asyncio.get_running_loop()
    registry = register(
        lambda news: loop.call_soon_threadsafe(tell, news), observe_cluster=not namespaces
    )

    async def operate() -> None:
        try:
            await kopf.operator(
                registry=registry,
                clusterwide=not namespaces,
                namespaces=namespaces,
                standalone=True,
                stop_flag=stop,
            )
        finally:
            stop.set()  # kopf waits for it in one more thread

    try:
        await asyncio.to_thread(lambda: asyncio.run(operate()))
    finally:
        stop.set()


def register(tell: Tell, *, observe_cluster: bool) -> kopf.OperatorRegistry:
    """Handlers that pass on what happens.

    Parameters
    ----------
    tell
        What they pass it on to.
    observe_cluster
        Notice when custom resource definitions come and go; needs rights on the cluster.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        settings.posting.enabled = False  # events are ours to tell
        settings.scanning.disabled = not observe_cluster
        settings.process.ultimate_exiting_timeout = None  # the process is not kopf's to kill
        settings.watching.server_timeout = WATCH_TIMEOUT
        settings.watching.client_timeout = WATCH_TIMEOUT + 60

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's own
        return kopf.login_via_client(**kwargs)

    @kopf.on.event(GROUP, VERSION, Optimizer.plural, registry=registry)
    async def optimizer_changed(event: kopf.RawEvent, body: kopf.Body, **_: object) -> None:
        metadata = body.metadata
        key = Key(metadata["namespace"], metadata["name"])
        gone = event["type"] == "DELETED"
        tell(News(key, metadata["uid"], metadata["generation"], gone))

    return registry
