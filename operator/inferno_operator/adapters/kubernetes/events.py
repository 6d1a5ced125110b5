"""Events of Kubernetes: what happened to an object; pure."""

from datetime import datetime
from typing import Any

from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import Event

MAX_NOTE = 1024
"""Bytes that the note of an event may have."""


def event_manifest(event: Event, now: datetime, instance: str) -> dict[str, Any]:
    """The manifest of an event.

    Parameters
    ----------
    event
        What happened.
    now
        When, with its zone.
    instance
        Name of the operator that reports it.
    """
    about = event.about
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about.key.name}-", "namespace": about.key.namespace},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": GROUP,
        "reportingInstance": instance,
        "action": event.action,
        "type": event.type,
        "reason": event.reason,
        "note": event.message.encode()[:MAX_NOTE].decode(errors="ignore"),
        "regarding": {
            "apiVersion": about.kind.api_version,
            "kind": about.kind.kind,
            "name": about.key.name,
            "namespace": about.key.namespace,
            "uid": about.uid,
        },
    }
