"""What simulated engines answer to a scrape, read by the parser of `prometheus_client`."""

import numpy as np
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.engines.engine import Engine
from tests.engines.exposition import Dialect, Page
from tests.engines.replica import Replica
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM, VLLM_OLD
from tests.engines.workload import Uniform, Workload


def simulated(dialect: Dialect) -> Replica:
    replica = Replica(
        Engine(8.0, 0.1, 20.0, 0.0008),
        Workload(Uniform(256, 768), Uniform(100, 300)),
        dialect.bounds,
        np.random.default_rng(1),
    )
    replica.set_rate(5.0, 0.0)
    replica.advance(60.0)
    return replica


def families(dialect: Dialect, replica: Replica) -> dict[str, Metric]:
    page = dialect.page(replica, 'a "model"').decode()
    return {family.name: family for family in text_string_to_metric_families(page)}


@pytest.mark.parametrize("dialect", [VLLM, VLLM_OLD, SGLANG])
def test_histograms_are_cumulative_and_end_with_all_values(dialect: Dialect) -> None:
    histograms = [
        family
        for family in families(dialect, simulated(dialect)).values()
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
    for family in families(dialect, simulated(dialect)).values():
        for sample in family.samples:
            assert sample.labels["model_name"] == 'a "model"'
            assert sample.labels["engine"] == "0"


def test_older_releases_of_vllm_have_other_names() -> None:
    new, old = (set(families(dialect, simulated(dialect))) for dialect in (VLLM, VLLM_OLD))

    assert old - new == {"vllm:time_per_output_token_seconds", "vllm:gpu_cache_usage_perc"}
    assert new - old == {
        "vllm:inter_token_latency_seconds",
        "vllm:kv_cache_usage_perc",
        "vllm:admission_rejections",
        "vllm:request_prefill_kv_computed_tokens",
    }


def test_sglang_counts_requests_when_they_arrive_without_the_name_of_the_model() -> None:
    replica = simulated(SGLANG)

    (sample,) = [
        sample
        for sample in families(SGLANG, replica)["sglang:http_requests"].samples
        if sample.name == "sglang:http_requests_total"
    ]

    assert sample.value == replica.totals.arrivals
    assert sample.labels == {"endpoint": "/v1/chat/completions", "method": "POST"}


def test_a_page_tells_what_the_engine_has_counted() -> None:
    replica = simulated(VLLM)
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
    replica, page = simulated(dialect), Page(dialect, "granite")
    pages = []
    for time in (60.0, 61.5, 300.0):
        replica.advance(time)
        pages.append((page.write(replica), dialect.page(replica, "granite")))

    assert all(written == expected for written, expected in pages)
    assert len(dict(pages)) == 3
