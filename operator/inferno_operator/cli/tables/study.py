"""Text output of `inferno study`: costs in cents/hour, or in a currency."""

from collections.abc import Iterator, Sequence

from inferno_operator.cli.options.currency import Money
from inferno_operator.cli.study import Studied
from inferno_operator.cli.tables.table import Part, TextTable


def study_parts(studied: Sequence[Studied], money: Money) -> Iterator[Part]:
    """Yield a row for each run."""
    yield TextTable(
        (
            *("FLEET", "TRACE", "SETTING", "POLICY", ">COST/H", ">REGRET/H", ">OF OPTIMUM"),
            *(">WITHIN", ">REPLICAS", ">CARDS", ">MOVES"),
        ),
        [_row(row, money) for row in studied],
        ("MOVES", "CARDS", "OF OPTIMUM", "REPLICAS", "REGRET/H"),
    )
    yield from money.named()


def _row(row: Studied, money: Money) -> Sequence[str]:
    result, hours = row.result, row.result["hours"]
    return (
        *row.run.names.values(),
        money.amount(result["cost"] / hours),
        money.change(row.regret / hours),
        f"{row.share_of_optimum:.1%}",
        f"{result['within']:.2%}",
        f"{result['replicas']:.2f}",
        f"{sum(result['cardHours'].values()) / hours:.2f}",
        str(result["moves"]),
    )
