"""Predicts replicas that only compute prompts: how long a prompt waits, and how long it takes.

Such a replica works in steps. A step computes the prompts that wait, as many as its budget allows;
those that come meanwhile wait for the next one. Without a bound, the time of a step follows from
the prompts that come in the one before. With room for one prompt, it is the M/G/1 queue, whose mean
wait is exact [Pollaczek, Math. Z. 32 (1930) 64-100]; between them, the wait for steps that are full
is that of a queue with so many servers [Sakasegawa, Ann. Inst. Stat. Math. 29 (1977) 67-75]. See
`sizing.md`, section "Prefill and decode apart".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from inferno_optimizer.sizing.performance import Requests, columns_of
from inferno_optimizer.sizing.queueing import ArrayTable, FloatArray, IntArray
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.sizing.step_law import Lengths
from inferno_optimizer.system import StepParameters

ROUNDS = 8
"""Iterations for the time of a step, which depends on how often nobody comes in it."""


@dataclass(frozen=True, slots=True)
class Delays(ArrayTable):
    """Means and spreads of a wait [ms], and of the time after it that a prompt takes [ms]."""

    wait_ms: FloatArray
    wait_variance: FloatArray
    wait_third: FloatArray
    prompt_ms: FloatArray
    prompt_variance: FloatArray
    prompt_third: FloatArray

    @property
    def wait_spread(self) -> Spread:
        """How far the wait is from its mean."""
        return Spread(self.wait_variance, self.wait_third)

    @property
    def total_ms(self) -> FloatArray:
        """Mean of both together [ms]."""
        return self.wait_ms + self.prompt_ms

    @property
    def total_spread(self) -> Spread:
        """How far both together are from their mean."""
        return Spread(
            self.wait_variance + self.prompt_variance, self.wait_third + self.prompt_third
        )


@dataclass(frozen=True, slots=True)
class PrefillModel(ArrayTable):
    """Replicas that compute prompts, in steps of `alpha` and `work_ms` for each prompt.

    A step computes at most `most` prompts on average, fewer than one where the budget of a step is
    less than a prompt; a prompt that is alone takes `chunks` steps.
    """

    alpha: FloatArray
    work_ms: FloatArray
    most: FloatArray
    chunks: FloatArray
    arrival_cov: FloatArray
    length_cov: FloatArray

    @classmethod
    def of(
        cls,
        parameters: Sequence[StepParameters],
        which: IntArray,
        requests: Requests,
        most: IntArray,
    ) -> Self:
        """From records, the record of each replica, its requests and its prompts at a time."""
        alpha, delta, budget = (
            c[which] for c in columns_of(parameters, "alpha", "delta", "budget")
        )
        inputs = np.maximum(requests.computed_tokens.astype(np.float64), 1.0)
        ones = np.ones_like(inputs)
        lengths = Lengths(inputs, ones, requests.length_cov, budget, ones)
        fitting = np.where(budget > 0, budget / inputs, np.inf)
        return cls(
            alpha=alpha,
            work_ms=delta * inputs,
            most=np.minimum(most, fitting),
            chunks=lengths.chunks,
            arrival_cov=requests.arrival_cov,
            length_cov=requests.length_cov,
        )

    @property
    def lone_ms(self) -> FloatArray:
        """Time of a prompt that is alone [ms]."""
        return self.alpha * self.chunks + self.work_ms

    @property
    def highest_rate(self) -> FloatArray:
        """The rate that a replica carries at most [requests/ms]: all its steps are full."""
        return 1.0 / (self.alpha / self.most + self.work_ms)

    def delays(self, rate: FloatArray) -> Delays:
        """Wait and time of a prompt at rates below the highest one [requests/ms]."""
        step, prompts, none = self._step(rate)
        scv, most = self.length_cov**2, np.maximum(self.most, 1.0)
        several, work = rate * step, self.work_ms
        number = np.maximum(several + several**2 + none - prompts**2, 0.0)
        number = number * (1.0 - prompts / most) / (1.0 - np.minimum(rate * work, 0.95) ** 2)
        varies = work**2 * (prompts * scv + number) / step**2
        busy = np.minimum(several / prompts, 1.0)
        met = np.minimum(several * (1.0 + varies), most - 1.0)
        rest = step * (1.0 + varies) / 2.0
        first = _mixture(busy, rest, step**2 * (1.0 + 3.0 * varies) / 3.0, step**3 / 4.0)
        full = self._full_steps(rate)
        # A prompt that is longer than its steps ends in one that has a part of the next prompt.
        load, part = rate / self.highest_rate, np.minimum(self.chunks - 1.0, 0.5) * self.most
        follows = load * part > busy * met
        busy, met = np.where(follows, load, busy), np.where(follows, part, met)
        number = np.where(follows, part**2 / 3.0, met + number)
        together = _mixture(busy, work * met, work**2 * (met**2 + number), work**3 * met**3)
        return Delays(
            wait_ms=first[0] + full[0],
            wait_variance=first[1] + full[1],
            wait_third=first[2] + full[2],
            prompt_ms=self.lone_ms + together[0],
            prompt_variance=work**2 * scv * (1.0 + busy * met) + together[1],
            prompt_third=2.0 * work**3 * scv**2 * (1.0 + busy * met) + together[2],
        )

    def _step(self, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Time of a step [ms], its prompts, and how often nobody comes in it."""
        left = np.maximum(1.0 - rate * self.work_ms, 1e-9)
        step, most = self.lone_ms, np.maximum(self.most, 1.0)
        longest = step + (most - 1.0) * self.work_ms
        for _ in range(ROUNDS):
            none = np.exp(-rate * step)
            step = np.minimum((self.lone_ms + self.work_ms * (none - 1.0)) / left, longest)
        prompts = np.clip(rate * step + none, 1.0, most)
        return step, prompts, none

    def _full_steps(self, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cumulants of the wait for steps that are full, see `_mixture`."""
        load = rate / self.highest_rate
        varies = self.length_cov**2  # all of the time of full steps goes by the tokens
        beyond = (self.arrival_cov**2 + varies) / 2.0 / self.highest_rate / (1.0 - load)
        waits = load ** np.sqrt(2.0 * (np.maximum(self.most, 1.0) + 1.0))
        return _mixture(waits, beyond, 2.0 * beyond**2, 6.0 * beyond**3)


def _mixture(
    share: FloatArray, first: FloatArray, second: FloatArray, third: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, variance and third cumulant of a time that is 0 but for a share, by its moments."""
    one, two, three = share * first, share * second, share * third
    return one, two - one**2, three - 3.0 * two * one + 2.0 * one**3
