"""Clients of a control plane, and a thread that sees each change of its objects."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kubernetes import config, watch
from kubernetes.client import ApiClient

from tests.cluster.background import Background

Manifest = dict[str, Any]


def client_of(kubeconfig: Path) -> AbstractContextManager[ApiClient]:
    """A client with the rights of a kubeconfig, which is closed with the block."""
    new_client = config.new_client_from_config
    client: AbstractContextManager[ApiClient] = new_client(str(kubeconfig))  # type: ignore[no-untyped-call]  # nobody typed it
    return client


class Follower(Background):
    """Takes each change of some objects, from those that there are on, until it is stopped.

    Parameters
    ----------
    lists
        A method of a client that lists the objects.
    place
        Its arguments.
    """

    def __init__(self, lists: Callable[..., object], *place: str) -> None:
        super().__init__()
        self._lists, self._place = lists, place
        self._watch = watch.Watch("object")  # type: ignore[no-untyped-call]  # nobody typed it

    @abstractmethod
    def take(self, manifest: Manifest) -> None:
        """Take an object as it is after a change."""

    def work(self) -> None:
        """Follow the objects until stopped."""
        version = "0"
        while not self._stopped.is_set():
            for event in self._watch.stream(  # type: ignore[no-untyped-call]  # nor this
                self._lists, *self._place, resource_version=version, timeout_seconds=1
            ):
                self.take(event["raw_object"])
            version = self._watch.resource_version or version
