"""`inferno measure` of the pages of many engines: parts are added up, copies count once."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from tests.cli.program import inferno, write
from tests.engines.history import EVERY_15_S, SCRAPE_INTERVAL_S
from tests.engines.pages import (
    DYNAMO,
    NIM,
    RAY,
    SGLANG,
    SGLANG_BY_HTTP,
    SGLANG_BY_PRIORITY,
    TGI,
    TRTLLM,
    VLLM,
    EnginePage,
    Labels,
    Row,
    Served,
)
from tests.engines.prometheus import Prometheus
from tests.prometheus.conftest import ServePast

PAST_S, AHEAD_S = 600, 600
BUSY, UNUSED = Served(), Served(rate=0.0, running=0.0)
GROWING = Served(waiting=10.0, growth=2.0)
MONITORS = ({"endpoint": "http", "job": "prod/engine"}, {"endpoint": "metrics", "job": "engine"})
"""Those of a PodMonitor and of a ServiceMonitor."""


@dataclass(frozen=True, slots=True)
class Case:
    """Pods with the same page: the labels of each part on it, and those of each scraper."""

    page: EnginePage
    served: Served = BUSY
    parts: tuple[Labels, ...] = ({},)
    copies: tuple[Labels, ...] = ({},)
    pods: int = 2
    replicas: int = 2
    says: str = ""

    def lines(self, app: str, passed: int, at: float) -> Iterator[str]:
        """The samples of a scrape."""
        for pod in range(self.pods):
            of_pod = {"namespace": "prod", "app": app, "pod": f"{app}-{pod}"}
            target = {"job": "engines", "instance": f"{app}-{pod}:8000", **of_pod}
            for copy in self.copies:
                yield _line(("up", {**target, **copy}, 1.0), {}, at)
                for part in self.parts:
                    for row in self.page.rows(passed, self.served, **part):
                        yield _line(row, {**target, **copy}, at)


def _line(row: Row, labels: Labels, at: float) -> str:
    name, own, value = row
    own = {f"exported_{key}" if key in labels else key: text for key, text in own.items()}
    text = ",".join(f'{key}="{text}"' for key, text in {**own, **labels}.items())
    return f"{name}{{{text}}} {value} {at:.3f}\n"


def _of(label: str, *values: str) -> tuple[Labels, ...]:
    return tuple({label: value} for value in values)


RAY_REPLICAS = tuple({"ReplicaId": f"r{n}", "WorkerId": f"w{n}", "NodeId": "n"} for n in range(3))
DIFFER = "each target has 2 copies, they differ in "

CASES: Mapping[str, Case] = {
    "vllm": Case(VLLM),
    "vllm-data-parallel": Case(VLLM, parts=_of("engine", "0", "1")),
    "vllm-data-parallel-pair": Case(
        VLLM,
        parts=_of("engine", "0", "1"),
        copies=_of("vmagent", "a", "b"),
        says=DIFFER + "vmagent",
    ),
    "vllm-named-engine": Case(
        VLLM, parts=_of("engine", "0", "1"), copies=({"engine": "vllm"},), says=""
    ),
    "vllm-growing": Case(VLLM, GROWING),
    "vllm-unused": Case(VLLM, UNUSED),
    "vllm-collector": Case(VLLM, parts=_of("exported_pod", "a", "b", "c"), pods=1, replicas=3),
    "ray": Case(RAY, parts=RAY_REPLICAS, replicas=6),
    "ray-growing": Case(RAY, GROWING, RAY_REPLICAS, replicas=6),
    "ray-unused": Case(RAY, UNUSED, RAY_REPLICAS, replicas=6),
    "nim": Case(NIM),
    "nim-growing": Case(NIM, GROWING),
    "nim-unused": Case(NIM, UNUSED),
    "sglang": Case(SGLANG, parts=_of("dp_rank", "0", "1")),
    "sglang-ranks": Case(SGLANG, parts=_of("tp_rank", "0", "1"), says=DIFFER + "tp_rank"),
    "sglang-growing": Case(SGLANG, GROWING),
    "sglang-http": Case(SGLANG_BY_HTTP, GROWING),
    "sglang-priorities": Case(SGLANG_BY_PRIORITY, GROWING),
    "sglang-unused": Case(SGLANG, UNUSED),
    "tgi": Case(TGI),
    "tgi-growing": Case(TGI, GROWING),
    "trtllm": Case(TRTLLM),
    "trtllm-growing": Case(TRTLLM, GROWING),
    "trtllm-unused": Case(TRTLLM, UNUSED),
    "dynamo": Case(DYNAMO),
    "dynamo-monitors": Case(DYNAMO, copies=MONITORS, says=DIFFER + "endpoint and job"),
    "dynamo-growing": Case(DYNAMO, GROWING),
    "dynamo-unused": Case(DYNAMO, UNUSED),
}


@pytest.fixture(scope="module")
def begin() -> float:
    return time.time() - PAST_S


@pytest.fixture(scope="module")
def scraped(serve_past: ServePast, begin: float) -> Iterator[Prometheus]:
    past = (
        line
        for passed in range(0, PAST_S + AHEAD_S, SCRAPE_INTERVAL_S)
        for app, case in CASES.items()
        for line in case.lines(app, passed, begin + passed)
    )
    with serve_past("pages", past, EVERY_15_S) as server:
        yield server


@pytest.fixture(scope="module")
def measured(
    scraped: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, dict[str, Any]]:
    file = tmp_path_factory.mktemp("servers") / "servers.yaml"
    write(file, *(_server(app, case.page.source) for app, case in CASES.items()))
    done = inferno("measure", file, "--prometheus", scraped.url, "-o", "json")
    assert done.returncode == 0, done.stderr.decode()
    return {item["name"]: item["measured"] for item in json.loads(done.stdout)["servers"]}


def _server(app: str, source: str) -> dict[str, Any]:
    measure = {"source": source, "labels": {"namespace": "prod", "app": app}}
    return {
        "apiVersion": "inferno.platform.ai/v1alpha1",
        "kind": "Server",
        "metadata": {"name": app},
        "spec": {"name": app, "class": "Premium", "model": "llama", "measure": measure},
    }


@pytest.mark.parametrize("app", CASES)
def test_load_running_and_waiting_are_those_of_the_engines(
    app: str, measured: Mapping[str, dict[str, Any]], begin: float
) -> None:
    case, found = CASES[app], measured[app]
    engines, served = case.pods * len(case.parts), case.served
    if "tp_rank" in case.parts[0]:
        engines = case.pods
    at = datetime.fromisoformat(found["time"]).timestamp() - begin

    assert found["quality"] == ("Idle" if served is UNUSED else "Fresh"), found["message"]
    assert found["arrivalRate"] == pytest.approx(
        60 * (served.rate + served.growth) * engines, rel=0.05
    )
    assert found.get("running", 0.0) == pytest.approx(served.running * engines, rel=0.05)
    assert found.get("waiting", 0.0) == pytest.approx(served.waiting_at(at) * engines, rel=0.05)
    assert found["replicas"] == {"ready": case.replicas, "reporting": case.replicas}
    assert case.says in found.get("message", "")
    if served is not UNUSED:
        assert found["avgInTokens"] == pytest.approx(served.inputs, rel=0.05)
        assert found["avgOutTokens"] == pytest.approx(served.outputs, rel=0.05)
        assert found["itlAverage"] == pytest.approx(10.0, rel=0.05)
        assert ("copies" in found.get("message", "")) == bool(case.says)
