"""A real Prometheus that scrapes simulated replicas, and the faults that tests cause."""

import pytest

from tests.controlplane.waiting import wait_until
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.prometheus import Prometheus, QueryError
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM_OLD
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(8.0, 0.1, 20.0, 0.0008)
WORKLOAD = Workload(Uniform(256, 768), Uniform(50, 150))
SETTINGS = Settings(ENGINE, WORKLOAD, "granite", labels={"namespace": "prod"})
WINDOW_S = 15


def value(prometheus: Prometheus, expression: str, at: float | None = None) -> float:
    (sample,) = prometheus.query(expression, at)
    return sample.value


def wait_for_history(prometheus: Prometheus, pod: str, scrapes: int) -> None:
    """Wait until a pod was scraped so often."""
    wait_until(
        lambda: value(prometheus, f"count_over_time(up{{pod='{pod}'}}[10m])"),
        lambda number: number >= scrapes,
        f"{scrapes} scrapes",
    )


@pytest.mark.slow
def test_prometheus_sees_what_really_happens(prometheus: Prometheus, fleet: Fleet) -> None:
    chat = fleet.add("chat", SETTINGS, replicas=2, rate=20.0)
    sglang = Settings(ENGINE, WORKLOAD, "qwen", SGLANG, {"namespace": "prod"})
    code = fleet.add("code", sglang, replicas=2, rate=20.0)
    prometheus.set_targets(fleet.targets())
    prometheus.wait_for_scrapes()
    wait_for_history(prometheus, "code-0", WINDOW_S + 3)
    # The last scrapes: a busy machine is behind with the next.
    now = value(prometheus, "min(timestamp(up{pod=~'chat.*|code.*'}))")
    end = now - fleet.began
    truth = chat.truth(end - WINDOW_S, end)
    window = f"{{model_name='granite'}}[{WINDOW_S}s]"

    completed = value(prometheus, f"sum(increase(vllm:request_success_total{window}))", now)
    itl = value(
        prometheus,
        f"sum(rate(vllm:inter_token_latency_seconds_sum{window}))"
        f" / sum(rate(vllm:inter_token_latency_seconds_count{window}))",
        now,
    )
    arrived = value(prometheus, f"sum(increase(sglang:http_requests_total[{WINDOW_S}s]))", now)

    assert completed == pytest.approx(truth.completions, rel=0.15)
    assert 1000 * itl == pytest.approx(truth.itl_ms, rel=0.05)
    assert arrived == pytest.approx(code.truth(end - WINDOW_S, end).arrivals, rel=0.15)


def test_a_killed_replica_is_down_and_a_new_one_counts_from_zero(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    old = Settings(ENGINE, WORKLOAD, "granite", VLLM_OLD)
    server = fleet.add("killed", old, replicas=1, rate=20.0)
    prometheus.set_targets(fleet.targets())
    prometheus.wait_for_scrapes()
    wait_until(
        lambda: value(prometheus, "vllm:generation_tokens_total{pod='killed-0'}"),
        lambda tokens: tokens > 0,
        "tokens",
    )
    server.kill("killed-0")
    server.set_rate(0.0)  # so that its counter is below the last one, however late it is scraped
    prometheus.wait_for_scrapes(down=["killed-0"])

    assert prometheus.query("vllm:generation_tokens_total{pod='killed-0'}") == []

    server.start("killed-0")
    prometheus.wait_for_scrapes()

    resets = "resets(vllm:generation_tokens_total{pod='killed-0'}[10m])"
    assert value(prometheus, resets) == 1


@pytest.mark.parametrize(
    ("expression", "selectors"),
    [
        (
            'sum by (model_name) (rate(vllm:request_success_total{namespace="prod"}[1m])) > 0',
            ['{namespace="prod",__name__="vllm:request_success_total"}'],
        ),
        (
            "a / on (pod) group_left () deriv(b[5m:1s] offset 1m)",
            ['{__name__="a"}', '{__name__="b"}'],
        ),
        ("vector(1)", []),
    ],
)
def test_an_expression_is_parsed_into_its_parts(
    prometheus: Prometheus, expression: str, selectors: list[str]
) -> None:
    assert prometheus.selectors(expression) == selectors


@pytest.mark.parametrize("expression", ["sum(", 'rate(x{a="b}[1m])', "rate(x)", "x[1m] + 1", ""])
def test_what_is_no_expression_is_refused(prometheus: Prometheus, expression: str) -> None:
    with pytest.raises(QueryError, match=r"400: .*parse error"):
        prometheus.parse(expression)
