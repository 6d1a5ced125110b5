"""What to write on a Capacity after a count, and whether it differs; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from inferno_operator.controllers.capacity.cards import NOT_OFFERED, Unmatched, unmatched_cards
from inferno_operator.controllers.capacity.counts import CardCount
from inferno_operator.resources import CapacityStatus, CountedNode
from inferno_operator.resources.conditions import COUNTED, Verdict, changed, merge_conditions
from inferno_operator.resources.objects import Event, Manifest
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.ports import RejectedError
from inferno_operator.runtime.texts import listed
from inferno_operator.runtime.updates import FieldUpdate, undefined
from inferno_optimizer.errors import InfernoError

NODES_LISTED = 2000
"""Most nodes in a status: about 300 KB, and an object may have 1.5 MB."""

GRANT = "grant the right with the Helm value capacity.fromNodes or the component capacity"
"""What to do if the API server rejects a list."""

NAMES_TOLD = 5
"""Most namespaces and Servers that a message names."""

ACTION = "CardCount"
"""The action in events of this controller."""

FIELDS = "counted", "nodes", "nodes_left_out", "unmatched"
"""The fields of the status that this controller owns, besides the condition."""


@dataclass(frozen=True, slots=True)
class Warnings:
    """What makes the counts of a namespace doubtful.

    Parameters
    ----------
    rivals
        Other namespaces that may use the same cards, because they or this one have no share.
    unnamed
        Servers whose pods are not known, so that they count as those of others.
    """

    rivals: Sequence[str] = ()
    unnamed: Sequence[str] = ()


def counted(
    observation: Observation, count: CardCount, now: datetime, warnings: Warnings
) -> FieldUpdate | None:
    """Return the update after a count; None if nothing changed."""
    verdict = Verdict(COUNTED, holds=True, reason="Counted", message=_summary(count, warnings))
    return _update(observation, _fields(count), verdict, now)


def failed(observation: Observation, error: InfernoError, now: datetime) -> FieldUpdate | None:
    """Return the update if the nodes cannot be read: the last counts stay."""
    status = observation.status
    kept = isinstance(status, CapacityStatus) and status.counted
    stays = "the last counts stay" if kept else "nothing is planned until the cards are counted"
    remedy = f"; {GRANT}" if isinstance(error, RejectedError) else ""
    message = f"{error}{remedy}; {stays}"
    verdict = Verdict(COUNTED, holds=False, reason=error.reason, message=message)
    return _update(observation, _known(observation), verdict, now)


def refused(observation: Observation, older: str, now: datetime) -> FieldUpdate | None:
    """Return the update of a Capacity with fromNodes beside an older one of its namespace."""
    message = f"the older Capacity {older!r} counts the nodes already: remove one of the two"
    verdict = Verdict(COUNTED, holds=False, reason="Conflict", message=message)
    return _update(observation, {}, verdict, now)


def cleared(observation: Observation) -> FieldUpdate | None:
    """Return the update of a Capacity that is not counted; None if it never was."""
    had = _known(observation) or observation.status.condition(COUNTED)
    return FieldUpdate(observation.reference, {}) if had else None


def _update(
    observation: Observation, fields: Manifest, verdict: Verdict, now: datetime
) -> FieldUpdate | None:
    before = observation.status.condition(COUNTED)
    if fields == _known(observation) and not changed(observation.status, verdict):
        return None
    conditions = merge_conditions(observation.status, [verdict], observation.generation, now)
    status = {**fields, "conditions": [condition.to_json() for condition in conditions]}
    news = before is None or (before.status, before.reason) != (verdict.status, verdict.reason)
    events = (_event(observation, verdict),) if news else ()
    otherwise = partial(undefined, observation, COUNTED, _known(observation), now)
    return FieldUpdate(observation.reference, status, news=events, otherwise=otherwise)


def _event(observation: Observation, verdict: Verdict) -> Event:
    return Event(
        observation.reference,
        "Normal" if verdict.holds else "Warning",
        verdict.reason,
        verdict.message,
        ACTION,
    )


def _known(observation: Observation) -> Manifest:
    """Return the fields of this controller in the status."""
    return _written({name: getattr(observation.status, name, None) for name in FIELDS})


def _written(fields: Mapping[str, Any]) -> Manifest:
    """Return the fields that have a value as the status has them."""
    return CapacityStatus.model_construct(**{k: v for k, v in fields.items() if v}).to_json()


def _fields(count: CardCount) -> Manifest:
    nodes = [
        CountedNode(
            name=node.machine.name,
            type=node.type,
            total=node.total,
            others=node.others,
            ours=node.ours,
        )
        for node in count.view.nodes
    ]
    return _written(
        {
            "counted": tuple(count.cards),
            "nodes": tuple(nodes[:NODES_LISTED]),
            "nodes_left_out": max(len(nodes) - NODES_LISTED, 0),
            "unmatched": tuple(unmatched_cards(count.view.unmatched)),
        }
    )


def _summary(count: CardCount, warnings: Warnings) -> str:
    names = {node.machine.name for node in count.view.nodes}
    parts = [f"nodes: {len(names)}"]
    if count.view.left_out:
        reasons = ", ".join(f"{number} {why}" for why, number in count.view.left_out.items())
        parts.append(f"not counted: {reasons}")
    if count.view.unmatched:
        parts.append(_describe_unmatched(count.view.unmatched))
    parts += [
        f"{number} nodes selected for type {card_type!r} have parts of cards ({evidence}): each"
        f" part counts as a card"
        for (card_type, evidence), number in sorted(count.view.partial.items())
    ]
    if warnings.rivals:
        parts.append(
            f"{listed(warnings.rivals, NAMES_TOLD)} may use the same cards: set spec.share in each"
        )
    if warnings.unnamed:
        parts.append(
            "pods of Servers that name neither workloads nor a modelBooster cannot be attributed"
            f" and count as foreign: {listed(warnings.unnamed, NAMES_TOLD)}"
        )
    return "; ".join(parts)


def _describe_unmatched(unmatched: Sequence[Unmatched]) -> str:
    """Return how many cards are not counted, and which resources may be cards."""
    offered = [item for item in unmatched if item.resource != NOT_OFFERED]
    cards = sum(item.machine.cards[item.resource] for item in offered if item.is_known)
    unknown = sorted({item.resource for item in offered if not item.is_known})
    without = len(unmatched) - len(offered)
    told = [f"{cards} cards match no Accelerator"] if cards else []
    if without:
        told.append(f"{without} nodes with a label of cards offer none")
    if unknown:
        told.append(f"resources that may be cards: {listed(unknown, NAMES_TOLD)}")
    return f"{', '.join(told)}: see status.unmatched"
