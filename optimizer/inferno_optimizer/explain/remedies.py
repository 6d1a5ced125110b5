"""Finds the smallest single changes that would fully serve a server which gets nothing or a share.

Three kinds of change are tried: more cards of one type, one looser target, less load. Each
remedy was verified by optimizing the changed system: with the change the server gets all that
it needs, and with a change that is one step smaller it does not. (By chance, a solver may serve
the server with a much smaller change but not with a slightly larger one; the search does not look
for such cases.)
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.explain.changes import quote_name
from inferno_optimizer.explain.options import Option, explain, unknown_server
from inferno_optimizer.optimize import Clock, optimize
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, Server, System, Target
from inferno_optimizer.validation import MAX_NUMBER

CURABLE = frozenset({Reason.BEST_EFFORT, Reason.NO_CAPACITY, Reason.UNATTAINABLE_SLO})
"""Reasons that one of these changes can remedy."""

TYPES_TRIED = 4
"""Number of card types, cheapest first, for which more cards are tried."""

OTHERS_FIRST = 16
"""Largest multiple of the missing cards that is tried: other servers may get the first ones."""

DISPLACED_NAMED = 3
"""Largest number of servers that a message names as no longer served."""

DIGITS = 4
"""Significant digits of the current load to which a lower load is rounded."""

TARGETS: Mapping[str, tuple[str, Callable[[Allocation], float]]] = {
    "itl_ms": ("slo-itl", lambda allocation: allocation.itl_ms),
    "wait_ms": ("slo-ttw", lambda allocation: 3 * allocation.wait_ms),
    "ttft_ms": ("slo-ttft", lambda allocation: allocation.ttft_ms),
}
"""Targets that can be raised: the name of the field, and where the search begins [ms]."""


class RemedyKind(StrEnum):
    """What a remedy changes: cards, a target or the load."""

    CARDS = "Cards"
    TARGET = "Target"
    LOAD = "Load"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that fully serves a server, while a change that is one step smaller does not.

    `amount` is the number of additional cards, the target [ms] or the load [requests/min];
    `change` is the change in the syntax of `changes.parse_change`, `words` describes it for
    people. `cost` is the change of the cost of the whole plan [cents/hour]; `displaced` are
    servers that get all they need now, but not after the change.
    """

    kind: RemedyKind
    amount: float
    change: str
    words: str
    cost: float
    displaced: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The change and its consequences, in one sentence."""
        return f"{self.words} would serve it ({self.cost:+.2f} cents/hour{self._lost})"

    @property
    def _lost(self) -> str:
        if not self.displaced:
            return ""
        more = len(self.displaced) - DISPLACED_NAMED
        others = f" and {more} more" if more > 0 else ""
        return f"; no longer served then: {', '.join(self.displaced[:DISPLACED_NAMED])}{others}"


class _TimeIsUpError(Exception):
    """The search has reached its time limit."""


def remedies(
    system: System, solution: Solution, server_name: str, clock: Clock = time.perf_counter
) -> tuple[Remedy, ...]:
    """Find changes that would fully serve a server: more cards, a looser target, less load.

    Parameters
    ----------
    system, solution
        The optimized system, and its solution. The search starts no new trial after the time
        limit of the system, and returns the remedies found until then.
    server_name
        The server. If it gets all it needs, or no change helps, the result is empty.
    clock
        A monotonic clock [s].

    Raises
    ------
    InputError
        The server does not exist.
    """
    places = [i for i, server in enumerate(system.servers) if server.name == server_name]
    if not places:
        raise unknown_server(system, server_name)
    if solution.decisions[places[0]].reason not in CURABLE:
        return ()
    deadline = clock() + system.options.time_limit
    trial = _Trial(system, solution, places[0], in_time=lambda: clock() < deadline)
    options = [option for option in explain(system, server_name) if not option.reason]
    tried: list[Remedy] = []
    with suppress(_TimeIsUpError):
        tried.extend(_more_cards(trial, options))
        tried.extend(_looser_targets(trial))
        tried.extend(_less_load(trial, options))
    return tuple(tried)


@dataclass(frozen=True)
class _Trial:
    """Optimizes changed systems for one server; `place` is its position in the system."""

    system: System
    solution: Solution
    place: int
    in_time: Callable[[], bool]

    @property
    def server(self) -> Server:
        """The server for which a remedy is searched."""
        return self.system.servers[self.place]

    @cached_property
    def left(self) -> Counter[str]:
        """Cards of each type that are not used by fully served servers."""
        catalogue = Catalogue(self.system)
        left = Counter({use.type: use.usable for use in self.solution.capacity})
        for server, decision in zip(self.system.servers, self.solution.decisions, strict=True):
            if decision.allocation and _served(decision):
                left.subtract(cards_in_use(catalogue, server.model, decision.allocation))
        return left

    @property
    def target(self) -> Target:
        """The targets of the server."""
        name, model = self.server.service_class, self.server.model
        return next(c.targets[model] for c in self.system.classes if c.name == name)

    def with_cards(self, card_type: str, more: int) -> Solution | None:
        """The solution with more cards of a type; None if the server is not fully served.

        The other `with_` methods return None in the same case.
        """
        count = self.system.capacity.get(card_type, 0) + more
        return self._outcome(capacity={**self.system.capacity, card_type: count})

    def with_target(self, attribute: str, base_ms: float, more_ms: int = 0) -> Solution | None:
        """The solution with another target."""
        target = replace(self.target, **{attribute: float(base_ms + more_ms)})
        name, model = self.server.service_class, self.server.model
        return self._outcome(
            classes=tuple(
                replace(c, targets={**c.targets, model: target}) if c.name == name else c
                for c in self.system.classes
            )
        )

    def with_load(self, arrival_rate: float) -> Solution | None:
        """The solution with another arrival rate [requests/min]."""
        current = self.server.current
        load = replace(current.load, arrival_rate=arrival_rate)
        servers = list(self.system.servers)
        servers[self.place] = replace(self.server, current=replace(current, load=load))
        return self._outcome(servers=tuple(servers))

    def _outcome(self, **changed: Any) -> Solution | None:  # noqa: ANN401 - fields of a System
        if not self.in_time():
            raise _TimeIsUpError
        solution = optimize(replace(self.system, **changed))
        return solution if _served(solution.decisions[self.place]) else None

    def remedy(
        self, kind: RemedyKind, amount: float, change: str, words: str, after: Solution
    ) -> Remedy:
        pairs = zip(self.solution.decisions, after.decisions, strict=True)
        displaced = (old.server for old, new in pairs if _served(old) and not _served(new))
        cost = after.cost - self.solution.cost
        return Remedy(kind, amount, change, words, cost, tuple(displaced))


def _served(decision: Decision) -> bool:
    return decision.reason is Reason.ALLOCATED


def least(
    attempt: Callable[[int], Solution | None], guess: int, most: int
) -> tuple[int, Solution] | None:
    """Smallest number in 1..most for which an attempt succeeds, and its solution.

    0 is known to fail. The number below the result was tried too and failed, unless it is 0.
    Needs two attempts if the guess is right; otherwise the number of attempts grows with the
    logarithm of the error of the guess.
    """
    low, high = 0, min(max(guess, 1), most)
    best = attempt(high)
    while best is None:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
        best = attempt(high)
    step = 1
    while high - low > 1:
        middle = max(high - step, (low + high) // 2)
        tried = attempt(middle)
        if tried is None:
            low = middle
        else:
            high, best = middle, tried
        step *= 4
    return high, best


def _more_cards(trial: _Trial, options: Iterable[Option]) -> Iterator[Remedy]:
    for card_type, missing in _missing_cards(trial, options)[:TYPES_TRIED]:
        smallest = least(
            partial(trial.with_cards, card_type), guess=missing, most=OTHERS_FIRST * missing
        )
        if smallest:
            more, after = smallest
            words = f"{more} more {'card' if more == 1 else 'cards'} of {card_type}"
            change = f"capacity.{quote_name(card_type)}+={more}"
            yield trial.remedy(RemedyKind.CARDS, more, change, words, after)


def _missing_cards(trial: _Trial, options: Iterable[Option]) -> list[tuple[str, int]]:
    """Card types and the missing cards if no other server takes them; cheapest first."""
    missing: dict[str, tuple[float, int]] = {}
    for option in options:
        if option.cards:
            count = max(option.cards - trial.left[option.type], 1)
            price = option.cost / option.cards * count
            missing[option.type] = min(missing.get(option.type, (price, count)), (price, count))
    return [(t, missing[t][1]) for t in sorted(missing, key=lambda t: (missing[t], t))]


def _looser_targets(trial: _Trial) -> Iterator[Remedy]:
    """A remedy for each target that prevents service: the target raised to an integer [ms].

    If the server is not served without the target either, raising the target does not help.
    Otherwise the search begins at the latency that the server has without the target.
    """
    server, target = trial.server, trial.target
    for attribute, (field, start) in TARGETS.items():
        asked = getattr(target, attribute)
        without = trial.with_target(attribute, 0.0) if asked > 0 else None
        if without is None:
            continue
        base = math.floor(asked)
        begin = math.ceil(start(without.allocations[server.name]))
        attempt = partial(trial.with_target, attribute, base)
        smallest = least(attempt, guess=begin - base, most=int(MAX_NUMBER) - base)
        if smallest:
            limit, after = base + smallest[0], smallest[1]
            words = (
                f"{field} of model {server.model!r} in class {server.service_class!r} raised"
                f" from {asked:g} to {limit} ms"
            )
            of_class = f"class.{quote_name(server.service_class)}.{quote_name(server.model)}"
            change = f"{of_class}.{field}={limit}"
            yield trial.remedy(RemedyKind.TARGET, limit, change, words, after)


def _less_load(trial: _Trial, options: Sequence[Option]) -> Iterator[Remedy]:
    """The highest rate that would be served; the search begins at what the left cards can serve."""
    load = trial.server.load
    if load.idle or not options:
        return
    exponent = math.floor(math.log10(load.arrival_rate)) - DIGITS + 1
    top = math.ceil(Decimal(load.arrival_rate).scaleb(-exponent))

    def rate(steps: int) -> float:
        return float(f"{top - steps}e{exponent}")

    room = max(_rate_within(trial.left[option.type], option) for option in options)
    smallest = least(
        lambda steps: trial.with_load(rate(steps)),
        guess=top - math.floor(Decimal(room).scaleb(-exponent)),
        most=top - 1,
    )
    if smallest:
        less = f"{rate(smallest[0]):.10g}"
        words = f"a load of {less} requests/min instead of {load.arrival_rate:g}"
        change = f"server.{quote_name(trial.server.name)}.load.arrivalRate={less}"
        yield trial.remedy(RemedyKind.LOAD, rate(smallest[0]), change, words, smallest[1])


def _rate_within(cards: int, option: Option) -> float:
    """Highest rate that a number of cards can serve on an option [requests/min]."""
    if not option.cards:
        return 0.0
    return max(cards, 0) * option.replicas // option.cards * option.max_rate
