"""Predictions of generation 4 against a real GPU, and the laws that every prediction obeys."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inferno_optimizer.sizing.clients import POINTS, client_rates
from inferno_optimizer.sizing.latencies import Latencies
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.octaves import LogRatios, last_likely, sums_up_to
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.rates import highest_rate, size
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.sizing.step_model import StepModel
from inferno_optimizer.sizing.waiting import delay_percentile, log_delay_tail, wait_percentile
from inferno_optimizer.system import StepParameters, Target
from tests.h100.limits import ONE_SHAPE, Limit, limits
from tests.h100.runs import (
    P95,
    Measured,
    fitted,
    itl_percentiles,
    latencies,
    measured,
    replica,
)
from tests.tiers import extended

OPEN = [run for run in measured() if not run.clients]


def name_of(run: Measured) -> str:
    return run.name


@pytest.mark.parametrize(
    ("limit", "run"),
    [(limit, run) for limit in limits() for run in limit.runs],
    ids=lambda value: value.name.replace(" ", "-"),
)
def test_predictions_are_within_the_limits_of_the_page(limit: Limit, run: Measured) -> None:
    assert abs(limit.error(run)) <= limit.most


@pytest.mark.parametrize("run", OPEN, ids=name_of)
def test_calibrated_with_clients_it_predicts_how_inter_token_latencies_vary(run: Measured) -> None:
    model = replica(fitted(ONE_SHAPE).parameters, run.batch, run.inputs, run.outputs)

    found = latencies(model, run.rate).itl_percentiles[0]

    assert found == pytest.approx(itl_percentiles(run), rel=0.10)
    assert found[:2] == pytest.approx(itl_percentiles(run)[:2], rel=0.07)


def test_a_lone_request_takes_its_steps_and_its_prompt() -> None:
    model = replica(StepParameters(9.0, 0.001, 0.02, ahead=1.0), 8, 500, 101)
    m = 100 / 103  # of the time it decodes: 100 of its steps, 2 beside them, and the prompt's

    decode = 9.0 + 0.001 * m * (500 + 101 * (1 + 0.29**2) / 2)
    (lone,) = model.intervals(slice(0, 1), np.ones(1))
    assert lone == pytest.approx(103 * decode + 0.02 * 500)
    assert latencies(model, 1e-6).itl_ms[0] == pytest.approx(decode)
    assert latencies(model, 1e-6).ttft_ms[0] == pytest.approx(2.5 * 9.0 + 0.02 * 500)


def test_one_request_at_a_time_of_one_token_is_the_queue_of_pollaczek_and_khinchine() -> None:
    model = replica(StepParameters(10.0, 0.0, 0.1), 1, 400, 1, cov=1.0)
    stay = 10 + 0.1 * 400

    found = latencies(model, 1000 * 0.5 / stay)
    # rho / (1 - rho) of exponential times, and a little for prompts that might come together
    assert found.wait_ms[0] == pytest.approx(stay, rel=0.06)


@dataclass(frozen=True, slots=True)
class Case:
    """A replica and its requests: lengths in tokens, and their coefficient of variation."""

    batch: int
    inputs: int
    outputs: int
    cov: float
    parameters: StepParameters


REQUESTS = st.tuples(
    st.integers(1, 300), st.integers(0, 9000), st.integers(1, 1500), st.floats(0.05, 1.0)
)
PARAMETERS = st.builds(
    StepParameters,
    st.floats(1, 40),
    st.floats(0, 1e-3),
    st.floats(0, 0.1),
    st.floats(0, 1e-3),
    st.floats(0, 2),
    st.sampled_from([0, 512, 2048, 8192]),
    st.floats(0, 512),
)


def moderate(case: tuple[tuple[int, int, int, float], StepParameters]) -> Case:
    """The same where prompts take no more time than the steps of the answers.

    Beyond that the model has kinks: as the rate grows, latencies may fall by up to a fifth.
    """
    (batch, inputs, outputs, cov), parameters = case
    half = parameters.alpha * outputs / 2
    cached = (inputs + outputs + parameters.overhead) * batch
    delta, extra = min(parameters.delta, half / max(inputs, 1)), min(parameters.u, half / cached)
    return Case(batch, inputs, outputs, cov, replace(parameters, delta=delta, u=extra))


CASES = st.tuples(REQUESTS, PARAMETERS).map(moderate)


def over_rates(case: Case) -> tuple[Latencies, npt.NDArray[np.bool_]]:
    """Latencies at rates up to nearly the highest one, and whether lower rates are tried there."""
    batch, inputs, outputs, cov = case.batch, case.inputs, case.outputs, case.cov
    shares = np.linspace(0.05, 0.999, 40)
    every = np.zeros(len(shares), np.int64)
    same = np.ones(len(shares))
    prompts = every + inputs
    size, tokens = every + batch, every + outputs
    asked = Requests(size, tokens, prompts, every, same, cov * same, prompts, same)
    model = StepModel.of([case.parameters], every, asked)
    replicas = Replicas(model, TargetLimits.of([Target()] * len(shares)))
    rates = shares * model.batch / model.full_ms
    return replicas.latencies(rates), model.may_fall(rates)


@given(CASES)
@example(Case(10, 4211, 46, 0.42, StepParameters(21.5, 4.4e-4, 0.029, 3.9e-4, 1.8, 512, 290)))
@example(Case(19, 1079, 39, 0.081, StepParameters(34.5, 1.33e-4, 3.36e-4, 7.03e-4, 1, 512, 402)))
def test_latencies_fall_with_the_rate_only_where_lower_rates_are_tried(case: Case) -> None:
    found, tried = over_rates(case)

    means = found.itl_ms, found.wait_ms, found.ttft_ms
    for column in (*means, *found.ttft_percentiles.T, *found.itl_percentiles.T):
        assert np.isfinite(column).all()
        assert ((np.diff(column) >= -2e-3 * column[:-1]) | tried[1:]).all()


@given(st.tuples(REQUESTS, PARAMETERS))
def test_steps_and_waits_never_fall_with_the_rate_however_long_prompts_take(
    case: tuple[tuple[int, int, int, float], StepParameters],
) -> None:
    (batch, inputs, outputs, cov), parameters = case

    found, _ = over_rates(Case(batch, inputs, outputs, cov, parameters))

    assert (np.diff(found.itl_ms) >= -1e-9 * found.itl_ms[:-1]).all()
    assert (np.diff(found.wait_ms) >= -1e-9 * found.ttft_ms[:-1]).all()


PERCENTILES = st.sampled_from([0.0, 95.0])


@given(CASES, st.floats(1.05, 5.0), PERCENTILES, PERCENTILES)
def test_the_highest_rate_is_the_last_that_meets_the_targets(
    case: Case, patience: float, percentile: float, itl_percentile: float
) -> None:
    model = replica(case.parameters, case.batch, case.inputs, case.outputs, case.cov)
    idle = latencies(model, 1e-3 / model.full_ms[0])
    target = Target(
        itl_ms=patience * (idle.itl_percentiles[0, P95] if itl_percentile else idle.itl_ms[0]),
        itl_percentile=itl_percentile,
        ttft_ms=3 * patience * idle.ttft_ms[0],
        ttft_percentile=percentile,
    )
    replicas = Replicas(model, TargetLimits.of([target]))

    highest = 0.999 * case.batch / model.full_ms
    (rate,) = highest_rate(replicas, 1e-4 * highest, highest)
    assert rate > 0
    assert replicas.excess(np.array([rate * (1 - 1e-6)])) <= 0
    assert rate == highest or replicas.excess(np.array([rate * (1 + 1e-6)])) > 0


def wild(number: int) -> StepModel:
    """Replicas whose prompts may take any share of the time; by falling batch."""
    random = np.random.default_rng(1)
    batch = np.sort(random.integers(1, 301, number))[::-1]
    inputs, outputs = (
        np.exp(random.uniform(0, np.log(most), number)).astype(np.int64) for most in (9000, 1500)
    )
    parameters = [
        StepParameters(
            alpha=random.uniform(1, 40),
            kappa=0.0,
            delta=random.uniform(0, 0.1),
            u=random.uniform(0, 1e-3),
            ahead=random.uniform(0, 2),
            budget=float(random.choice([0, 512, 2048, 8192])),
            overhead=random.uniform(0, 512),
        )
        for _ in range(number)
    ]
    cov, one = random.uniform(0.05, 1, number), np.ones(number)
    asked = Requests(batch, outputs, inputs, np.zeros_like(batch), one, cov, inputs, one)
    return StepModel.of(parameters, np.arange(number), asked)


def latencies_at(
    model: StepModel, rate: FloatArray, percentile: float
) -> tuple[FloatArray, FloatArray]:
    """Inter-token latency and time to first token, or a percentile of them [ms]."""
    percentiles = {"itl_percentile": percentile, "ttft_percentile": percentile}
    targets = TargetLimits.of([Target(itl_ms=1.0, ttft_ms=1.0, **percentiles)] * len(rate))
    replicas = Replicas(model, targets)
    queues = replicas.averages(rate)
    return replicas.itl(queues).ms(), replicas.delays(queues)[1].ms()


@pytest.mark.parametrize("percentile", [95.0, *extended(0.0)])
def test_targets_hold_at_all_rates_up_to_the_highest_one_where_latencies_fall(
    percentile: float,
) -> None:
    model = wild(4000)
    model = model.take(np.flatnonzero(model.may_fall(0.9 * model.batch / model.full_ms)))
    highest, shares = 0.999 * model.batch / model.full_ms, np.linspace(0.3, 1.0, 60)
    ttft = np.stack([latencies_at(model, share * highest, percentile)[1] for share in shares])
    peak = np.maximum.accumulate(ttft)
    rows = np.flatnonzero((ttft < 0.98 * peak).any(axis=0))
    later = np.argmin(ttft[:, rows] / peak[:, rows], axis=0)
    limits = 1.001 * ttft[later, rows]  # met, and before that missed
    targets = [Target(ttft_ms=limit, ttft_percentile=percentile) for limit in limits.tolist()]
    replicas = Replicas(model.take(rows), TargetLimits.of(targets))

    rate = highest_rate(replicas, 0.05 * highest[rows], highest[rows])

    missed, far = (np.argmax(ttft[:, rows] > more * limits, axis=0) for more in (1.0, 1.015))
    assert len(rows) > 3
    assert (rate < shares[far] * highest[rows]).all()
    assert (rate > shares[missed - 1] * highest[rows] * (1 - 1e-9)).all()


@pytest.mark.parametrize("percentile", [95.0, *extended(0.0)])
@pytest.mark.parametrize("place", [0, 1], ids=["ITL", "TTFT"])
def test_latencies_fall_only_where_prefills_take_most_of_the_time(
    percentile: float, place: int
) -> None:
    model, shares = wild(1000), np.linspace(0.1, 0.999, 40)
    latency = np.zeros(1000)

    for share in shares:
        rate = share * model.batch / model.full_ms
        found = latencies_at(model, rate, percentile)[place]
        assert model.may_fall(rate)[found < latency * (1 - 1e-4)].all()
        latency = np.maximum(latency, found)


def test_a_percentile_holds_at_all_rates_up_to_the_highest_one_where_all_steps_have_a_prefill() -> (
    None
):
    """Prompts of eight budgets: as the last steps without a prefill go, steps vary less."""
    parameters = StepParameters(21.5, 4.4e-4, 0.029, 3.9e-4, 1.8, 512, 290)
    model = replica(parameters, 10, 4211, 46, cov=0.42)
    highest, shares = 0.999 * model.batch / model.full_ms, np.linspace(0.3, 1.0, 60)
    itl = [float(latencies_at(model, share * highest, 90.0)[0][0]) for share in shares]
    limit = 1.001 * itl[-1]  # met, and before that missed
    target = Target(itl_ms=limit, itl_percentile=90.0)

    (rate,) = highest_rate(Replicas(model, TargetLimits.of([target])), 0.05 * highest, highest)

    missed = int(np.argmax(np.array(itl) > limit))
    assert max(itl) > 1.01 * limit
    assert shares[missed - 1] * highest[0] <= rate < shares[missed] * highest[0]


def test_a_percentile_of_the_inter_token_latency_is_met_where_it_is_predicted() -> None:
    model = replica(fitted(ONE_SHAPE).parameters, 64, 512, 128)
    limits = (Target(itl_ms=14.0, itl_percentile=p) for p in (0.0, 90.0, 95.0, 99.0))
    rates = []
    for limit in limits:
        replicas = Replicas(model, TargetLimits.of([limit]))
        highest = 0.999 * 64 / model.full_ms
        (rate,) = highest_rate(replicas, 1e-4 * highest, highest)
        rates.append(float(rate))
        found = replicas.latencies(np.array([rate]))
        told = [found.itl_ms[0], *found.itl_percentiles[0]]
        assert told[len(rates) - 1] == pytest.approx(14.0, rel=1e-5)

    assert rates == sorted(rates, reverse=True)
    assert rates[2] < 0.9 * rates[0]


def test_the_least_percentile_is_told_where_a_target_is_out_of_reach() -> None:
    model = replica(fitted(ONE_SHAPE).parameters, 64, 512, 128)
    target = Target(itl_ms=1.0, itl_percentile=99.0)

    found = size(Replicas(model, TargetLimits.of([target])))

    assert found.max_rate[0] == 0
    lone = latencies(model, 1e-3 * 1000.0 / float(model.intervals(slice(0, 1), np.ones(1))[0]))
    assert found.itl_floor[0] == pytest.approx(lone.itl_percentiles[0, 2])


@pytest.mark.parametrize("percentile", [0.0, 95.0])
def test_arrivals_like_clockwork_wait_no_longer_than_random_ones(percentile: float) -> None:
    random = wild(2000)
    regular = replace(random, arrival_cov=np.full(2000, 0.1), length_cov=np.full(2000, 0.05))
    for share in (1e-3, 0.1, 0.5, 0.9):
        rate = share * random.batch / random.full_ms
        found = [latencies_at(model, rate, percentile)[1] for model in (regular, random)]
        assert np.isfinite(found).all()
        assert (found[0] <= 1.01 * found[1]).all()


# The rate of clients that wait for their answers, against closed forms; and what it costs


OTHERS = np.array([1.0, 3.0, 15.0, 127.0])


@pytest.mark.parametrize("prompt_ms", [0.0, 0.01, 3.0, 400.0])
def test_the_rate_of_clients_whose_prompts_stop_all_others_is_that_of_the_closed_form(
    prompt_ms: float,
) -> None:
    """S = 1000 / (1 - x w), so that x = n / (1000 + n w)."""
    computed: list[FloatArray] = []

    def stay_ms(rate: FloatArray) -> FloatArray:
        computed.append(rate)
        return 1000.0 / (1.0 - rate * prompt_ms)

    pole = np.full(4, 1.0 / max(prompt_ms, 1e-100))
    rates, known = client_rates(stay_ms, OTHERS, np.full(4, 1000.0), pole)

    assert known.all()
    assert rates == pytest.approx(OTHERS / (1000.0 + OTHERS * prompt_ms), rel=1e-14)
    assert len(computed) == POINTS


def test_clients_whose_stay_jumps_where_they_meet_are_not_known() -> None:
    def stay_ms(rate: FloatArray) -> FloatArray:
        return np.where(rate > 0.01, 200.0, 50.0)

    _, known = client_rates(stay_ms, np.ones(1), np.full(1, 50.0), np.full(1, 1.0))

    assert not known.any()


def test_a_full_batch_is_as_many_clients_as_it_has_places() -> None:
    model = wild(400)
    batch = model.batch.astype(np.float64)

    stay = model.full_stay_ms(batch)

    rate = (batch - 1.0) / stay
    some = (batch > 1) & (rate < 0.9 / np.maximum(model.prefill_ms, 1e-100))
    assert some.sum() > 200
    assert model.stay_of_clients_ms(batch, rate)[some] == pytest.approx(stay[some], rel=1e-8)


# Sums over the likely states of a chain, against sums over all of them


DEEP, FLAT, FULL = (-3.0, 3.0), (-0.02, 0.0), (0.0, 0.7)
"""How fast the ratios of chains rise or fall."""


def every_state(batch: int, ratios: FloatArray) -> tuple[float, float, float]:
    """The sum of n p(n), and p(N), divided by the sum of p(n); and how exact they are."""
    level = np.append(0.0, np.cumsum(ratios))
    weights = np.exp(level - level.max())
    return (
        float(np.arange(batch + 1) @ weights / weights.sum()),
        float(weights[-1] / weights.sum()),
        float(1e-12 * np.abs(ratios).sum() + 1e-13),
    )


def in_ln_n(slopes: FloatArray, offsets: FloatArray) -> LogRatios:
    """Ratios whose logarithm is a cubic function of ln n, which an octave interpolates exactly."""

    def log_ratios(rows: slice, states: FloatArray) -> FloatArray:
        x = np.log(states) / np.log(65536.0)
        return np.asarray(offsets[rows] + slopes[rows] * (x - 2.0 * x**2 + 0.5 * x**3))

    return log_ratios


@pytest.mark.parametrize("span", [DEEP, FLAT, FULL], ids=["deep", "flat", "full"])
def test_likely_states_have_the_sums_of_all_states(span: tuple[float, float]) -> None:
    random = np.random.default_rng(7)
    batch = np.sort(np.exp(random.uniform(0, np.log(20_000), 200)).astype(np.int64))[::-1]
    slopes, offsets = random.uniform(*span, (2, 200))
    log_ratios = in_ln_n(slopes, offsets)

    last = last_likely(batch, log_ratios)
    order = np.argsort(-last, kind="stable")
    total, moment, full = sums_up_to(last[order], in_ln_n(slopes[order], offsets[order]))

    for row, (whole, most) in enumerate(
        zip(batch[order].tolist(), last[order].tolist(), strict=True)
    ):
        states = np.arange(1.0, whole + 1.0)[:, None]
        mean, at_end, exact = every_state(
            whole, log_ratios(slice(order[row], order[row] + 1), states)[:, 0]
        )
        assert moment[row] / total[row] == pytest.approx(mean, rel=exact, abs=1e-20)
        found = full[row] / total[row] if most == whole else 0.0
        assert found == pytest.approx(at_end, rel=exact, abs=1e-20)


def test_states_are_left_out_only_where_they_do_not_matter_in_the_step_model() -> None:
    model = wild(1000)
    for share in (0.01, 0.5, 0.9, 0.999, 3.0):
        rate = share * model.batch / model.full_ms
        whole = model.averages_up_to(model.batch, rate)

        found = model.averages(rate)

        assert found.in_service == pytest.approx(whole.in_service, rel=1e-12)
        assert found.waiting == pytest.approx(whole.waiting, rel=1e-9, abs=1e-20)


# Percentiles of a wait and what varies after it, against their own tail; and what they cost


LOADS = [1e-3, 0.5, 0.9, 0.99, 1.5]


@dataclass(frozen=True, slots=True)
class Counted:
    """A spread that counts the queues whose tails are computed."""

    spread: Spread
    tails: list[int]

    def take(self, rows: IntArray) -> "Counted":
        """Some of the rows, which are counted too."""
        return Counted(self.spread.take(rows), self.tails)

    def tail(self, beyond_ms: FloatArray) -> FloatArray:
        """The tail of the spread, counted."""
        self.tails.append(len(beyond_ms))
        return self.spread.tail(beyond_ms)

    def quantile(self, share: FloatArray) -> FloatArray:
        """That of the spread, which needs no tail."""
        return self.spread.quantile(share)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.99999])
@pytest.mark.parametrize("load", LOADS)
def test_so_many_requests_are_within_a_percentile_and_fewer_within_any_less(
    load: float, share: float
) -> None:
    model = wild(300)
    queue = model.averages(load * model.batch / model.full_ms)
    mean, spread = model.first_token_ms(queue), model.first_token_spread(queue)
    shares = np.full(300, share)

    found = delay_percentile(queue, mean, spread, shares, wait_percentile(queue, shares))

    beyond, before = (
        np.exp(log_delay_tail(queue, mean, spread, found * factor)) for factor in (1.0, 1.0 - 1e-6)
    )
    assert (beyond <= (1.0 - share) * (1.0 + 1e-9)).all()
    at_all = found > 1e-6 * mean  # a gamma distribution may have more requests below 0
    assert (before >= (1.0 - share) * (1.0 - 1e-9))[at_all].all()


@pytest.mark.parametrize("load", LOADS)
def test_a_percentile_takes_a_few_tails(load: float) -> None:
    """Two ends of a bracket, and a few between them."""
    model = wild(300)
    queue = model.averages(load * model.batch / model.full_ms)
    mean, shares = model.first_token_ms(queue), np.full(300, 0.95)
    counted = Counted(model.first_token_spread(queue), [])
    waits = wait_percentile(queue, shares)

    delay_percentile(queue, mean, cast("Spread", counted), shares, waits)

    assert sum(counted.tails) <= 9 * 300
    assert len(counted.tails) <= 20
