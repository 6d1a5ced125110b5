"""What files hold, read anew when they change on disk."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from inferno_optimizer.errors import InputError

T = TypeVar("T")

Signature = list[tuple[int, int, int]]

logger = logging.getLogger(__name__)


class Watched(Generic[T]):
    """A value that is made from files.

    Parameters
    ----------
    paths
        The files.
    load
        Makes the value, or raises an InputError; what it says is logged, so it tells no
        secrets.

    Raises
    ------
    InputError
        The value cannot be made to begin with.
    """

    def __init__(self, paths: Sequence[Path], load: Callable[[], T]) -> None:
        self._paths = paths
        self._load = load
        self._signature = self._sign()
        self._value = load()

    def current(self) -> T:
        """The value; the last one that could be made, as files may be caught half replaced."""
        signature = self._sign()
        if signature != self._signature:
            try:
                self._value = self._load()
            except InputError as error:
                logger.warning("%s; what was there before is still used", error)
            self._signature = signature
        return self._value

    def _sign(self) -> Signature:
        """What tells one state of the files from another."""
        try:
            states = [path.stat() for path in self._paths]
        except OSError:
            return []
        return [(state.st_mtime_ns, state.st_size, state.st_ino) for state in states]
