"""Manifests of Kubernetes events; pure."""

from datetime import datetime
from typing import Any

from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import Event, Kind

NEW_EVENT = Kind("events.k8s.io", "Event", "events", "v1")
"""The kind of the events that are written; those of the core, which are read, are the same ones."""

MAX_NOTE = 1024
"""Maximum size of the note of an event [bytes]."""


def event_manifest(event: Event, now: datetime, instance: str) -> dict[str, Any]:
    """Return the manifest of an event.

    Parameters
    ----------
    event
        The event.
    now
        The time of the event, with its zone.
    instance
        The operator's `reportingInstance`.
    """
    about = event.about
    return {
        "apiVersion": NEW_EVENT.api_version,
        "kind": NEW_EVENT.kind,
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
