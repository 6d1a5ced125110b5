"""A run: clients, each of which asks again when its answer has come, and what they see."""

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from time import process_time

import numpy as np

from inferno_operator.adapters.completions.client import Completion, EngineClient, EngineError
from inferno_optimizer.calibration.plan import Trial
from inferno_optimizer.calibration.warm_up import warm_up_share
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.units import MS_PER_SECOND

PER_CLIENT, FEWEST = 10, 40
"""Requests that are measured: so many of each client, and so many at least."""

SHORTEST, LONGEST = 0.5, 1.5
"""Lengths of requests, relative to the mean of the shape."""

MOST_FAILURES = 5
"""Requests in a row that may fail."""

TINY_S = 1e-9
"""Least time that something is divided by [s]."""

TEXT = (
    "the of and to in is it for on are as with his they at be this from have or by one had not but"
    " what all were when we there can an your which their said if do will each about how up out"
    " them then she many some so these would other into has more her two like him see time"
)
WORDS = tuple(TEXT.split())
"""What prompts are made of; in random order, so that no cache knows them."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What the clients of a run have seen.

    Attributes
    ----------
    trial
        The run.
    answers
        Those that count.
    errors
        Requests that failed.
    busy
        Share of the time in which a processor worked for the clients.
    repeated
        Whether the run is made again, so that this one does not count.
    """

    trial: Trial
    answers: Sequence[Completion]
    errors: int
    busy: float = 0.0
    repeated: bool = False

    @property
    def ttft_ms(self) -> FloatArray:
        """Time to the first token of each answer [ms]."""
        return np.array([MS_PER_SECOND * (a.first - a.asked) for a in self.answers])

    @property
    def itl_ms(self) -> FloatArray:
        """Mean time between the tokens of each answer that has two [ms]."""
        several = [a for a in self.answers if a.output_tokens > 1]
        return np.array(
            [MS_PER_SECOND * (a.last - a.first) / (a.output_tokens - 1) for a in several]
        )

    @property
    def warm_up(self) -> float:
        """What a slow beginning adds to the mean time between tokens, as a share of it."""
        times = np.array([time for a in self.answers for time in a.came[1:]])
        gaps = np.array([later - time for a in self.answers for time, later in pairwise(a.came)])
        return warm_up_share(times, gaps)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens, of all answers that count, while these were made."""
        began, ended = min(a.asked for a in self.answers), max(a.last for a in self.answers)
        return sum(a.output_tokens for a in self.answers) / max(ended - began, TINY_S)

    @property
    def window(self) -> Window:
        """The run as calibration takes it; the mean time between tokens is that of all of them."""
        intervals = sum(a.output_tokens - 1 for a in self.answers)
        decode_ms = MS_PER_SECOND * sum(a.last - a.first for a in self.answers)
        return Window(
            end=0.0,
            itl_ms=decode_ms / max(intervals, 1),
            intervals=float(intervals),
            batch=float(self.trial.clients),
            prefill_ms=float(self.ttft_ms.mean()),
            prefills=float(len(self.answers)),
            input_tokens=float(np.mean([a.input_tokens for a in self.answers])),
            output_tokens=float(np.mean([a.output_tokens for a in self.answers])),
        )


@dataclass(slots=True)
class Clients:
    """Send requests with random lengths, from half to one and a half of the mean.

    Attributes
    ----------
    client
        Asks the engine.
    model
        The model that it serves.
    chance
        Random numbers.
    tokens_per_word
        As the engine counts the words of prompts.
    """

    client: EngineClient
    model: str
    chance: random.Random
    tokens_per_word: float = 1.0
    _failed: int = field(default=0, init=False)

    async def learn(self) -> None:
        """Ask once, and learn how many tokens a word is.

        Raises
        ------
        EngineError
            There is no answer.
        """
        words = self._words(len(WORDS))
        answer = await self.client.complete(self.model, words, 2)
        self.tokens_per_word = answer.input_tokens / len(words)

    async def run(self, trial: Trial, longest_s: float) -> TrialResult:
        """Make a run; the first request of each client does not count.

        Its prompt is a word and its answer shorter, as if it had been under way for some time: the
        clients do not go on in step, and their prompts do not come together, which would make all
        wait for as long as a short run may take. Requests that count are those that are sent next,
        so many as are wanted. All clients go on until the last of these is answered, so that each
        has seen as many others as there are.

        Raises
        ------
        EngineError
            Many requests in a row failed; the error is the last one.
        """
        wanted = max(PER_CLIENT * trial.clients, FEWEST)
        answers: dict[int, Completion | None] = {}
        numbers, over = count(-trial.clients), asyncio.Event()
        self._failed = 0
        now, began = asyncio.get_running_loop().time, process_time()
        begins = now()

        async def ask_again_and_again() -> None:
            while not over.is_set():
                number = next(numbers)
                answer = await self._ask(trial, under_way=number < 0)
                if 0 <= number < wanted:
                    answers[number] = answer
                if len(answers) == wanted:
                    over.set()

        try:
            async with asyncio.TaskGroup() as group:
                clients = [group.create_task(ask_again_and_again()) for _ in range(trial.clients)]
                group.create_task(_end(over, clients, longest_s))
        except* EngineError as errors:
            raise EngineError(str(errors.exceptions[0])) from errors
        good = [answer for answer in answers.values() if answer is not None]
        busy = (process_time() - began) / max(now() - begins, TINY_S)
        return TrialResult(trial, good, len(answers) - len(good), busy)

    async def _ask(self, trial: Trial, *, under_way: bool) -> Completion | None:
        """One request; None if it failed, unless too many in a row did."""
        shape = trial.shape
        inputs = 1 if under_way else max(round(shape.input_tokens * self._length()), 1)
        outputs = max(round(shape.output_tokens * self._length(under_way=under_way)), 1)
        try:
            words = self._words(max(round(inputs / self.tokens_per_word), 1))
            answer = await self.client.complete(self.model, words, outputs)
        except EngineError:
            self._failed += 1
            if self._failed >= MOST_FAILURES:
                raise
            return None
        self._failed = 0
        return answer

    def _length(self, *, under_way: bool = False) -> float:
        """A length, relative to the mean; or what is left of one that a random time falls into.

        Such a time falls into long ones more often, in proportion to their length.
        """
        if not under_way:
            return self.chance.uniform(SHORTEST, LONGEST)
        squares = self.chance.uniform(SHORTEST**2, LONGEST**2)
        return math.sqrt(squares) * self.chance.random()

    def _words(self, number: int) -> list[str]:
        return self.chance.choices(WORDS, k=number)


async def _end(
    over: asyncio.Event, clients: Sequence[asyncio.Task[None]], longest_s: float
) -> None:
    """End the clients when the run is over, or takes too long."""
    try:
        async with asyncio.timeout(longest_s):
            await over.wait()
    except TimeoutError:
        over.set()
    for client in clients:
        client.cancel()
