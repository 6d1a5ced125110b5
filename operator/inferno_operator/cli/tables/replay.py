"""Text output of `inferno replay` and `inferno floor`: costs in cents/hour, or in a currency."""

from collections.abc import Iterator, Sequence

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.replay import Replayed, Row, list_class_rows
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_optimizer.replay.hindsight import FloorOfTrace

SHOWN = 2
"""Accelerators of a server that the floor names."""


def replay_parts(replays: Sequence[Replayed], money: Money = CENTS) -> Iterator[Part]:
    """Yield a row for each policy, and what cards they used."""
    yield TextTable(
        (
            *("POLICY", ">COST/H", ">REGRET/H", ">OF OPTIMUM", ">WITHIN", ">DELAY", ">ITL"),
            *(">MISSED MIN", ">REPLICAS", ">STARTED", ">MOVES"),
        ),
        [_policy_row(replayed, money) for replayed in replays],
        ("STARTED", "MISSED MIN", "DELAY", "ITL", "MOVES"),
    )
    yield from money.named()
    yield ""
    types = [kind for kind in replays[0].account.card_hours if _used(replays, kind)]
    rows = [
        (replayed.policy, *(_mean_cards(replayed, kind) for kind in types)) for replayed in replays
    ]
    yield TextTable(("CARDS", *(f">{kind}" for kind in types)), rows)
    classes = sorted(set(replays[0].account.classes))
    if len(classes) > 1:
        yield ""
        shares = [
            (replayed.policy, *(f"{row.within:.2%}" for row in list_class_rows(replayed)))
            for replayed in replays
        ]
        yield TextTable(("WITHIN", *(f">{name}" for name in classes)), shares)


def _policy_row(replayed: Replayed, money: Money) -> Sequence[str]:
    row, hours = Row.of(replayed, "", slice(None)), replayed.account.hours
    return (
        replayed.policy,
        money.amount(row.cost / hours),
        money.change(replayed.regret / hours),
        f"{replayed.share_of_optimum:.1%}",
        *(f"{share:.2%}" for share in (row.within, row.delay_within, row.itl_within)),
        f"{row.missed_minutes:.0f}",
        f"{row.replicas:.2f}",
        *map(str, (row.started, row.moves)),
    )


def _used(replays: Sequence[Replayed], kind: str) -> bool:
    return any(replayed.account.card_hours[kind] > 0 for replayed in replays)


def _mean_cards(replayed: Replayed, kind: str) -> str:
    return f"{replayed.account.card_hours[kind] / replayed.account.hours:.2f}"


def floor_parts(floor: FloorOfTrace, money: Money = CENTS) -> Iterator[Part]:
    """Yield the floor of each server, the total, and the cards that it takes."""
    rows = [_server_row(floor, place, money) for place in range(len(floor.servers))]
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


def _server_row(floor: FloorOfTrace, place: int, money: Money) -> Sequence[str]:
    mostly = floor.accelerators[place][:SHOWN]
    return (
        floor.servers[place],
        money.amount(floor.cost[place] / floor.hours),
        f"{floor.replicas[place]:.2f}",
        f"{floor.most_replicas[place]:.0f}",
        ", ".join(f"{name} {share:.0%}" for name, share in mostly),
    )
