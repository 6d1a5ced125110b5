"""Events of Kubernetes: what happened to an object, for whoever looks; nothing depends on one."""

import logging
from dataclasses import dataclass
from typing import Any

from kubernetes.aio.client import CustomObjectsApi

from inferno_operator.adapters.kubernetes.client import TIMEOUT, answer_to
from inferno_operator.controllers.boosters.ports import Notice
from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import Event, Key, Now
from inferno_optimizer.errors import InfernoError

MAX_NOTE = 1024
"""Bytes that the note of an event may have."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Recorder:
    """Creates the events of one instance of the operator."""

    api: CustomObjectsApi
    now: Now
    instance: str

    async def publish(self, regarding: Regarding, action: str, told: Event | Notice) -> None:
        """Create an event; one that fails is only logged."""
        call = self.api.create_namespaced_custom_object(
            "events.k8s.io",
            "v1",
            regarding.key.namespace,
            "events",
            self._event(regarding, action, told),
            _request_timeout=TIMEOUT,
        )
        try:
            await answer_to(call, f"event of {regarding}")
        except InfernoError as error:
            logger.warning("event not published: %s", error)

    def _event(self, regarding: Regarding, action: str, told: Event | Notice) -> dict[str, Any]:
        key = regarding.key
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{key.name}-", "namespace": key.namespace},
            "eventTime": self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": GROUP,
            "reportingInstance": self.instance,
            "action": action,
            "type": told.type,
            "reason": told.reason,
            "note": told.message.encode()[:MAX_NOTE].decode(errors="ignore"),
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": key.name,
                "namespace": key.namespace,
                "uid": regarding.uid,
            },
        }
