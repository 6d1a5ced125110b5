"""A thread that stands in for a controller of the cluster: it does a little again and again."""

import json
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from kubernetes.client.exceptions import ApiException

from tests.cluster.background import Background

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
