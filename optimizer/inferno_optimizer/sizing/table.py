"""Builds the table of candidates: each server on each accelerator, and with its roles apart.

Prefill and decode apart are a row as any other, which takes cards of two types. See `sizing.md`,
section "Prefill and decode apart".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.apart import SizedPairs, size_pairs
from inferno_optimizer.sizing.candidates import (
    MAX_REPLICAS,
    NO_PAIR,
    Candidates,
    candidates_of_pairs,
    changes_of_cost,
)
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.pairs import Pairs, sorted_types
from inferno_optimizer.sizing.queueing import ArrayTable, IntArray
from inferno_optimizer.sizing.rates import Sizing

Table = TypeVar("Table", bound=ArrayTable)


def build_candidates(
    catalogue: Catalogue, cases: Sequence[Case], *, rates: bool = True
) -> Candidates:
    """Size every case on every accelerator and every pair of its model.

    Without `rates`, which take more than half of the time, `Sizing.max_rate` may be too low for
    all but the numbers of replicas, now and at the loads to come.
    """
    whole = candidates_of_pairs(catalogue, cases, rates=rates)
    if not any(case.apart for case in cases):
        return whole
    return _joined(whole, _apart(catalogue, cases))


def _apart(catalogue: Catalogue, cases: Sequence[Case]) -> Candidates:
    """The table of the pairs of all cases, with prefill and decode apart."""
    types = sorted_types(catalogue.system)
    prices = [catalogue.unit_cost(r.model, r.accelerator, r.role) for r in catalogue.system.roles]
    sized = size_pairs(catalogue, cases, types, np.array(prices, dtype=np.float64))
    pairs = _pairs(sized)
    usable = pairs.released | (sized.decode > 0)
    usable &= np.maximum(sized.prefill, sized.decode) <= MAX_REPLICAS
    replicas = np.where(usable & ~pairs.released, sized.units, 0)
    stays = _stays(catalogue, cases, sized)
    cost = sized.group_cost * replicas
    return Candidates(
        catalogue,
        tuple(cases),
        types,
        pairs,
        _sizing(sized, usable),
        usable,
        replicas,
        sized.group_cost,
        changes_of_cost(cases, catalogue, pairs, stays, cost),
        stays,
        sized.group_cards(),
        np.arange(len(usable)),
        sized,
    )


def _pairs(sized: SizedPairs) -> Pairs:
    """The rows as pairs with the numbers of both accelerators, and the type of decode."""
    rows, roles = sized.rows, sized.roles
    decode = rows.decode
    return Pairs(
        case=rows.case,
        profile=np.full_like(decode, NO_PAIR),
        accelerator=rows.place,
        type=roles.type[decode],
        cards=sized.group_cards().totals(len(decode)),
        batch=roles.batch[decode],
        demand=roles.demand[decode],
        released=roles.released[decode],
        requests=roles.requests.take(decode),
        caches=roles.caches.take(decode),
        groups=(),
    )


def _sizing(sized: SizedPairs, usable: npt.NDArray[np.bool_]) -> Sizing:
    """The rate of a group, which is its part of the demand; and the floors."""
    demand = sized.roles.demand[sized.rows.decode]
    rate = np.where(demand > 0, np.where(usable, demand / sized.units, 0.0), np.inf)
    return Sizing(rate, sized.itl_floor, sized.wait_floor, sized.ttft_floor)


def _stays(catalogue: Catalogue, cases: Sequence[Case], sized: SizedPairs) -> npt.NDArray[np.bool_]:
    """Rows with the accelerators and the replicas of both roles that a server has now."""
    stays = np.zeros(len(sized.prefill), dtype=np.bool_)
    for case in {*sized.rows.case.tolist()}:
        current = cases[case].server.current
        if current.roles:
            here = (sized.rows.case == case) & (sized.rows.place == catalogue.place(current))
            prefill, decode = (part.replicas for part in current.roles)
            stays |= here & (sized.prefill == prefill) & (sized.decode == decode)
    return stays


def _joined(whole: Candidates, apart: Candidates) -> Candidates:
    """The rows of both tables, those of each case together."""
    order = np.argsort(np.append(whole.pairs.case, apart.pairs.case), kind="stable")
    place = np.argsort(order)
    of_whole, of_apart = place[: len(whole.usable)], place[len(whole.usable) :]
    needs = _appended(
        replace(whole.needs, owner=of_whole[whole.needs.owner]),
        replace(apart.needs, owner=of_apart[apart.needs.owner]),
    )
    names = ("usable", "replicas", "unit_cost", "value", "stays", "pair")
    columns = {name: np.append(getattr(whole, name), getattr(apart, name))[order] for name in names}
    return Candidates(
        catalogue=whole.catalogue,
        cases=whole.cases,
        types=whole.types,
        **columns,
        pairs=_joined_pairs(whole.pairs, apart.pairs, order, of_whole),
        sizing=_appended(whole.sizing, apart.sizing).take(order),
        needs=needs.take(np.argsort(needs.owner, kind="stable")),
        apart=apart.apart,
    )


def _joined_pairs(whole: Pairs, apart: Pairs, order: IntArray, of_whole: IntArray) -> Pairs:
    names = ("case", "profile", "accelerator", "type", "cards", "batch", "demand", "released")
    columns: dict[str, Any] = {
        name: np.append(getattr(whole, name), getattr(apart, name))[order] for name in names
    }
    return Pairs(
        **columns,
        requests=_appended(whole.requests, apart.requests).take(order),
        caches=_appended(whole.caches, apart.caches).take(order),
        groups=tuple(replace(group, rows=of_whole[group.rows]) for group in whole.groups),
    )


def _appended(one: Table, other: Table) -> Table:
    """The rows of two tables."""
    pairs = zip(one.columns(), other.columns(), strict=True)
    return type(one)(*(np.append(*columns) for columns in pairs))
