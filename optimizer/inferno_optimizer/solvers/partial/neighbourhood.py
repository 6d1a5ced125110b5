"""Which cases and columns are worth a change of a plan: they lose little by it, or matter most."""

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.groups import rank_in_group
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex
from inferno_optimizer.solvers.partial.rounding import SLACK, WHOLE, whole_of

COLUMNS = 6
"""Columns of a case at most: the ones that lose the least."""


def by_loss(
    problem: ReplicaProblem, vertex: Vertex, counts: IntArray, least: FloatArray
) -> IntArray:
    """The cases, those first that lose the least by a small change; of each type in turn.

    A case that has no more than its least share can only change to another column.
    """
    shares = np.bincount(problem.case, counts / problem.full, len(problem.cases))
    loss = np.maximum(vertex.lost, 0.0)
    loss = np.where(shares[problem.case] > 0, loss, loss / problem.full)
    fewer = np.maximum(vertex.share, 0.0)[problem.case] / problem.full
    spare = (shares > least * (1 + SLACK))[problem.case]
    loss = np.where(counts > 0, np.where(spare, fewer, np.inf), loss)
    entries = problem.cards
    case, loss = problem.case[entries.owner], loss[entries.owner]
    order = np.lexsort((problem.weight[case], loss, entries.type))
    order = order[np.isfinite(loss[order])]
    first = np.searchsorted(entries.type[order], np.arange(len(problem.capacity)))
    rank = np.arange(len(order)) - first[entries.type[order]]
    in_turn = case[order[np.lexsort((entries.type[order], rank))]]
    distinct, seen = np.unique(in_turn, return_index=True)
    return distinct[np.argsort(seen)]


def few_columns(
    problem: ReplicaProblem, vertex: Vertex, counts: IntArray, most: int = COLUMNS
) -> BoolArray:
    """The columns of each case that lose the least, and those that it has or that run."""
    loss: FloatArray = np.where((counts > 0) | (problem.runs > 0), -np.inf, vertex.lost)
    order = np.lexsort((loss, problem.case))
    few = np.zeros(len(order), dtype=np.bool_)
    few[order[rank_in_group(problem.case[order]) < most]] = True
    return few & np.isfinite(vertex.lost)


def between(problem: ReplicaProblem, vertex: Vertex, counts: IntArray, most: int) -> BoolArray:
    """Columns of the cases in which a plan and a vertex differ: what both have, and a few more.

    See `assignment.md`, section "Partial service", and its source [8].
    """
    differs = np.abs(vertex.amounts * problem.full - counts) > WHOLE
    cases = np.zeros(len(problem.cases), dtype=np.bool_)
    cases[problem.case[differs]] = True
    few = few_columns(problem, vertex, counts, most) | (vertex.amounts > SLACK)
    return few & problem.columns_of(cases)


def around(
    problem: ReplicaProblem,
    vertex: Vertex,
    least: FloatArray,
    matter: BoolArray,
    cases: int,
    most: int,
) -> tuple[BoolArray, IntArray]:
    """Columns of the cases that a vertex splits and of a few that lose little; what others have.

    See `assignment.md`, section "Partial service", and its source [9].

    Parameters
    ----------
    problem, vertex
        The problem, and a solution of its relaxation.
    least, matter
        Share that each case must have, and which ones are open at all; shape (cases,).
    cases, most
        How many cases that are not split are open, and columns of each.
    """
    counts, some = whole_of(problem, vertex)
    order = by_loss(problem, vertex, counts, least)
    some[order[matter[order]][:cases]] = True
    few = few_columns(problem, vertex, counts, most) | (vertex.amounts > SLACK)
    return few & problem.columns_of(some & matter), counts


def part_of_cards(problem: ReplicaProblem, counts: IntArray) -> FloatArray:
    """Part of the cards of a type that each case has, summed over types; shape (cases,)."""
    entries, capacity = problem.cards, np.maximum(problem.capacity, 1)
    part = counts[entries.owner] * entries.count / capacity[entries.type]
    return np.bincount(problem.case[entries.owner], part, len(problem.cases)).astype(np.float64)


def largest_first(problem: ReplicaProblem, counts: IntArray, matter: BoolArray) -> IntArray:
    """The cases, those first that matter and have the largest part of the cards of a type."""
    parts = np.where(matter, part_of_cards(problem, counts), 0.0)
    return np.argsort(-parts, kind="stable")


def short_first(problem: ReplicaProblem, counts: IntArray, level: int) -> IntArray:
    """Cases of a level that are not served entirely, those first that miss the most load."""
    missing = problem.weight * (1 - problem.served(counts))
    short = np.flatnonzero((missing > 0) & (problem.level == level))
    return short[np.argsort(-missing[short], kind="stable")]
