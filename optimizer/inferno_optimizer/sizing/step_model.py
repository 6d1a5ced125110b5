"""Predicts replicas of engines that mix prefills with decode steps: generation 4.

The replica is the birth-death chain of `queueing`; what is different is in its ratios. Prefills
stop the decoding requests, so that in their time arrivals come in clumps (see `crowding`); and the
time in the batch varies less than an exponential one, so that waits are shorter. See `sizing.md`,
section "Steps that mix prefill and decode".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.crowding import Crowding
from inferno_optimizer.sizing.octaves import LogRatios, last_likely, sums_up_to
from inferno_optimizer.sizing.performance import QUEUE_PER_BATCH, Requests, columns_of
from inferno_optimizer.sizing.queueing import (
    Averages,
    DepartureIntervals,
    FloatArray,
    IntArray,
    distinct_rows,
    with_queue,
)
from inferno_optimizer.sizing.spread import Spread, cumulants
from inferno_optimizer.sizing.step_law import MOST_BUSY, Lengths, StepLaw
from inferno_optimizer.sizing.step_ratios import StepRatios
from inferno_optimizer.system import StepParameters

LEAST_RATIO = 1e-100
"""Least ratio of two states beyond a full batch: with all but regular arrivals and lengths nobody
waits, and powers of it would be 0."""

SAME_CROWD = 2.0 * np.exp(-1.0)
"""Share of the variance of the requests in the batch that their mean over a stay has.

The batch is forgotten as exp(-t / stay), as that of a queue with many servers.
"""

FALLING = 0.7
"""Share of the time that prefills take at least where a TTFT falls as the rate grows.

Of 20,000 random sets of parameters and lengths, none had a fall below 0.73.
"""

NUDGE = 0.01
"""Relative change of the requests in the batch with which a derivative is taken."""


@dataclass(frozen=True, slots=True)
class StepModel(StepLaw):
    """Replicas whose steps follow `StepLaw`, with `full_ms` the stay in a full batch [ms].

    A step makes `tokens_per_step` tokens of each answer, so that the inter-token latency is the
    time of a step divided by them.
    """

    rated_by_throughput: ClassVar[bool] = True
    begins_at_demands: ClassVar[bool] = True

    batch: IntArray
    full_ms: FloatArray
    arrival_cov: FloatArray
    tokens_per_step: FloatArray

    @classmethod
    def of(cls, parameters: Sequence[StepParameters], which: IntArray, requests: Requests) -> Self:
        """From records, the record of each pair and its requests."""
        names = ("alpha", "kappa", "delta", "u", "ahead", "budget", "overhead")
        alpha, kappa, delta, extra, ahead, budget, overhead = (
            column[which] for column in columns_of(parameters, *names)
        )
        columns = requests.input_tokens, requests.computed_tokens, requests.tokens
        inputs, computed, outputs = (column.astype(np.float64) for column in columns)
        lengths = Lengths(computed, outputs, requests.length_cov, budget, requests.tokens_per_step)
        context = lengths.context + (inputs - computed)
        kept = lengths.decoding(ahead) * (context + overhead)
        law = StepLaw(
            alpha=alpha,
            decode_slope=kappa * kept,
            mixed_slope=extra * kept,
            prefill_ms=delta * computed,
            steps=lengths.decode_steps + 2.0 * ahead,
            ahead=ahead,
            chunks=lengths.chunks,
            alone=lengths.alone,
            budget_share=lengths.budget_share,
            length_cov=requests.length_cov,
        )
        kinds, place = distinct_rows(
            which,
            requests.batch,
            inputs,
            computed,
            outputs,
            requests.length_cov,
            requests.tokens_per_step,
        )
        full = law.take(kinds).full_stay_ms(requests.batch[kinds].astype(np.float64))[place]
        return cls(
            law.alpha,
            law.decode_slope,
            law.mixed_slope,
            law.prefill_ms,
            law.steps,
            law.ahead,
            law.chunks,
            law.alone,
            law.budget_share,
            law.length_cov,
            requests.batch,
            full,
            requests.arrival_cov,
            requests.tokens_per_step,
        )

    @property
    def queue_limit(self) -> IntArray:
        """The batch in service, and ten batches that wait."""
        return (1 + QUEUE_PER_BATCH) * self.batch

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures of a batch that always has n requests [ms]."""
        model = self.rows(rows)
        if np.array_equal(states, model.batch):
            return model.full_ms / states
        return model.full_stay_ms(np.broadcast_to(states, model.batch.shape)) / states

    def loaded(self, arrival_rate: FloatArray) -> DepartureIntervals:
        """The times between departures with which the chain has the right distribution.

        With random arrivals and exponential times the ratio of two states is lambda / mu(n). Below
        a full batch it is such that the number of requests varies as much as it does, because
        arrivals come in clumps. In a full batch it is taken to the power of 1 / f, where f is how
        much shorter waits are than exponential ones; the probability of the full batch grows, so
        that as many wait at all.
        """
        return _Ratios(self, arrival_rate)

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the queues at these rates; the rows are in descending order of batch."""
        last = last_likely(self.batch, self.log_ratios(arrival_rate))
        order = np.argsort(-last, kind="stable")
        model, rate = self.take(order), arrival_rate[order]
        found = model.averages_up_to(last[order], rate)
        return found.take(np.argsort(order))

    def averages_up_to(self, last: IntArray, arrival_rate: FloatArray) -> Averages:
        """The same without the states from `last` to a full batch; it is in descending order."""
        total, moment, full = sums_up_to(last, self.log_ratios(arrival_rate))
        beyond, more = self.full_batch(arrival_rate)
        full = np.where(last == self.batch, full, 0.0)
        added = full * (more - 1.0)
        sums = total + added, moment + added * self.batch, full * more
        interval = beyond / arrival_rate
        return with_queue(arrival_rate, self.batch, self.queue_limit, interval, sums)

    def full_batch(self, arrival_rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The ratio of two states beyond a full batch, and a factor of the probability of that."""
        full = arrival_rate * self.full_ms / self.batch
        factor = self.wait_factor(full)
        stable = full < 1.0
        beyond = np.maximum(np.power(full, np.where(stable, 1.0 / factor, 1.0)), LEAST_RATIO)
        room = np.where(stable, 1.0 - full, 1.0)
        return beyond, np.where(stable, (1.0 - beyond) / room, 1.0 / factor)

    def log_ratios(self, arrival_rate: FloatArray) -> LogRatios:
        """Logarithms of the ratios of two states; smooth in ln n."""
        return StepRatios(self, self.arrival_cov, self.batch / self.full_ms, arrival_rate)

    def index(self, states: FloatArray, step: FloatArray) -> FloatArray:
        """Variance of the requests in the batch relative to their mean, see `Crowding`."""
        busy = 1.0 - (self.alpha + self.decode_slope * states) / step
        return Crowding.of(self, self.arrival_cov).index(busy)

    def crowd(self, averages: Averages) -> FloatArray:
        """The same at the mean number of requests."""
        running = averages.in_service
        return self.index(running, self.step_ms(running, averages.throughput)[0])

    def met(self, averages: Averages, crowd: FloatArray) -> FloatArray:
        """Requests in the batch as one of them meets it, itself included.

        It meets one more than the mean where that is a Poisson number, and so many more as their
        variance is larger, relative to the mean; or as have room, where that is less.
        """
        one_more = averages.in_service + 1.0
        room, more = np.maximum(self.batch - one_more, 0.0), crowd - 1.0
        others = more * room / np.maximum(np.abs(more) + room, 1e-100)
        return np.asarray(np.minimum(one_more, self.batch) + others)

    def wait_factor(self, ratio: FloatArray) -> FloatArray:
        """How much shorter waits are than those of exponential times and random arrivals.

        Between them and constant times it is linear in the variance [Kimura, Oper. Res. 42 (1994)
        373-390]; for constant times by Cosmetatos [Oper. Res. Q. 27 (1976) 615-620]; for arrivals
        by Allen and Cunneen.
        """
        n, scv = self.batch.astype(np.float64), self.length_cov**2
        room = (1.0 - ratio) * (n - 1.0) * (np.sqrt(4.0 + 5.0 * n) - 2.0)
        term = np.minimum(np.maximum(room / (16.0 * ratio * n), 0.0), 1.0)
        constant = (1.0 + term) / 2.0
        general = scv + np.maximum(1.0 - scv, 0.0) * constant
        return general * (self.arrival_cov**2 + scv) / (1.0 + scv)

    def may_fall(self, arrival_rate: FloatArray) -> npt.NDArray[np.bool_]:
        """Where prefills take most of the time: batches are then nearly empty, or nearly full.

        A rate that fills more of them lets steps vary less, which may weigh more than their length;
        so does one at which the last steps without a prefill go, if these are shorter. Derivatives
        of percentiles look as far ahead as a `NUDGE` beyond a full batch.
        """
        full = self.batch.astype(np.float64) * (1.0 + NUDGE)
        step, mixed = self.step_ms(full, arrival_rate)
        most = (self.alpha + self.decode_slope * full) / step < 1.0 - FALLING
        return most | ((mixed >= 1.0) & (self.mixed_slope > 0))

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean time of a step for each of its tokens, with the requests that are `met` [ms]."""
        met = self.met(averages, self.crowd(averages))
        return self.decode_step_ms(met, averages.throughput) / self.tokens_per_step

    def itl_spread(self, averages: Averages) -> Spread:
        """How far the mean time of the steps of a request is from that of all requests.

        It meets more or fewer requests than the mean, which change as it goes on, and more or
        fewer prompts. These come at random in the time of its decode steps, and each lets others
        come, as the work in the busy period of a queue.
        """
        rate, running = averages.throughput, averages.in_service
        clumps = self.crowd(averages)
        met = self.met(averages, clumps)
        step, _ = self.step_ms(met, rate)
        more, _ = self.step_ms(met * (1.0 + NUDGE), rate)
        slope = (more - step) / (NUDGE * met)
        crowd = SAME_CROWD * slope**2 * running * clumps
        decode, scv = self.alpha + self.decode_slope * met, self.length_cov**2
        left = 1.0 - np.minimum((step - decode) / step, MOST_BUSY)
        steps = np.maximum(self.steps - 2.0 * self.ahead, 1.0) / (1.0 + scv)
        jump = (self.prefill_ms + self.mixed_slope * met) / steps
        work = rate * decode * steps * jump**2 * (1.0 + scv) / left**3
        third = crowd * slope * clumps + work * jump * (1.0 + 2.0 * scv) / left**2
        return Spread((crowd + work) / self.tokens_per_step**2, third / self.tokens_per_step**3)

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """Mean time of the rest of a step, of those ahead, and of the prompt's own [ms]."""
        rate, running = averages.throughput, averages.in_service
        step, around = self._step_moments(running, rate)
        decode = self.alpha + self.decode_slope * running
        rest = (step + around.variance / step) * (0.5 + rate * self.prefill_ms)
        odds, left = self._prompts_before(running, rate)
        until_own = self._mixed(rest, odds * left + decode / 2.0)
        whole = self.alpha + (self.decode_slope + self.mixed_slope) * running
        return until_own + self.ahead * step + self.chunks * whole + self.prefill_ms

    def first_token_spread(self, averages: Averages) -> Spread:
        """How far that time is from its mean."""
        rate, running = averages.throughput, averages.in_service
        step, around = self._step_moments(running, rate)
        longer = around.variance / step  # how much longer than others is a step that is met
        own, scv = self.prefill_ms, self.length_cov**2
        joint = rate * (step + longer) * (1.0 - self.alone)
        whole = self.alpha + (self.decode_slope + self.mixed_slope) * running
        part = self.chunks % 1.0
        met, wait = self._met(step, around, rate), self._turn(running, rate)
        return Spread(
            self._mixed(met.variance, wait.variance)
            + self.ahead * around.variance
            + own**2 * (scv + joint * (1.0 + scv))
            + (whole + own / self.chunks) ** 2 * part * (1.0 - part)
            + self._crowd_variance(averages, step),
            self._mixed(met.third, wait.third)
            + self.ahead * around.third
            + own**3 * joint * (1.0 + 3.0 * scv),
        )

    def _mixed(self, together: FloatArray, alone: FloatArray) -> FloatArray:
        """The mean of two figures, of prompts that steps compute together or alone."""
        return np.asarray((1.0 - self.alone) * together + self.alone * alone)

    def _step_moments(self, states: FloatArray, rate: FloatArray) -> tuple[FloatArray, Spread]:
        """A step is D, or longer by `jump` with a probability: mean and variance are right."""
        step, mixed = self.step_ms(states, rate)
        own = self.prefill_ms
        jumps = step - (self.alpha + self.decode_slope * states)
        prompts = rate * step / np.maximum(mixed, 1e-100)
        longer = self.mixed_slope * states + own * prompts
        square = longer**2 + own**2 * (
            prompts * self.length_cov**2 + np.maximum(prompts - 1.0, 0.0)
        )
        jump = square / np.maximum(longer, 1e-100)
        share = np.minimum(jumps / np.maximum(jump, 1e-100), 1.0)
        feedback = np.minimum(jumps / step, MOST_BUSY)
        variance = share * (1.0 - share) * jump**2 / (1.0 - feedback**2)
        third = share * (1.0 - share) * (1.0 - 2.0 * share) * jump**3 / (1.0 - feedback**3)
        return step, Spread(variance, third)

    def _met(self, step: FloatArray, around: Spread, rate: FloatArray) -> Spread:
        """The rest of the step that is met, whose prompts are computed with the own."""
        variance, third = around.variance, around.third
        fourth = 1.5 * third**2 / np.maximum(variance, 1e-100) + 3.0 * variance**2
        # Moments of the step that an arrival meets, which is longer than others.
        moments = (
            step + variance / step,
            step**2 + 3.0 * variance + third / step,
            step**3 + 6.0 * step * variance + 4.0 * third + fourth / step,
        )
        joint = rate * self.prefill_ms
        return cumulants(
            moments[0] * (0.5 + joint),
            moments[1] * (1.0 / 3.0 + joint + joint**2),
            moments[2] * (0.25 + joint + 1.5 * joint**2 + joint**3),
        )[1]

    def _prompts_before(
        self, states: FloatArray, rate: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Odds that a prompt of steps of its own is computed, and what is left of it then [ms]."""
        decode = self.alpha + self.decode_slope * states
        steps = self._mixed(self.budget_share, self.chunks)
        service = steps * (decode + self.mixed_slope * states) + self.prefill_ms
        busy = np.minimum(rate * service, MOST_BUSY)
        return busy / (1.0 - busy), service * (1.0 + self.length_cov**2) / 2.0

    def _turn(self, states: FloatArray, rate: FloatArray) -> Spread:
        """The time until the turn of a prompt that takes steps of its own.

        It waits for those before it, as in an M/G/1 queue [Takacs, Introduction to the Theory of
        Queues, 1962, ch. 1], and for the rest of a step without a prompt, which is a vacation of
        that queue [Fuhrmann and Cooper, Oper. Res. 33 (1985) 1117-1129].
        """
        odds, rest = self._prompts_before(states, rate)
        scv, decode = self.length_cov**2, self.alpha + self.decode_slope * states
        service = rest * 2.0 / (1.0 + scv)
        # Moments of the rest of a service; lengths vary as a gamma distribution.
        second_rest = rest * service * (1.0 + 2.0 * scv) * 2.0 / 3.0
        third_rest = second_rest * service * (1.0 + 3.0 * scv) * 3.0 / 4.0
        first = odds * rest
        second = odds * (second_rest + 2.0 * rest * first)
        third = odds * (third_rest + 3.0 * second_rest * first + 3.0 * rest * second)
        _, spread = cumulants(first, second, third)
        return Spread(spread.variance + decode**2 / 12.0, spread.third)

    def _crowd_variance(self, averages: Averages, step: FloatArray) -> FloatArray:
        """How the time varies because there are more requests at some times than at others."""
        rate, running = averages.throughput, averages.in_service
        more, _ = self.step_ms(running * (1.0 + NUDGE), rate)
        slope = (more - step) / (NUDGE * running) * (0.5 + self.ahead)
        slope = slope + (self.decode_slope + self.mixed_slope) * self.chunks
        return slope**2 * running * self.index(running, step)

    def idle_itl_ms(self) -> FloatArray:
        """A decode step of a lone request, for each of its tokens [ms]."""
        return (self.alpha + self.decode_slope) / self.tokens_per_step

    def idle_ttft_ms(self) -> FloatArray:
        """The steps of the prompt of a lone request [ms]."""
        nothing = np.zeros_like(self.alpha)
        return self.prompt_ms(nothing, nothing, nothing)


class _Ratios:
    """Times between departures at arrival rates, see `StepModel.loaded`."""

    def __init__(self, model: StepModel, arrival_rate: FloatArray) -> None:
        self._batch, self._rate = model.batch, arrival_rate
        self._log_ratios = model.log_ratios(arrival_rate)
        self._beyond, self._more = model.full_batch(arrival_rate)

    def __call__(self, rows: slice, states: FloatArray) -> FloatArray:
        """1 / mu(n) of the queues `rows` [ms], see `queueing.DepartureIntervals`."""
        if states.ndim == 1:
            return np.asarray(self._beyond[rows] / self._rate[rows])
        ratios = np.exp(self._log_ratios(rows, states))
        ratios *= np.where(states == self._batch[rows], self._more[rows], 1.0)
        return np.asarray(ratios / self._rate[rows])
