"""What kopf watches for us, and how its credentials and settings are wired.

Only `event` handlers: unlike create, update and timer handlers they write nothing on the
users' objects. What an event means is found out by reconciling.
"""

from typing import Any

import kopf

from inferno_operator.ports import Key
from inferno_operator.resources import GROUP, VERSION, Optimizer
from inferno_operator.work_queue import WorkQueue

WATCH_TIMEOUT = 300
"""Seconds after which a watch is opened anew: one that died silently is noticed."""


def register(queue: WorkQueue[Key], *, observe_cluster: bool) -> kopf.OperatorRegistry:
    """Handlers that feed a queue.

    Parameters
    ----------
    queue
        Gets the key of every Optimizer that appears, changes or goes.
    observe_cluster
        Notice when custom resource definitions come and go; needs rights on the cluster.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        settings.posting.enabled = False  # events are ours to tell
        settings.scanning.disabled = not observe_cluster
        settings.watching.server_timeout = WATCH_TIMEOUT
        settings.watching.client_timeout = WATCH_TIMEOUT + 60

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's own
        return kopf.login_via_client(**kwargs)

    @kopf.on.event(GROUP, VERSION, Optimizer.plural, registry=registry)
    async def optimizer_changed(event: kopf.RawEvent, body: kopf.Body, **_: object) -> None:
        metadata = body.metadata
        version = metadata["uid"], metadata["generation"], event["type"] == "DELETED"
        queue.add(Key(metadata["namespace"], metadata["name"]), version)

    return registry
