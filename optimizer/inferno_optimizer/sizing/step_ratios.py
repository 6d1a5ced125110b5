"""Logarithms of the ratios of the chain of generation 4, at many states of many replicas at once.

Most of the time of sizing goes into these ratios. They are those of `StepLaw.stay_ms` and
`StepModel.index`, with everything that does not depend on the state computed once for each replica,
and with arrays reused. See `sizing.md`, section "Steps that mix prefill and decode".

Notation: n requests in the batch; D time of a decode step, I mean time of a step, both divided by
the share of the time that prompts leave; ch chunks of a prompt, and w steps that it waits.
"""

import numpy as np

from inferno_optimizer.sizing.crowding import Crowding, log_ratio
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.step_law import FIXED_POINT, MOST_BUSY, StepLaw


class StepRatios:
    """Logarithms of p(n) / p(n - 1) at arrival rates, see `log_ratio`."""

    def __init__(
        self, law: StepLaw, arrival_cov: FloatArray, highest: FloatArray, arrival_rate: FloatArray
    ) -> None:
        """Prepare the replicas.

        Parameters
        ----------
        law
            Times of steps, and of the stay in a batch.
        arrival_cov
            Coefficients of variation of the times between arrivals.
        highest
            What full batches serve: the rate of the prompts is no higher [requests/ms].
        arrival_rate
            Positive [requests/ms].
        """
        rate = np.minimum(arrival_rate, highest)
        left = 1.0 - np.minimum(rate * law.prefill_ms, MOST_BUSY)
        chunk, together = law.prefill_ms / law.chunks, rate * (1.0 - law.alone) * law.prefill_ms
        turn = rate * law.budget_share
        self._extra = bool(law.mixed_slope.any())
        self._decode = np.stack((law.alpha / left, law.decode_slope / left, left))
        self._mixed = np.stack(
            (law.mixed_slope / left, -rate * law.chunks, law.alone, 1.0 - law.alone)
        )
        self._prompt = np.stack(
            (
                law.alpha + chunk,
                law.decode_slope + law.mixed_slope,
                turn,
                rate * law.prefill_ms - turn * chunk,
            )
        )
        self._waits = np.stack((law.alone * law.turn_steps(np.zeros_like(rate)), law.chunks))
        self._others = np.stack((together / law.chunks - 1.0, law.decode_steps))
        self._stay = np.stack((law.steps + together, arrival_rate))
        self._crowding = Crowding.of(law, arrival_cov)

    def __call__(self, rows: slice, states: FloatArray | IntArray) -> FloatArray:
        """The logarithms for some of the replicas; `states` are n, of shape (states, 1)."""
        alpha, slope, left = self._decode[:, rows]
        decode = slope * states
        decode += alpha
        step = self._step_ms(rows, states, decode) if self._extra else decode
        idle = decode / step
        idle *= left  # share of the time that a step without prefills would take
        result = self._stay_ms(rows, states, step, idle)
        np.subtract(1.0, idle, out=idle)
        index = self._crowding.rows(rows).index(idle)
        result *= self._stay[1, rows]
        return log_ratio(states, result, index)

    def _step_ms(
        self, rows: slice, states: FloatArray | IntArray, decode: FloatArray
    ) -> FloatArray:
        """The mean time of a step, as `StepLaw.step_ms` [ms]."""
        slope, chunks, alone, together = self._mixed[:, rows]
        extra = slope * states
        step, prefills = decode.copy(), np.empty_like(decode)
        for _ in range(FIXED_POINT):
            np.multiply(step, chunks, out=prefills)
            np.exp(prefills, out=step)
            step *= together
            prefills *= alone
            step += prefills
            np.subtract(together, step, out=step)  # the share of the steps with a prefill
            np.minimum(step, 1.0, out=step)
            step *= extra
            step += decode
        return step

    def _stay_ms(
        self, rows: slice, states: FloatArray | IntArray, step: FloatArray, idle: FloatArray
    ) -> FloatArray:
        """The time in the batch, as `StepLaw.stay_ms` [ms]."""
        fixed, slope, turn, rest = self._prompt[:, rows]
        chunk = slope * states
        chunk += fixed  # time of a step with a chunk of the prompt
        busy = chunk * turn
        busy += rest
        turns = self._turns(rows, busy)
        others, most = self._others[:, rows]
        longer: FloatArray = step * others
        longer += chunk
        np.maximum(longer, 0.0, out=longer)
        made_up = 1.0 / idle
        made_up -= 1.0
        made_up *= turns
        np.minimum(made_up, most, out=made_up)
        longer *= made_up
        turns *= chunk
        longer += turns
        np.multiply(step, self._stay[0, rows], out=chunk)
        longer += chunk
        return longer

    def _turns(self, rows: slice, busy: FloatArray) -> FloatArray:
        """Steps of a prompt, and those that it waits for its turn; `busy` is overwritten."""
        factor, chunks = self._waits[:, rows]
        np.minimum(busy, MOST_BUSY, out=busy)
        turns: FloatArray = busy * busy
        np.subtract(1.0, busy, out=busy)
        turns /= busy
        turns *= factor
        turns += chunks
        return turns
