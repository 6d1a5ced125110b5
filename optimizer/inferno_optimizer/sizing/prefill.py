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
    """Replicas that compute prompts, in steps of `fixed_ms` and `work_ms` for each prompt.

    A step computes at most `most` prompts; one that is longer than the budget of a step takes
    several, all of which are in `fixed_ms`.
    """

    fixed_ms: FloatArray
    work_ms: FloatArray
    most: FloatArray
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
        inputs = np.maximum(requests.input_tokens.astype(np.float64), 1.0)
        ones = np.ones_like(inputs)
        lengths = Lengths(inputs, ones, requests.length_cov, budget, ones)
        fitting = np.where(budget > 0, budget / inputs, np.inf)
        return cls(
            fixed_ms=alpha * lengths.chunks,
            work_ms=delta * inputs,
            most=np.maximum(np.minimum(most, np.floor(fitting)), 1.0),
            arrival_cov=requests.arrival_cov,
            length_cov=requests.length_cov,
        )

    @property
    def lone_ms(self) -> FloatArray:
        """Time of a prompt that is alone [ms]."""
        return self.fixed_ms + self.work_ms

    @property
    def full_ms(self) -> FloatArray:
        """Time of a step that is full [ms]."""
        return self.fixed_ms + self.most * self.work_ms

    @property
    def highest_rate(self) -> FloatArray:
        """The rate that a replica carries at most [requests/ms]."""
        return self.most / self.full_ms

    def delays(self, rate: FloatArray) -> Delays:
        """Wait and time of a prompt at rates below the highest one [requests/ms]."""
        step, prompts, none = self._step(rate)
        scv = self.length_cov**2
        room = 1.0 - prompts / self.most
        several = rate * step
        number = np.maximum(several + several**2 + none - prompts**2, 0.0) * room
        varies = self.work_ms**2 * (prompts * scv + number) / step**2
        busy = np.minimum(several / prompts, 1.0)
        others = busy * np.minimum(several * (1.0 + varies), self.most - 1.0)
        rest = step * (1.0 + varies) / 2.0
        first = _mixture(busy, rest, step**2 * (1.0 + 3.0 * varies) / 3.0, step**3 / 4.0)
        full = self._full_steps(rate)
        work, prompt_scv = self.work_ms, scv * (1.0 + others)
        return Delays(
            wait_ms=first[0] + full[0],
            wait_variance=first[1] + full[1],
            wait_third=first[2] + full[2],
            prompt_ms=self.lone_ms + work * others,
            prompt_variance=work**2 * (prompt_scv + others),
            prompt_third=2.0 * work**3 * scv**2 * (1.0 + others),
        )

    def _step(self, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Time of a step [ms], its prompts, and how often nobody comes in it."""
        left = np.maximum(1.0 - rate * self.work_ms, 1e-9)
        step = self.lone_ms
        for _ in range(ROUNDS):
            none = np.exp(-rate * step)
            step = np.minimum((self.fixed_ms + self.work_ms * none) / left, self.full_ms)
        prompts = np.clip(rate * step + none, 1.0, self.most)
        return step, prompts, none

    def _full_steps(self, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cumulants of the wait for steps that are full, see `_mixture`."""
        load = rate / self.highest_rate
        varies = (self.work_ms * self.length_cov * self.most / self.full_ms) ** 2
        beyond = (self.arrival_cov**2 + varies) / 2.0 / self.highest_rate / (1.0 - load)
        waits = load ** np.sqrt(2.0 * (self.most + 1.0))
        return _mixture(waits, beyond, 2.0 * beyond**2, 6.0 * beyond**3)


def _mixture(
    share: FloatArray, first: FloatArray, second: FloatArray, third: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, variance and third cumulant of a time that is 0 but for a share, by its moments."""
    one, two, three = share * first, share * second, share * third
    return one, two - one**2, three - 3.0 * two * one + 2.0 * one**3
