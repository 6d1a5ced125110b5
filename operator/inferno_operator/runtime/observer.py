"""What happens in the operator, for whoever measures it."""

from inferno_operator.resources.objects import Key, Kind
from inferno_optimizer.system import Solution, System


class Observer:
    """Gets a call for whatever happens; this one ignores it."""

    def started(self, key: Key) -> None:
        """An optimization has begun."""

    def optimized(self, key: Key, system: System, solution: Solution) -> None:
        """It is done, and everything is written."""

    def failed(self, key: Key, reason: str) -> None:
        """It failed, and will be repeated."""

    def forgot(self, key: Key) -> None:
        """The Optimizer is not there any more."""

    def wrote(self, kind: Kind, part: str, *, succeeded: bool) -> None:
        """A part of an object was written: its spec, status or metadata, an event, a deletion."""
