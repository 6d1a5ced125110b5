"""Text output of `kubectl inferno savings`: costs in cents, or in a currency."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.savings import PAID, PLANNED, SpendingRow, saved
from inferno_operator.cli.tables.solution import Part, TextTable
from inferno_optimizer.replay.ledger import COMPARED, SIMULATED


def savings_parts(rows: Sequence[SpendingRow], money: Money = CENTS) -> Iterator[Part]:
    """Yield a row for each server, the shares of requests within targets, and what was saved."""
    costs = (PAID, PLANNED, *COMPARED)
    heading = ("SERVER", "BESIDE", ">HOURS", *(f">{name.upper()}" for name in costs))
    yield TextTable(heading, [_cost_row(row, costs, money) for row in rows])
    yield ""
    measured = (PAID, *SIMULATED)
    within = ("WITHIN", ">REQUESTS", ">MEASURED", *(f">{name.upper()}" for name in SIMULATED))
    yield TextTable(within, [_share_row(row, measured) for row in rows])
    yield ""
    for name, cents, share in saved(rows[-1]):
        less = "less" if cents >= 0 else "more"
        change = f"{money.amount(abs(cents))} {money.unit} ({abs(share):.0%})"
        yield f"{change} {less} than {name}, since {_moment(rows[-1].since)}"


def _moment(time: str) -> str:
    """Return a time in words of people, from that of an API object."""
    return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _cost_row(row: SpendingRow, costs: Sequence[str], money: Money) -> Sequence[str]:
    cells = (money.amount(row.cents[name]) if name in row.cents else "-" for name in costs)
    return (row.server, row.accelerator, f"{row.hours:.2f}", *cells)


def _share_row(row: SpendingRow, policies: Sequence[str]) -> Sequence[str]:
    shares = (row.share(name) for name in policies)
    cells = ("-" if share is None else f"{share:.2%}" for share in shares)
    return (row.server, f"{row.requests:.0f}", *cells)
