"""What several pages show: numbers to begin with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number that the page begins with.

    `note` says in a few words what it means; "" where the title says it all.
    """

    title: str
    value: str
    note: str = ""
