"""How far the operator's clock is ahead of that of the API server, which writes when pods began."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from inferno_operator.resources.objects import Manifest


@dataclass(slots=True)
class ClusterClock:
    """The clock of the API server, as the ages of pods tell it.

    No pod that was seen was created later than it was seen, so the operator's clock is ahead by no
    more than the age of any of them; by about as much as that of one that has just been created.
    An operator that has just started takes pods for younger than they are, until it sees a new one.
    """

    _ahead: timedelta | None = None

    def saw(self, pods: Iterable[Manifest], now: datetime) -> None:
        """Take note of the youngest pod."""
        created = max((pod["metadata"]["creationTimestamp"] for pod in pods), default=None)
        if created is not None:
            age = now - datetime.fromisoformat(created)
            self._ahead = age if self._ahead is None else min(self._ahead, age)

    @property
    def ahead(self) -> timedelta:
        """By how much the operator's clock is ahead, at most; negative if it is behind."""
        return self._ahead or timedelta()
