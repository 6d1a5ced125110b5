"""Asks the queries that Servers name themselves; each namespace has a share of every survey."""

import asyncio
import logging
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from inferno_operator.engines.reading import (
    CUSTOM_ANSWERS,
    Reading,
    is_plausible,
    merge_warnings,
)
from inferno_operator.resources import Queries
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import Prometheus, QueryResult, RefusedError
from inferno_optimizer.errors import InfernoError, InputError

logger = logging.getLogger(__name__)

NAMESPACE_SECONDS = 10.0
"""Time that the queries of the Servers of a namespace have in a survey [s]."""

NAMESPACE_SERVERS = 2
"""Servers of a namespace whose queries run at the same time."""

NAMESPACES = 4
"""Namespaces whose queries run at the same time."""

SURVEY_SECONDS = 30.0
"""Time that the queries of all namespaces have in a survey [s]."""

SLOW_SECONDS = 1.0
"""Time of the queries of a Server beyond which its turn comes after that of the others [s]."""

ARRIVAL_RATE, YOUNG = "arrivalRate", "young"
"""The quantity that needs a whole window, and the part that says that it has none [s]."""

LONGEST_SECONDS = 24 * 3600
"""Longest window that is looked back for [s]."""

UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
"""Units of durations of PromQL [s]."""

UNIT = "|".join(UNITS_S)

ZERO_AT_END = re.compile(
    r"\s+or\s+(?:(?:on|ignoring)\s*\(\s*\)\s*)?vector\s*\(\s*0*\.?0*\s*\)\s*$", re.IGNORECASE
)
"""A number for where there are no series, at the end of an expression."""

ZERO_INSIDE = re.compile(r"\bor\b.*\bvector\s*\(", re.IGNORECASE | re.DOTALL)
"""Such a number elsewhere."""

Receive = Callable[[Key, Reading], Awaitable[None]]
"""Takes the reading of a Server as soon as it is there."""


@dataclass(slots=True)
class _Turn:
    """The survey in which a Server or a namespace was asked last, and whether it was slow.

    `known` is the query of the arrival rate that had a number one window ago; `answered` is the
    one that has a number, `since` a time [s].
    """

    survey: int = 0
    is_slow: bool = False
    known: str = ""
    answered: str = ""
    since: float = 0.0

    @property
    def order(self) -> tuple[bool, int]:
        """What to sort by: the fast, then those that were not asked for the longest time."""
        return self.is_slow, self.survey


class OwnQueries:
    """Asks Prometheus the queries of Servers, again and again.

    Namespaces and Servers that were fast come first; of slow ones, those that were not asked for
    the longest time.
    """

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._surveys = 0
        self._servers: dict[Key, _Turn] = {}
        self._namespaces: dict[str, _Turn] = {}

    async def ask(
        self,
        asking: Mapping[Key, tuple[Reading, Queries]],
        receive: Receive,
        is_wanted: Callable[[Key], bool],
    ) -> None:
        """Add the answers to the readings of Servers.

        Parameters
        ----------
        asking
            The readings so far, and the queries.
        receive
            Called with each reading that is complete, or that has no time left.
        is_wanted
            Whether a Server is still there: others are not asked.
        """
        self._surveys += 1
        self._servers = {key: self._servers.get(key, _Turn()) for key in asking}
        by_namespace: defaultdict[str, list[Key]] = defaultdict(list)
        for key in sorted(asking, key=lambda key: (self._servers[key].order, key)):
            by_namespace[key.namespace].append(key)
        turns = {name: self._namespaces.get(name, _Turn()) for name in by_namespace}
        self._namespaces = turns
        places = asyncio.Semaphore(NAMESPACES)
        end = asyncio.get_running_loop().time() + SURVEY_SECONDS

        async def work(name: str) -> None:
            async with places:
                began = asyncio.get_running_loop().time()
                share = _Share(name, min(began + NAMESPACE_SECONDS, end))
                await self._ask_of_namespace(by_namespace[name], asking, receive, is_wanted, share)
                if began < end:
                    seconds = asyncio.get_running_loop().time() - began
                    turns[name] = _Turn(self._surveys, seconds > SLOW_SECONDS)

        async with asyncio.TaskGroup() as group:
            for name in sorted(by_namespace, key=lambda name: (turns[name].order, name)):
                group.create_task(work(name))

    async def _ask_of_namespace(
        self,
        keys: list[Key],
        asking: Mapping[Key, tuple[Reading, Queries]],
        receive: Receive,
        is_wanted: Callable[[Key], bool],
        share: "_Share",
    ) -> None:
        waiting = deque(keys)

        async def work() -> None:
            while waiting:
                key = waiting.popleft()
                if is_wanted(key):
                    await receive(key, await self._ask_of_server(key, *asking[key], share))

        async with asyncio.TaskGroup() as group:
            for _ in range(NAMESPACE_SERVERS):
                group.create_task(work())

    async def _ask_of_server(
        self, key: Key, reading: Reading, queries: Queries, share: "_Share"
    ) -> Reading:
        """Return the reading with the answers, or why there are none."""
        if reading.unavailable:
            return reading
        if share.is_used_up:
            return replace(reading, unavailable=share.problem)
        turn, began = self._servers[key], asyncio.get_running_loop().time()
        expressions = expressions_of(queries)
        try:
            async with asyncio.timeout_at(share.until):
                answer = await self._ask_all(reading, expressions, share)
                turn.is_slow = asyncio.get_running_loop().time() - began > SLOW_SECONDS
                answer = await self._add_youth(answer, expressions.get(ARRIVAL_RATE, ""), turn)
        except TimeoutError:
            seconds = asyncio.get_running_loop().time() - began
            had_time = seconds >= NAMESPACE_SECONDS / 2  # else it comes first in the next survey
            turn.survey = self._surveys if had_time else turn.survey
            turn.is_slow = turn.is_slow or seconds > SLOW_SECONDS
            return replace(reading, unavailable=share.problem)
        turn.survey = self._surveys
        return answer

    async def _add_youth(self, reading: Reading, expression: str, turn: _Turn) -> Reading:
        """Add that the arrival rate had no number one window ago, as its window is not full then.

        It is asked again until it had one. A slow query is not: it had none before it was asked for
        the first time. A rate of 0 is no part of a larger one.
        """
        rate = reading.part(CUSTOM_ANSWERS, ARRIVAL_RATE)
        if rate is None:
            turn.known = turn.answered = ""
            return reading
        if turn.answered != expression:
            turn.answered, turn.since = expression, reading.time
        if rate > 0 and turn.known != expression:
            seconds = max(reading.windows.long, find_longest_range(expression))
            if not await self._had_number(expression, reading.time - seconds, turn):
                own = {**reading.answers[CUSTOM_ANSWERS], YOUNG: float(seconds)}
                return replace(reading, answers={**reading.answers, CUSTOM_ANSWERS: own})
            turn.known = expression
        return reading

    async def _had_number(self, expression: str, time: float, turn: _Turn) -> bool:
        """Whether a query had a number at a time [s]."""
        if turn.is_slow:
            return turn.since <= time
        try:
            answer = await self._prometheus.query(expression, time)
            return read_number(expression, answer) is not None
        except InfernoError as error:
            logger.warning("whether there was a number earlier is not known: %s", error)
            return turn.since <= time

    async def _ask_all(
        self, reading: Reading, queries: Mapping[str, str], share: "_Share"
    ) -> Reading:
        values: dict[str, float] = {}
        for quantity, expression in queries.items():
            try:
                answer = await self._prometheus.query(expression)
                is_rate = quantity == ARRIVAL_RATE
                value = read_number(expression, answer) if is_rate else read_single(answer)
            except (RefusedError, InputError) as error:
                reading = replace(reading, refused=f"spec.measure.queries.{quantity}: {error}")
            except InfernoError as error:
                share.failure = str(error)
                return replace(reading, unavailable=str(error))
            else:
                warnings = merge_warnings(reading.warnings, answer.warnings)
                reading = replace(reading, warnings=warnings)
                values |= {} if value is None else {quantity: value}
        return replace(reading, answers={**reading.answers, CUSTOM_ANSWERS: values})


@dataclass(slots=True)
class _Share:
    """The time that a namespace has in a survey, until a time of the event loop [s].

    `failure` is the last one of its queries that Prometheus did not answer.
    """

    namespace: str
    until: float
    failure: str = ""

    @property
    def is_used_up(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until

    @property
    def problem(self) -> str:
        return (
            f"namespace {self.namespace} used up its time for spec.measure.queries,"
            f" {NAMESPACE_SECONDS:g} s of a measurement (all namespaces: {SURVEY_SECONDS:g} s):"
            " make the queries faster, or let recording rules of Prometheus compute them"
            + (f"; the last failure: {self.failure}" if self.failure else "")
        )


def find_longest_range(expression: str) -> int:
    """Return the longest range of series in an expression [s]; 0 without any."""
    ranges = re.findall(rf"\[((?:\d+(?:{UNIT}))+)", expression)
    return min(round(max(map(_parse_seconds, ranges), default=0.0)), LONGEST_SECONDS)


def _parse_seconds(duration: str) -> float:
    parts = re.findall(rf"(\d+)({UNIT})", duration)
    return sum(int(number) * UNITS_S[unit] for number, unit in parts)


def expressions_of(queries: Queries) -> dict[str, str]:
    """Return what to ask, by quantity.

    Nothing that is missing counts as zero.
    """
    expressions = queries.to_json()
    if ARRIVAL_RATE in expressions:
        expressions[ARRIVAL_RATE] = drop_zero(expressions[ARRIVAL_RATE])
    return expressions


def drop_zero(expression: str) -> str:
    """Return an expression without the 0 at its end that it has where there are no series."""
    return ZERO_AT_END.sub("", expression)


def read_number(expression: str, answer: QueryResult) -> float | None:
    """Return the value of an answer; None if there is none, or it may be a 0 for what is missing.

    Raises
    ------
    InputError
        There are several series, or the number cannot be.
    """
    value = read_single(answer)
    return None if value == 0 and ZERO_INSIDE.search(expression) else value


def read_single(answer: QueryResult) -> float | None:
    """Return the value of an answer with one series; None if there is none.

    Raises
    ------
    InputError
        There are several series, or the number cannot be.
    """
    if len(answer.samples) > 1:
        raise InputError(
            f"returns {len(answer.samples)} series: aggregate them to one, such as with sum(...)"
        )
    value = answer.samples[0].value if answer.samples else None
    if value is not None and not is_plausible(value):
        raise InputError(f"returns {value:g}: no quantity is negative or so large")
    return value
