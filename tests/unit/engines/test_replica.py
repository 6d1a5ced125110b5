"""The simulated replica against closed forms of queueing theory, and its own invariants."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.engines.engine import Engine
from tests.engines.exposition import Dialect, Page
from tests.engines.replica import Replica, loaded_replica
from tests.engines.sglang import SGLANG
from tests.engines.truth import Truth, truth_of
from tests.engines.vllm import VLLM, VLLM_OLD
from tests.engines.workload import Fixed, LogNormal, Uniform, Workload

ENGINE = Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008)
MIXED = Workload(Uniform(256, 768), Uniform(100, 300))
AT_ONCE = 10_000.0
"""A rate at which a batch is full after the first prefill [requests/s]."""


def replica(engine: Engine, workload: Workload, rate: float, seed: int = 1) -> Replica:
    made = Replica(engine, workload, VLLM.bounds, np.random.default_rng(seed))
    made.set_rate(rate, 0.0)
    return made


def truth(simulated: Replica, start: float, end: float) -> Truth:
    simulated.advance(end)
    return truth_of([simulated.record], start, end)


def test_a_constant_batch_decodes_in_alpha_plus_beta_n_and_waits_for_later_prefills() -> None:
    size, tokens, output = 8, 512, 101
    engine = Engine(8.0, 0.1, 20.0, 0.0008, max_batch_size=size)
    simulated = replica(engine, Workload(Fixed(tokens), Fixed(output)), AT_ONCE)
    prefills = [engine.gamma + engine.delta * tokens * n for n in range(1, size + 1)]
    waits = [sum(prefills[n:]) for n in range(1, size + 1)]  # of the request prefilled n-th
    decode = engine.alpha + engine.beta * size
    round_s = (sum(prefills) + (output - 1) * decode) / 1000

    seen = truth(simulated, 0.0, 10 * round_s + 0.01)  # in the first prefill of the next round

    assert seen.completions == 10 * size
    assert seen.itl_ms == pytest.approx(decode + np.mean(waits) / (output - 1), rel=1e-4)


def test_at_saturation_the_throughput_is_that_of_decode_steps_and_the_prefills_among_them() -> None:
    size, mean_output = 32, 200
    engine = Engine(8.0, 0.1, 20.0, 0.0, max_batch_size=size)
    simulated = replica(engine, Workload(Fixed(512), Uniform(100, 300)), rate=20.0)
    completions_per_step = size / (mean_output - 1)
    step_ms = engine.alpha + engine.beta * size + completions_per_step * engine.gamma

    seen = truth(simulated, 100.0, 1100.0)

    assert seen.completions / 1000 == pytest.approx(1000 * completions_per_step / step_ms, rel=0.01)


def test_one_request_at_a_time_is_the_queue_m_d_1() -> None:
    engine = Engine(8.0, 2.0, 100.0, 0.1, max_batch_size=1)
    simulated = replica(engine, Workload(Fixed(1000), Fixed(51)), rate=1.0)
    service_s = (100 + 0.1 * 1000 + 50 * 10) / 1000
    load = 1.0 * service_s

    seen = truth(simulated, 0.0, 40_000.0)

    assert simulated.totals.busy_s / 40_000 == pytest.approx(load, rel=0.02)
    assert seen.wait_ms / 1000 == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.05)
    assert seen.ttft_ms == pytest.approx(seen.wait_ms + 200, rel=0.01)


def test_littles_law_holds_for_the_system_and_for_the_decode_steps() -> None:
    simulated = replica(ENGINE, MIXED, rate=6.0)
    in_system, decoding = [], []
    for second in np.arange(100, 3100, 0.5):
        simulated.advance(second)
        in_system.append(simulated.running + simulated.waiting)
        decoding.append(simulated.decoding)
    seen = truth_of([simulated.record], 100.0, 3100.0)
    sojourn_s, number = simulated.record.completions.total(100.0, 3100.0)
    tokens_per_s = seen.arrival_rate * (seen.output_tokens - 1)

    assert np.mean(in_system) == pytest.approx(seen.arrival_rate * sojourn_s / number, rel=0.03)
    assert np.mean(decoding) == pytest.approx(tokens_per_s * seen.itl_ms / 1000, rel=0.03)


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
def test_the_mean_itl_is_that_of_the_mean_batch_and_the_prefills_of_others(rate: float) -> None:
    simulated = replica(ENGINE, MIXED, rate)

    seen = truth(simulated, 100.0, 3100.0)

    batch = seen.arrival_rate * (seen.output_tokens - 1) * seen.itl_ms / 1000
    prefill = simulated.totals.prefill.mean * 1000
    interference = batch * prefill / (seen.output_tokens - 1)
    # Large batches make more tokens, so the mean of the tokens is a little above that of the steps.
    assert seen.itl_ms == pytest.approx(8.0 + 0.1 * batch + interference, rel=0.03)


def test_what_arrives_is_poisson_and_as_long_as_it_should_be() -> None:
    simulated = replica(ENGINE, Workload(LogNormal(500, 0.8), LogNormal(200, 1.2)), rate=3.0)

    simulated.advance(5000.0)

    times = np.asarray(simulated.record.input_tokens.times)
    inputs = np.asarray(simulated.record.input_tokens.values)
    intervals = np.diff(times)
    assert intervals.mean() == pytest.approx(1 / 3, rel=0.03)
    assert intervals.std() == pytest.approx(1 / 3, rel=0.03)
    assert inputs.mean() == pytest.approx(500, rel=0.03)
    assert inputs.std() / inputs.mean() == pytest.approx(0.8, rel=0.05)


@given(
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.5, 5.0, 50.0]),
    kv_tokens=st.sampled_from([2000, 4000, 1_000_000]),
    looks=st.lists(st.floats(0.0, 30.0), max_size=30),
)
@example(seed=163, rate=5.0, kv_tokens=1_000_000, looks=[17.5])  # a step of 10 ms, a bucket's bound
def test_the_result_does_not_depend_on_when_one_looks(
    seed: int, rate: float, kv_tokens: int, looks: list[float]
) -> None:
    engine = Engine(8.0, 0.1, 20.0, 0.0008, kv_tokens=kv_tokens, max_model_length=2000)
    once, often = (replica(engine, MIXED, rate, seed) for _ in range(2))

    for look in sorted(looks):
        often.advance(look)
    once.advance(30.0)
    often.advance(30.0)

    assert page_numbers(often) == pytest.approx(page_numbers(once), rel=1e-9)


@given(
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.5, 5.0, 50.0]),
    kv_tokens=st.sampled_from([2000, 4000, 1_000_000]),
    limit=st.sampled_from([None, 3]),
)
def test_no_request_is_lost_no_counter_decreases_and_the_cache_is_never_too_full(
    seed: int, rate: float, kv_tokens: int, limit: int | None
) -> None:
    engine = Engine(8.0, 0.1, 20.0, 0.0008, 64, kv_tokens, 2000, limit)
    simulated = replica(engine, MIXED, rate, seed)
    totals, before = simulated.totals, (0.0,) * 6

    for time in np.arange(0.0, 30.0, 0.7):
        simulated.advance(time)
        completed = sum(totals.completions.values())
        present = simulated.running + simulated.waiting

        assert totals.arrivals == completed + present + totals.rejections
        assert 0 <= simulated.kv_tokens <= kv_tokens
        assert simulated.running <= 64
        now = (
            *(totals.arrivals, completed, totals.rejections, totals.preemptions),
            *(totals.generation_tokens, totals.inter_token.sum),
        )
        assert all(later >= earlier for earlier, later in itertools.pairwise((before, now)))
        before = now


def test_tokens_are_conserved() -> None:
    simulated = replica(ENGINE, MIXED, rate=5.0)
    simulated.advance(200.0)
    simulated.set_rate(0.0, 200.0)
    simulated.advance(300.0)
    totals = simulated.totals

    assert totals.generation_tokens == totals.request_output.sum
    assert totals.prompt_tokens == totals.request_input.sum
    assert totals.inter_token.count == totals.request_output.sum - totals.request_output.count
    assert totals.iteration.sum == totals.request_output.sum + totals.request_input.sum
    assert (simulated.running, simulated.waiting, simulated.kv_tokens) == (0, 0, 0)


def test_a_full_cache_preempts_requests_which_are_completed_later() -> None:
    engine = Engine(8.0, 0.1, 20.0, 0.0008, kv_tokens=4000, max_model_length=2000)
    simulated = replica(engine, MIXED, rate=5.0)
    simulated.advance(60.0)
    simulated.set_rate(0.0, 60.0)
    simulated.advance(600.0)
    totals = simulated.totals

    assert totals.preemptions > 10
    assert sum(totals.completions.values()) == totals.arrivals
    assert totals.generation_tokens == totals.request_output.sum
    assert simulated.kv_tokens == 0


def test_a_full_queue_rejects() -> None:
    engine = Engine(8.0, 0.1, 20.0, 0.0008, max_batch_size=2, max_queued=5)
    simulated = replica(engine, MIXED, rate=20.0)

    simulated.advance(60.0)

    assert simulated.waiting == 5
    assert simulated.totals.rejections > 0.9 * simulated.totals.arrivals - 60


def test_requests_are_not_longer_than_the_model_allows() -> None:
    engine = Engine(8.0, 0.1, 20.0, 0.0008, max_model_length=600)
    simulated = replica(engine, MIXED, rate=5.0)

    simulated.advance(100.0)

    assert simulated.totals.completions["length"] > 0
    assert simulated.totals.request_input.mean <= 599


def test_a_slower_engine_takes_longer_for_each_step() -> None:
    simulated = replica(ENGINE, Workload(Fixed(512), Fixed(200)), rate=0.05)

    before = truth(simulated, 0.0, 2000.0)
    simulated.set_engine(ENGINE.slowed(1.2), 2000.0)
    after = truth(simulated, 2100.0, 4000.0)

    assert after.itl_ms / before.itl_ms == pytest.approx(1.2, rel=0.01)


def page_numbers(simulated: Replica) -> list[float]:
    page = VLLM.page(simulated, "m").decode()
    return [float(line.split()[-1]) for line in page.splitlines() if not line.startswith("#")]


# What simulated engines answer to a scrape, read by the parser of `prometheus_client`


def families(dialect: Dialect, replica: Replica) -> dict[str, Metric]:
    page = dialect.page(replica, 'a "model"').decode()
    return {family.name: family for family in text_string_to_metric_families(page)}


@pytest.mark.parametrize("dialect", [VLLM, VLLM_OLD, SGLANG])
def test_histograms_are_cumulative_and_end_with_all_values(dialect: Dialect) -> None:
    histograms = [
        family
        for family in families(dialect, loaded_replica(dialect.bounds)).values()
        if family.type == "histogram"
    ]

    assert len(histograms) >= 7
    for family in histograms:
        counts = [s.value for s in family.samples if s.name.endswith("_bucket")]
        (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
        assert counts == sorted(counts)
        assert counts[-1] == count > 0


@pytest.mark.parametrize("dialect", [VLLM, VLLM_OLD])
def test_vllm_labels_each_series_with_model_and_engine(dialect: Dialect) -> None:
    for name, family in families(dialect, loaded_replica(dialect.bounds)).items():
        for sample in family.samples if name.startswith("vllm:") else ():
            assert sample.labels["model_name"] == 'a "model"'
            assert sample.labels["engine"] == "0"


def test_older_releases_of_vllm_have_other_names() -> None:
    new, old = (set(families(d, loaded_replica(d.bounds))) for d in (VLLM, VLLM_OLD))

    assert old - new == {"vllm:time_per_output_token_seconds", "vllm:gpu_cache_usage_perc"}
    assert new - old == {
        "vllm:inter_token_latency_seconds",
        "vllm:kv_cache_usage_perc",
        "vllm:admission_rejections",
        "vllm:request_prefill_kv_computed_tokens",
    }


def test_sglang_counts_requests_when_they_arrive_without_the_name_of_the_model() -> None:
    replica = loaded_replica(SGLANG.bounds)

    (sample,) = [
        sample
        for sample in families(SGLANG, replica)["sglang:http_requests"].samples
        if sample.name == "sglang:http_requests_total"
    ]

    assert sample.value == replica.totals.arrivals
    assert sample.labels == {"endpoint": "/v1/chat/completions", "method": "POST"}


def test_a_page_tells_what_the_engine_has_counted() -> None:
    replica = loaded_replica(VLLM.bounds)
    told = families(VLLM, replica)

    def value(family: str, sample: str) -> float:
        return sum(s.value for s in told[family].samples if s.name == sample)

    assert value("vllm:num_requests_running", "vllm:num_requests_running") == replica.running
    assert value("vllm:request_success", "vllm:request_success_total") == (
        replica.totals.arrivals - replica.running - replica.waiting
    )
    itl = "vllm:inter_token_latency_seconds"
    assert value(itl, f"{itl}_sum") == pytest.approx(replica.totals.inter_token.sum)


@pytest.mark.parametrize("dialect", [VLLM, VLLM_OLD, SGLANG])
def test_later_pages_are_as_prometheus_client_writes_them(dialect: Dialect) -> None:
    replica, page = loaded_replica(dialect.bounds), Page(dialect, "granite")
    pages = []
    for time in (60.0, 61.5, 300.0):
        replica.advance(time)
        pages.append((page.write(replica), dialect.page(replica, "granite")))

    assert all(written == expected for written, expected in pages)
    assert len(dict(pages)) == 3
