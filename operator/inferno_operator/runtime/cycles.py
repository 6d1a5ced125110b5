"""Work that repeats: each cycle again when it is due, and at once when it is asked for."""

from collections.abc import Awaitable, Callable, Mapping

from inferno_operator.runtime.work_queue import ReconcileResult, WorkQueue

Cycle = Callable[[], Awaitable[ReconcileResult]]
"""Does the work once, and says when it is due again."""


class Cycles(WorkQueue[str]):
    """Repeats cycles side by side; each of them runs once at a time.

    Parameters
    ----------
    cycles
        The work, by its name in logs.
    """

    def __init__(self, cycles: Mapping[str, Cycle]) -> None:
        super().__init__(lambda name: cycles[name]())
        self._names = tuple(cycles)

    def start(self) -> None:
        """Run all cycles now."""
        for name in self._names:
            self.request(name)

    def request(self, name: str) -> None:
        """Run a cycle now; one that is running already runs again, once."""
        self.add(name)
