"""The interface through which controllers report what they do, for metrics."""

from inferno_operator.resources.objects import Key, Kind
from inferno_optimizer.system import Solution, System


class Observer:
    """Receives a call for each optimization, write and query; this base class ignores them."""

    def started(self, key: Key) -> None:
        """Note that an optimization has begun; `key` is that of its Optimizer."""

    def optimized(self, key: Key, system: System, solution: Solution) -> None:
        """Note that an optimization succeeded and all its results are written."""

    def failed(self, key: Key, reason: str) -> None:
        """Note that an optimization failed and will be tried again."""

    def forgot(self, key: Key) -> None:
        """Note that an Optimizer was deleted."""

    def wrote(self, kind: Kind, part: str, *, succeeded: bool) -> None:
        """Note a write; `part` is spec, status, scale, metadata, event or deletion."""

    def queried(self, result: str) -> None:
        """Note a query of Prometheus; `result` is Answered or the reason of an error."""
