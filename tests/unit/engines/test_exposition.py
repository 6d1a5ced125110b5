"""What simulated engines answer to a scrape, read by the parser of `prometheus_client`."""

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.engines.exposition import Dialect, Page
from tests.engines.replica import Replica, loaded_replica
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM, VLLM_OLD


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
