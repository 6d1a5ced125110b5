"""The steps of an engine that mixes prefills with decode steps, and how long requests take in them.

An engine with continuous batching works in steps. A step makes one token for each decoding
request, and computes the prompts that came meanwhile, as many tokens as its budget allows. So a
prompt costs the running requests its marginal time only; it waits itself for the step that runs
and for those queued ahead; and all of it grows with the context in the cache. See `sizing.md`,
section "Steps that mix prefill and decode".

Notation: n requests in the batch; D time of a decode step; E how much longer a step takes if it has
a prefill, besides the marginal time of the prompt; I mean time of a step; x rate of prefills.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from inferno_optimizer.sizing.clients import client_rates
from inferno_optimizer.sizing.queueing import ArrayTable, FloatArray, IntArray
from inferno_optimizer.sizing.roots import last_feasible

FIXED_POINT = 3
"""Iterations for the time of a step, which depends on the share of steps with a prefill."""

MOST_BUSY = 0.95
"""Largest share of the time, or of the steps, that prefills take; the formulas have a pole at 1."""

LEAST_COV = 0.1
"""Least variation of prompts where it is asked whether two fit into one step."""

LOGISTIC = 1.702
"""Slope of the logistic function that is closest to the normal distribution."""


@dataclass(frozen=True, slots=True)
class Lengths(ArrayTable):
    """Lengths of requests [tokens], how much they vary, and the token budget of a step.

    `cov` is the coefficient of variation, of input and of output tokens; a budget of 0 is none.
    With speculative decoding a step makes `tokens_per_step` of the output tokens, else one.
    """

    input_tokens: FloatArray
    output_tokens: FloatArray
    cov: FloatArray
    budget: FloatArray
    tokens_per_step: FloatArray

    @property
    def decode_steps(self) -> FloatArray:
        """Steps that make the output tokens after the first."""
        return np.maximum(self.output_tokens - 1.0, 0.0) / self.tokens_per_step

    @property
    def budget_share(self) -> FloatArray:
        """Share of the budget that a prompt takes."""
        return self.input_tokens / np.where(self.budget > 0, self.budget, np.inf)

    @property
    def chunks(self) -> FloatArray:
        """Mean number of steps that compute a prompt; it begins anywhere in the budget."""
        return np.maximum(self.budget_share + 0.5, 1.0)

    @property
    def alone(self) -> FloatArray:
        """Share of the prompts that fit into no step together with another one."""
        share = np.maximum(self.budget_share, np.finfo(np.float64).eps)
        deviation = np.sqrt(2.0) * np.maximum(self.cov, LEAST_COV) * share
        beyond = LOGISTIC * (2.0 * share - 1.0) / deviation
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(beyond, -50.0, 50.0))))

    @property
    def context(self) -> FloatArray:
        """Mean tokens in the cache of a decoding request, as a step meets it."""
        return self.input_tokens + self.output_tokens * (1.0 + self.cov**2) / 2.0

    def decoding(self, ahead: FloatArray) -> FloatArray:
        """Share of the requests in the batch that decode; the others are before or after it."""
        return self.decode_steps / (self.decode_steps + 2.0 * ahead + self.chunks)


def mixed_share(alone: FloatArray, prefills: FloatArray) -> FloatArray:
    """Share of the steps that have a prefill, from the mean number of chunks in a step.

    Prompts that fit together come as a Poisson process; the others take a step each.
    """
    some = 1.0 - np.exp(-prefills)  # a third of the time of expm1; the digits it loses are absolute
    return np.minimum(some + alone * (prefills - some), 1.0)


@dataclass(frozen=True, slots=True)
class StepLaw(ArrayTable):
    """Times of steps with n requests in the batch, and of the stay of a request in it.

    D = `alpha` + `decode_slope` n and E = `mixed_slope` n; `prefill_ms` is the marginal time of a
    prompt [ms]. A request takes `steps` steps besides the `chunks` steps of its prompt, `ahead`
    of them before that. `alone`, `budget_share` and `length_cov` are as in `Lengths`.
    """

    alpha: FloatArray
    decode_slope: FloatArray
    mixed_slope: FloatArray
    prefill_ms: FloatArray
    steps: FloatArray
    ahead: FloatArray
    chunks: FloatArray
    alone: FloatArray
    budget_share: FloatArray
    length_cov: FloatArray

    def rows(self, rows: slice) -> Self:
        """The law of some of the rows."""
        return type(self)(*(column[rows] for column in self.columns()))

    def step_ms(self, states: FloatArray, rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean time of a step [ms], and the share of steps with a prefill."""
        longer = 1.0 / (1.0 - np.minimum(rate * self.prefill_ms, MOST_BUSY))
        decode = self.alpha * longer + self.decode_slope * longer * states
        extra = self.mixed_slope * longer * states
        chunks = rate * self.chunks
        step, mixed = decode, decode
        for _ in range(FIXED_POINT if self.mixed_slope.any() else 1):
            mixed = mixed_share(self.alone, chunks * step)
            step = decode + extra * mixed
        return step, mixed

    def turn_steps(self, busy: FloatArray) -> FloatArray:
        """Mean steps that a prompt waits for its turn if the budget is taken, as in an M/G/1 queue.

        `busy` is the share of the budget, or of the time, that prompts take.
        """
        return self.chunks * (1.0 + self.length_cov**2) / (2.0 * (1.0 - busy))

    def busy(self, states: FloatArray, rate: FloatArray) -> FloatArray:
        """Share of the time in which prompts are computed one after the other, at most.

        One begins in the step in which the one before it ends: no budget is left over.
        """
        step = self.alpha + (self.decode_slope + self.mixed_slope) * states
        return np.minimum(rate * (self.budget_share * step + self.prefill_ms), MOST_BUSY)

    def waited(self, busy: FloatArray) -> FloatArray:
        """Mean steps that a prompt waits for its turn, beyond the step that it meets."""
        return self.alone * busy**2 * self.turn_steps(busy)

    def prompt_ms(self, states: FloatArray, others: FloatArray, waited: FloatArray) -> FloatArray:
        """Time from when a prompt might be computed until it is [ms].

        Parameters
        ----------
        states
            Requests in the batch.
        others
            Mean number of other prompts that come together with it.
        waited
            Mean steps that it waits for its turn.
        """
        step = self.alpha + (self.decode_slope + self.mixed_slope) * states
        marginal = 1.0 + others * (1.0 - self.alone) + waited / self.chunks
        return (self.chunks + waited) * step + marginal * self.prefill_ms

    def stay_ms(
        self, states: FloatArray, rate: FloatArray, step: FloatArray, *, of_clients: bool = False
    ) -> FloatArray:
        """Time of a request in the batch, in steps of a mean time [ms].

        Prompts come at random; or from as many clients as there are requests, each of which waits
        for its answer: a prompt then meets no more than what is taken of the budget.
        """
        prompt, made_up = self._prompt_ms(states, rate, step, of_clients=of_clients)
        return self.steps * step + prompt + made_up

    def decode_step_ms(
        self, states: FloatArray, rate: FloatArray, *, of_clients: bool = False
    ) -> FloatArray:
        """Mean time of a step as a request that decodes meets it [ms]; see `stay_ms`."""
        step, _ = self.step_ms(states, rate)
        _, made_up = self._prompt_ms(states, rate, step, of_clients=of_clients)
        return step + made_up / np.maximum(self.decode_steps, 1.0)

    @property
    def decode_steps(self) -> FloatArray:
        """Steps in which a request decodes."""
        return self.steps - 2.0 * self.ahead

    def _prompt_ms(
        self, states: FloatArray, rate: FloatArray, step: FloatArray, *, of_clients: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Time of a request's prompt, and what it costs the request while it decodes [ms].

        The prompts that come in the time of its own are computed while it decodes, and let others
        come; more of them than come in as many mean steps, after which it ends. They make no more
        of its steps longer than it has.
        """
        others = rate * step
        if of_clients:
            busy = np.minimum(others * self.budget_share, MOST_BUSY)
            waited = self.alone * busy * self.turn_steps(busy)
        else:
            waited = self.waited(self.busy(states, rate))
        prompt = self.prompt_ms(states, others, waited)
        at_once = self.prompt_ms(states, others, np.zeros_like(waited))
        longer = np.maximum(at_once / self.chunks - step, 0.0)
        share = step / (self.alpha + self.decode_slope * states) - 1.0
        return prompt, longer * np.minimum((self.chunks + waited) * share, self.decode_steps)

    def stay_of_clients_ms(self, states: FloatArray, rate: FloatArray) -> FloatArray:
        """Time of a request in the batch [ms] where each client waits for its answer."""
        return self.stay_ms(states, rate, self.step_ms(states, rate)[0], of_clients=True)

    def full_stay_ms(self, states: FloatArray) -> FloatArray:
        """Time of a request in a batch that always has n requests [ms]: x = (n - 1) / stay."""
        result = self.stay_of_clients_ms(states, np.zeros_like(states))
        rows = np.flatnonzero(states > 1)
        law, n, lone = self.take(rows), states[rows], result[rows]
        pole = 1.0 / np.maximum(law.prefill_ms, 1e-100)
        highest = np.minimum((n - 1.0) / lone, MOST_BUSY * pole)
        rate, known = client_rates(lambda x: law.stay_of_clients_ms(n, x), n - 1.0, lone, pole)
        rest = np.flatnonzero(~known | (rate > highest))
        rate[rest] = law.take(rest).client_rates_below(n[rest], highest[rest])
        result[rows] = (n - 1.0) / rate
        return result

    def client_rates_below(self, states: FloatArray, highest: FloatArray) -> FloatArray:
        """The rates of the other clients where these are about as high at most, by bracketing."""
        others = states - 1.0

        def excess(some: IntArray, log_rate: FloatArray) -> FloatArray:
            stay = self.take(some).stay_of_clients_ms(states[some], np.exp(log_rate))
            return np.asarray(log_rate + np.log(stay / others[some]))

        stay = self.stay_of_clients_ms(states, highest)
        ends = np.log(np.stack((np.minimum(others / stay, highest) / 2.0, 2.0 * highest)))
        every = np.arange(len(states))
        values = np.stack([excess(every, end) for end in ends])
        return np.exp(last_feasible(excess, ends, values))
