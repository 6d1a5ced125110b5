"""The option `--currency`: how tables show costs, which objects have in cents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from inferno_optimizer.errors import InputError

IN_CENTS = "cents"

LONGEST = 8
"""Characters of a currency: a symbol, or a code."""

Currency = Annotated[
    str,
    typer.Option(
        "--currency",
        metavar="NAME",
        envvar="INFERNO_CURRENCY",
        help="Show costs in this currency, such as EUR or $ (100 cents each); JSON and YAML stay "
        "in cents.",
    ),
]


@dataclass(frozen=True, slots=True)
class Money:
    """A unit of costs, and how many cents it has."""

    unit: str
    cents: float

    def amount(self, cents: float) -> str:
        """An amount without the unit."""
        return f"{cents / self.cents:.2f}"

    def change(self, cents: float) -> str:
        """A difference without the unit, with its sign."""
        return f"{cents / self.cents:+.2f}"

    @property
    def rate(self) -> str:
        """The unit of what something costs."""
        return f"{self.unit}/hour"

    def named(self) -> Iterator[str]:
        """Yield the unit of a table that does not have it elsewhere, unless it is the usual one."""
        if self != CENTS:
            yield ""
            yield f"costs in {self.rate}"


CENTS = Money(IN_CENTS, 1.0)


def money_of(currency: str) -> Money:
    """Return the unit for a currency.

    Raises
    ------
    InputError
        It is no symbol and no code.
    """
    name = currency.strip()
    if name == IN_CENTS:
        return CENTS
    if not name or len(name) > LONGEST or any(c.isdigit() or c.isspace() for c in name):
        raise InputError(
            f"--currency: {currency!r} is no symbol or code of a currency, such as EUR"
        )
    return Money(name, 100.0)
