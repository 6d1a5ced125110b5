"""Replays, floors and studies as text: costs in cents/hour, or in a currency."""

from collections.abc import Iterator, Sequence

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.replay import Replayed, Row, list_class_rows
from inferno_operator.cli.study import Studied
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_optimizer.replay.hindsight import FloorOfTrace

SHOWN = 2
"""Accelerators of a server that the floor names."""


def describe_replays(replays: Sequence[Replayed], money: Money = CENTS) -> Iterator[Part]:
    """Yield a row for each policy, and what cards they used."""
    accounts = [replayed.account for replayed in replays]
    hours = accounts[0].card_hours
    types = [kind for kind in hours if any(each.card_hours[kind] > 0 for each in accounts)]
    rows, cards, shares = [], [], []
    for replayed, account in zip(replays, accounts, strict=True):
        row = Row.of(replayed, "", slice(None))
        rows.append(
            (
                replayed.policy,
                money.amount(row.cost / account.hours),
                money.change(replayed.regret / account.hours),
                f"{replayed.share_of_optimum:.1%}",
                *(f"{share:.2%}" for share in (row.within, row.delay_within, row.itl_within)),
                f"{row.missed_minutes:.0f}",
                f"{row.replicas:.2f}",
                *map(str, (row.started, row.moves)),
            )
        )
        means = (f"{account.card_hours[kind] / account.hours:.2f}" for kind in types)
        cards.append((replayed.policy, *means))
        shares.append((replayed.policy, *(f"{of.within:.2%}" for of in list_class_rows(replayed))))
    yield TextTable(
        (
            *("POLICY", ">COST/H", ">REGRET/H", ">OF OPTIMUM", ">WITHIN", ">DELAY", ">ITL"),
            *(">MISSED MIN", ">REPLICAS", ">STARTED", ">MOVES"),
        ),
        rows,
        ("STARTED", "MISSED MIN", "DELAY", "ITL", "MOVES"),
    )
    yield from money.named()
    yield ""
    yield TextTable(("CARDS", *(f">{kind}" for kind in types)), cards)
    classes = sorted(set(accounts[0].classes))
    if len(classes) > 1:
        yield ""
        yield TextTable(("WITHIN", *(f">{name}" for name in classes)), shares)


def describe_floor(floor: FloorOfTrace, money: Money = CENTS) -> Iterator[Part]:
    """Yield the floor of each server, the total, and the cards that it takes."""
    rows = []
    for number, name in enumerate(floor.servers):
        mostly = floor.accelerators[number][:SHOWN]
        rows.append(
            (
                name,
                money.amount(floor.cost[number] / floor.hours),
                f"{floor.replicas[number]:.2f}",
                f"{floor.most_replicas[number]:.0f}",
                ", ".join(f"{accelerator} {share:.0%}" for accelerator, share in mostly),
            )
        )
    yield TextTable(("SERVER", ">COST/H", ">REPLICAS", ">MOST", "MOSTLY ON"), rows)
    yield ""
    cost = money.amount(floor.cost.sum() / floor.hours)
    yield f"floor: {cost} {money.rate} over {floor.hours:g} h"
    yield ""
    cards = zip(floor.types, floor.cards, floor.most_cards, floor.capacity, strict=True)
    yield TextTable(
        ("CARDS", ">MEAN", ">MOST", ">AVAILABLE"),
        [
            (kind, f"{mean:.2f}", f"{most:.0f}", f"{available:.0f}")
            for kind, mean, most, available in cards
            if most
        ],
    )


def describe_study(studied: Sequence[Studied], money: Money) -> Iterator[Part]:
    """Yield a row for each run."""
    rows = []
    for one in studied:
        result, hours = one.result, one.result["hours"]
        rows.append(
            (
                *one.run.names.values(),
                money.amount(result["cost"] / hours),
                money.change(one.regret / hours),
                f"{one.share_of_optimum:.1%}",
                f"{result['within']:.2%}",
                f"{result['replicas']:.2f}",
                f"{sum(result['cardHours'].values()) / hours:.2f}",
                str(result["moves"]),
            )
        )
    yield TextTable(
        (
            *("FLEET", "TRACE", "SETTING", "POLICY", ">COST/H", ">REGRET/H", ">OF OPTIMUM"),
            *(">WITHIN", ">REPLICAS", ">CARDS", ">MOVES"),
        ),
        rows,
        ("MOVES", "CARDS", "OF OPTIMUM", "REPLICAS", "REGRET/H"),
    )
    yield from money.named()
