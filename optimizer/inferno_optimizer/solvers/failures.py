"""Errors in the steps of a search. Here, and nowhere else in the solvers, is any error caught.

A step only improves what is known before it. An error ends the step and not the search: the
plan is the best one found so far, and the certificate tells what went wrong.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

LONGEST = 300
"""Characters of the text of an error that are told."""

Result = TypeVar("Result")


class Failures:
    """The errors that ended steps of a search; it may be used by several threads."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    @property
    def texts(self) -> tuple[str, ...]:
        """Each step that failed, with the type and the text of its error; one line each."""
        return tuple(self._texts)

    def attempt(self, step: str, work: Callable[[], Result]) -> Result | None:
        """Do the work of a step; None where it ends with an error, which is kept and logged."""
        try:
            return work()
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
            self._texts.append(f"{step}: {text}")
            logger.warning("a step of the search failed: %s", step, exc_info=error)
            return None
