"""A thread that stands in for a controller of the cluster: it does a little again and again."""

import json
import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from kubernetes.client.exceptions import ApiException

TICK_S = 0.1
PASSING = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Statuses of what is gone, or has changed, in the meantime."""


class Ticking(threading.Thread):
    """Works until it is stopped, or until the API server refuses something."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = threading.Event()
        self.error: ApiException | None = None

    @abstractmethod
    def tick(self) -> None:
        """Do what there is to do."""

    def run(self) -> None:
        """Work until stopped."""
        while not self._stopped.wait(TICK_S):
            try:
                with unless_gone():
                    self.tick()
            except ApiException as error:
                self.error = error
                return

    def stop(self) -> None:
        """End, and raise what went wrong."""
        self._stopped.set()
        self.join()
        if self.error is not None:
            raise self.error


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
