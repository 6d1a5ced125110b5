"""A real Prometheus that scrapes simulated replicas, and the faults that tests cause."""

from tests.controlplane.waiting import wait_until
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.prometheus import Prometheus
from tests.engines.vllm import VLLM_OLD
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(8.0, 0.1, 20.0, 0.0008)
WORKLOAD = Workload(Uniform(256, 768), Uniform(50, 150))


def value(prometheus: Prometheus, expression: str, at: float | None = None) -> float:
    (sample,) = prometheus.query(expression, at)
    return sample.value


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
