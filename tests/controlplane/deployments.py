"""Deployments of an engine that nothing has to run."""

from typing import Any


def deployment(name: str, replicas: int = 0) -> dict[str, Any]:
    """The manifest of a Deployment of one container."""
    labels = {"app": name}
    container = {"name": "engine", "image": "example.com/engine"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
