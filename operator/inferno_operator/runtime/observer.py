"""What the operator tells those who measure it."""

from inferno_operator.resources.objects import Key, Reference
from inferno_optimizer.system import Solution, System


class Observer:
    """Is told what happens; this one does nothing with it."""

    def started(self, key: Key) -> None:
        """An optimization is worked on."""

    def optimized(self, key: Key, system: System, solution: Solution) -> None:
        """It is done, and everything is written."""

    def failed(self, key: Key, reason: str) -> None:
        """It failed, and will be tried again."""

    def forgot(self, key: Key) -> None:
        """The Optimizer is not there any more."""

    def wrote(self, reference: Reference, part: str, *, succeeded: bool) -> None:
        """Something was written on an object: its spec, status, request, finalizers, an event."""
