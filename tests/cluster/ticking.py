"""A thread that stands in for a controller of the cluster: it does a little again and again."""

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes.client.exceptions import ApiException

TICK_S = 0.1
PASSING = (404, 409)
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
    """Leave the rest to the next tick where an object is gone, or has changed."""
    try:
        yield
    except ApiException as error:
        if error.status not in PASSING:
            raise
