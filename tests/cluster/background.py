"""Threads that work beside a test, and clients of a control plane."""

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from kubernetes import config, watch
from kubernetes.client import ApiClient, CustomObjectsApi
from kubernetes.client.exceptions import ApiException


class Background(threading.Thread):
    """Works until it is stopped; a context manager that starts and stops it.

    What ends it is raised where it is stopped. Raised in the thread, it would fail whichever test
    runs then.

    Attributes
    ----------
    error
        What has ended it; None while nothing has.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = threading.Event()
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def work(self) -> None:
        """Do what there is to do until `_stopped`."""

    def run(self) -> None:
        """Work, and keep what goes wrong."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the one who stops the thread gets it
            self.error = error

    def stop(self) -> None:
        """End, if it has begun, and raise what went wrong."""
        self._stopped.set()
        if self.ident is not None:  # Ctrl-C may come while others begin
            self.join()
        if self.error is not None:
            raise self.error


TICK_S = 0.1
PASSING = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Statuses of what is gone, or has changed, in the meantime."""


class Ticking(Background):
    """Works until it is stopped, or until something goes wrong, as where it is refused."""

    @abstractmethod
    def tick(self) -> None:
        """Do what there is to do."""

    def work(self) -> None:
        """Work until stopped."""
        while not self._stopped.wait(TICK_S):
            with unless_gone():
                self.tick()


@contextmanager
def unless_gone() -> Iterator[None]:
    """Leave the rest to the next tick where an object is gone or goes, or has changed."""
    try:
        yield
    except ApiException as error:
        if error.status not in PASSING and not _is_terminated(error):
            raise


def _is_terminated(error: ApiException) -> bool:
    """Whether nothing can be created any more because the namespace ends."""
    if error.status != HTTPStatus.FORBIDDEN:
        return False
    causes = json.loads(error.body or "{}").get("details", {}).get("causes", ())
    return any(cause["reason"] == "NamespaceTerminating" for cause in causes)


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


class Changes(Follower):
    """Keeps each state of the objects of a kind; the API server numbers those of all kinds."""

    def __init__(self, api: ApiClient, *place: str) -> None:
        super().__init__(CustomObjectsApi(api).list_namespaced_custom_object, *place)
        self.states: list[tuple[int, Manifest]] = []

    def take(self, manifest: Manifest) -> None:
        """Keep a state, with its number."""
        self.states.append((int(manifest["metadata"]["resourceVersion"]), manifest))
