"""A plan as ejection chains see it: what each case has, what is missing, and what one change does.

Cards beyond the capacity and load below the floors are allowed here, for a penalty.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind, with_sum
from inferno_optimizer.solvers.partial.open_columns import ROUNDING, OpenColumns, one_type
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex
from inferno_optimizer.solvers.partial.rounding import WHOLE

PENALTY = 200.0
"""What is missing costs so many times what the multipliers say."""

FLOORS_FIRST = 2.0
"""So many times as much for load: at the multipliers it is worth just the cards that it takes."""

SMALLEST_PRICE = 1e-6
"""Least price of a card, as a part of the highest one."""

SMALLEST_FLOOR_PRICE = 1e-3
"""Least price of a request/min that a floor misses."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a plan is worth: the goal, and what it costs to miss cards and floors.

    Attributes
    ----------
    goal
        What is maximized.
    card_price
        Of a card that is missing, shape (types + 1,): the last one is no type.
    floors, floor_price
        Load that each level must have, and the price of what is missing, by kind; (levels,).
    """

    goal: Goal
    card_price: FloatArray
    floors: Mapping[GoalKind, FloatArray]
    floor_price: Mapping[GoalKind, FloatArray]

    @classmethod
    def of(
        cls, problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...], vertex: Vertex
    ) -> "Terms":
        """The prices of a vertex, many times over."""
        cards = np.maximum(vertex.prices, 0.0)
        cards = cards + SMALLEST_PRICE * max(float(cards.max(initial=0.0)), SMALLEST_PRICE)
        loads, prices = dict[GoalKind, FloatArray](), dict[GoalKind, FloatArray]()
        for kind in GoalKind:
            sums = with_sum(floors, kind)
            if sums or kind is goal.kind:
                loads[kind] = np.full(problem.levels, -np.inf)
                prices[kind] = np.zeros(problem.levels)
            for floor in sums:
                price = max(vertex.floor_prices.get(floor.goal, 0.0), SMALLEST_FLOOR_PRICE)
                loads[kind][floor.goal.level] = floor.load
                prices[kind][floor.goal.level] = FLOORS_FIRST * PENALTY * price
        return cls(goal, PENALTY * np.append(cards, 0.0), loads, prices)


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes of one case to an option.

    Arrays of shape (kinds, options): what the goal gains, and the potential; both are -inf where a
    change is not possible. The first kind are all the replicas, then come as many as fit, and as
    many as a floor misses.
    """

    replicas: IntArray
    gain: FloatArray
    potential: FloatArray


@dataclass(frozen=True)
class Position:
    """A plan in arrays.

    Attributes
    ----------
    options, terms
        Where cases may go, and what that is worth.
    base, stays
        A plan, and the cases that stay in it.
    column, replicas
        What each case has; -1 is nothing. Shape (cases,).
    type, cards
        Type and number of the cards that it takes; as many as there are types is no type.
    left
        Cards that are left of each type, or missing; and nothing of no type. Shape (types + 1,).
    loads, sums
        Load that counts, of each case and of each level, by kind.
    """

    options: OpenColumns
    terms: Terms
    base: IntArray
    stays: BoolArray
    column: IntArray
    replicas: IntArray
    type: IntArray
    cards: IntArray
    left: IntArray
    loads: Mapping[GoalKind, FloatArray]
    sums: Mapping[GoalKind, FloatArray]

    @classmethod
    def of(
        cls, problem: ReplicaProblem, options: OpenColumns, terms: Terms, counts: IntArray
    ) -> "Position":
        """The position of a plan: replicas of each column."""
        some, cases = np.flatnonzero(counts), len(problem.cases)
        types, cards = one_type(problem)
        stays = np.bincount(problem.case[some], minlength=cases) > 1
        stays[problem.case[some[cards[some] == 0]]] = True
        column = np.full(cases, -1)
        column[problem.case[some]] = some
        has = column >= 0
        replicas = np.where(has, counts[column], 0)
        none = len(problem.capacity)
        loads = {
            kind: Goal(kind, 0).shares(problem, counts) * problem.weight for kind in terms.floors
        }
        return cls(
            options=options,
            terms=terms,
            base=np.where(stays[problem.case], counts, 0),
            stays=stays,
            column=column,
            replicas=replicas,
            type=np.where(has & ~stays, types[column], none),
            cards=np.where(has & ~stays, cards[column] * replicas, 0),
            left=np.append(problem.capacity - problem.used(counts), 0),
            loads=loads,
            sums={
                kind: problem.load(Goal(kind, 0).shares(problem, counts)) for kind in terms.floors
            },
        )

    def counts(self) -> IntArray:
        """The plan: replicas of each column."""
        counts = self.base.copy()
        some = ~self.stays & (self.replicas > 0)
        counts[self.column[some]] = self.replicas[some]
        return counts

    @cached_property
    def worth(self) -> tuple[bool, float]:
        """Whether nothing is missing, and the potential: the goal less the penalties."""
        missing = float(self.terms.card_price @ np.maximum(-self.left, 0))
        possible = not np.any(self.left < 0)
        for kind, floors in self.terms.floors.items():
            short = self._short(kind)
            missing += float(self.terms.floor_price[kind] @ short)
            possible &= not np.any(short > WHOLE * np.maximum(floors, 1.0))
        return possible, float(self.sums[self.terms.goal.kind][self.terms.goal.level]) - missing

    def changes(self) -> Changes:
        """All that one change can do."""
        options, terms = self.options, self.terms
        case, card_type = options.case, options.type
        same = self.type[case] == card_type
        room = self.left[card_type] + np.where(same, self.cards[case], 0)
        fitting = np.minimum(np.maximum(room, 0) // options.cards, options.most)
        replicas = np.stack((options.most, fitting, *self._for_floors()))
        potential = self._fewer_cards_missing(same, options.cards * replicas - room)
        gain = np.zeros(replicas.shape)
        for kind, floors in terms.floors.items():
            more = options.load(kind, replicas) - self.loads[kind][case]
            short = (floors - self.sums[kind])[options.level]
            price = terms.floor_price[kind][options.level]
            potential += price * (np.maximum(short, 0.0) - np.maximum(short - more, 0.0))
            if kind is terms.goal.kind:
                gain = np.where(options.level == terms.goal.level, more, 0.0)
        impossible = (replicas < options.fewest) | self.stays[case]
        gain[impossible] = -np.inf
        return Changes(replicas, gain, potential + gain)

    def _short(self, kind: GoalKind) -> FloatArray:
        """Load that each level misses, shape (levels,)."""
        return np.maximum(self.terms.floors[kind] - self.sums[kind], 0.0)

    def _for_floors(self) -> Iterator[IntArray]:
        """Replicas with which a case has what its level misses, if any level misses something."""
        options = self.options
        for kind in self.terms.floors:
            short = self._short(kind)
            if np.any(short > 0):
                share = (self.loads[kind][options.case] + short[options.level]) / options.weight
                wanted = np.ceil(np.minimum(share, 1.0) * options.full * (1 - ROUNDING))
                yield np.minimum(wanted.astype(np.int64), options.most)

    def _fewer_cards_missing(self, same: BoolArray, missing: IntArray) -> FloatArray:
        """What penalties for cards become less where so many of a type would be missing."""
        price, before = self.terms.card_price, np.maximum(-self.left, 0)
        released = before[self.type] - np.maximum(-self.left[self.type] - self.cards, 0)
        released = (price[self.type] * released)[self.options.case]
        here = price[self.options.type]
        taken = here * (before[self.options.type] - np.maximum(missing, 0))
        fewer: FloatArray = np.where(same, 0.0, released) + taken
        return fewer

    def after(self, option: int, replicas: int) -> "Position":
        """The position where the case of an option has replicas of it, and nothing else."""
        options = self.options
        case, level = int(options.case[option]), int(options.level[option])
        column, given, types, cards, left = (
            array.copy() for array in (self.column, self.replicas, self.type, self.cards, self.left)
        )
        left[types[case]] += cards[case]
        column[case], given[case] = options.column[option], replicas
        types[case], cards[case] = options.type[option], options.cards[option] * replicas
        left[types[case]] -= cards[case]
        loads = {kind: load.copy() for kind, load in self.loads.items()}
        sums = {kind: total.copy() for kind, total in self.sums.items()}
        for kind, load in loads.items():
            counts = float(options.load(kind, replicas, option))
            sums[kind][level] += counts - load[case]
            load[case] = counts
        return replace(
            self,
            column=column,
            replicas=given,
            type=types,
            cards=cards,
            left=left,
            loads=loads,
            sums=sums,
        )
