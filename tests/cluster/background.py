"""A thread that works beside a test."""

import threading
from abc import abstractmethod
from typing import Self


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
