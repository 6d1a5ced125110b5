"""A real Prometheus that scrapes simulated replicas, and the faults that tests cause."""

import ssl
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trustme

from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.prometheus import Access, Prometheus, QueryError
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM_OLD
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(8.0, 0.1, 20.0, 0.0008)
WORKLOAD = Workload(Uniform(256, 768), Uniform(50, 150))
SETTINGS = Settings(ENGINE, WORKLOAD, "granite", labels={"namespace": "prod"})
WINDOW_S = 15
PASSWORD_HASH = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"  # noqa: S105 - of "test"


def value(prometheus: Prometheus, expression: str, at: float | None = None) -> float:
    (sample,) = prometheus.query(expression, at)
    return sample.value


def answer(prometheus: Prometheus) -> list[float]:
    """The answer to a query, if there is one in time."""
    with suppress(QueryError):
        return [value(prometheus, "1")]
    return []


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
    now = time.time()
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


@pytest.mark.slow
def test_targets_come_and_go_with_their_labels(prometheus: Prometheus, fleet: Fleet) -> None:
    server = fleet.add("chat", SETTINGS, replicas=2, rate=1.0)
    prometheus.set_targets(fleet.targets())
    prometheus.wait_for_scrapes()
    server.remove("chat-0")
    server.pods["chat-1"].labels["namespace"] = "test"
    prometheus.set_targets(fleet.targets())
    prometheus.wait_for_scrapes()

    (labels,) = wait_until(
        lambda: [sample.labels for sample in prometheus.query("vllm:num_requests_waiting")],
        lambda series: len(series) == 1,
        "the end of the old series",
    )

    assert labels["namespace"] == "test"
    assert labels["pod"] == "chat-1"


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
    prometheus.wait_for_scrapes(down=["killed-0"])

    assert prometheus.query("vllm:generation_tokens_total{pod='killed-0'}") == []

    server.start("killed-0")
    prometheus.wait_for_scrapes()

    assert value(prometheus, "resets(vllm:generation_tokens_total{pod='killed-0'}[1m])") == 1


def test_a_suspended_prometheus_does_not_answer_until_it_goes_on(
    processes: Processes, prometheus_program: Path
) -> None:
    impatient = Access({}, {"timeout": 0.5})
    with Prometheus(
        processes, prometheus_program, name="suspended", access=impatient
    ) as prometheus:
        prometheus.suspend()
        with pytest.raises(QueryError, match="ReadTimeout"):
            prometheus.query("1")
        prometheus.resume()

        # Whoever is impatient may have to ask more than once on a busy machine.
        assert wait_until(lambda: answer(prometheus), bool, "an answer") == [1]


def test_a_prometheus_that_was_stopped_starts_with_its_data(
    processes: Processes, prometheus_program: Path, fleet: Fleet
) -> None:
    fleet.add("chat", SETTINGS, replicas=1, rate=1.0)
    with Prometheus(processes, prometheus_program, name="stopped") as prometheus:
        prometheus.set_targets(fleet.targets())
        prometheus.wait_for_scrapes()
        before = time.time()
        prometheus.stop()
        with pytest.raises(QueryError, match="ConnectError"):
            prometheus.query("1")
        prometheus.start()

        assert value(prometheus, "vllm:num_requests_running", before) >= 0


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


def test_basic_authentication_is_asked_for(processes: Processes, prometheus_program: Path) -> None:
    access = Access({"basic_auth_users": {"ann": PASSWORD_HASH}}, {"auth": ("ann", "test")})
    with Prometheus(processes, prometheus_program, name="basic", access=access) as prometheus:
        refused = httpx.get(
            f"{prometheus.url}/api/v1/query", params={"query": "1"}, timeout=PATIENCE_S
        )

        assert value(prometheus, "1") == 1
        assert refused.status_code == 401


def test_a_client_certificate_is_asked_for(
    processes: Processes, prometheus_program: Path, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, identity in (("server", "127.0.0.1"), ("client", "inferno@example.com")):
        issued = authority.issue_cert(identity)
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server", "client")}
    tls = {
        "cert_file": files["server"],
        "key_file": files["server"],
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": files["ca"],
    }
    context = ssl.create_default_context(cafile=files["ca"])
    strangers = ssl.create_default_context(cafile=files["ca"])
    context.load_cert_chain(files["client"])
    access = Access({"tls_server_config": tls}, {"verify": context})
    with Prometheus(processes, prometheus_program, name="tls", access=access) as prometheus:
        assert value(prometheus, "1") == 1
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{prometheus.url}/-/ready", verify=strangers, timeout=PATIENCE_S)
