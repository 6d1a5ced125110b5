"""`llm-d-inference-sim` under a known load, scraped by a real Prometheus.

Its metrics deviate from those of vLLM: completions have the label `finish_reason` instead of
`finished_reason`, no series has the label `engine`, and the time to first token does not include
the wait in the queue. Measuring a load does not depend on any of these.
"""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread
from typing import Self

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.series_groups import RateWindows
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Measure, Measured
from inferno_operator.resources.objects import Key
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.engines.clocked import Clocked
from tests.engines.inference_sim import InferenceSim, SimulatorSettings
from tests.engines.prometheus import Prometheus
from tests.engines.truth import Series
from tests.engines.workload import Fixed, Workload

WORD = "word "


class Load(AbstractContextManager["Load"]):
    """Sends requests to replicas in turn, from a thread of its own, as long as the context lasts.

    A request that is late because the machine is busy is sent at once; the times of the requests
    do not depend on the answers.

    Parameters
    ----------
    urls
        Bases of the replicas' APIs.
    model_name
        The model that is asked for.
    workload
        Lengths of prompts [words] and of answers [tokens].
    rate
        Requests in a second, to all replicas together.
    seed
        Of times and lengths.

    Attributes
    ----------
    sent
        The requests, with their Unix times [s].
    failures
        What went wrong with requests, in words.
    """

    def __init__(
        self, urls: Sequence[str], model_name: str, workload: Workload, *, rate: float, seed: int
    ) -> None:
        self.sent = Series()
        self.failures: list[str] = []
        self._urls = itertools.cycle(urls)
        self._model_name = model_name
        self._workload = workload
        self._rate = rate
        self._random = np.random.default_rng(seed)
        self._ready = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run()), name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def arrival_rate(self, start: float, end: float) -> float:
        """What was really sent between two Unix times [requests/s]."""
        _, requests = self.sent.total(start, end)
        return requests / (end - start)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = self._loop.create_task(self._send_all())
        self._ready.set()
        await asyncio.gather(self._main, return_exceptions=True)

    async def _send_all(self) -> None:
        unlimited = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(timeout=None, limits=unlimited) as client,  # noqa: S113 - queues are long
            asyncio.TaskGroup() as requests,
        ):
            due = time.time()
            while True:
                due += self._random.exponential(1 / self._rate)
                await asyncio.sleep(max(0.0, due - time.time()))
                self.sent.add(time.time(), 1)
                requests.create_task(self._send(client, next(self._urls)))

    async def _send(self, client: httpx.AsyncClient, url: str) -> None:
        body = {
            "model": self._model_name,
            "prompt": WORD * self._workload.input_tokens.draw(self._random),
            "max_tokens": self._workload.output_tokens.draw(self._random),
            "ignore_eos": True,
        }
        try:
            reply = await client.post(f"{url}/v1/completions", json=body)
        except httpx.TransportError as error:
            self.failures.append(repr(error))
            return
        if reply.is_error:
            self.failures.append(f"{reply.status_code}: {reply.text}")


SETTINGS = SimulatorSettings("granite", inter_token_ms=10.0, prefill_ms=30.0)
WORKLOAD = Workload(Fixed(100), Fixed(20))

SCRAPES_BEHIND_S = 2
"""By how much the newest scrapes are behind, each second, on a machine that is busy [s].

A load that it sends late changes by a fifth from second to second.
"""


def page_of(url: str) -> str:
    """What a replica tells."""
    return httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text


def totals(url: str) -> dict[str, float]:
    """The values of a page by metric, summed over its series."""
    values: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page_of(url)):
        for sample in family.samples:
            values[sample.name] += sample.value
    return values


def wait_for_completions(simulator: InferenceSim, number: int) -> None:
    wait_until(
        lambda: totals(simulator.url)["vllm:request_success_total"],
        lambda completed: completed >= number,
        "completions",
    )


def test_its_metrics_deviate_from_those_of_vllm_as_we_know(
    processes: Processes, inference_sim: Path
) -> None:
    with (
        InferenceSim(processes, inference_sim, "sim-1", SETTINGS) as simulator,
        Load([simulator.url], "granite", WORKLOAD, rate=20.0, seed=1),
    ):
        wait_for_completions(simulator, 1)
        page = page_of(simulator.url)
    families = {family.name: family for family in text_string_to_metric_families(page)}
    labels = families["vllm:request_success"].samples[0].labels

    assert "finish_reason" in labels
    assert "engine" not in labels
    assert families["vllm:num_requests_running"].samples[0].labels == {"model_name": "granite"}


@pytest.mark.minutes
@pytest.mark.extended
def test_its_load_is_found_within_5_percent_after_two_windows(
    processes: Processes, inference_sim: Path, prometheus: Prometheus
) -> None:
    windows = RateWindows(short=10, long=20)
    wanted = Measure(source="vLLM", labels={"model_name": "granite", "namespace": "measured"})
    replicas = [InferenceSim(processes, inference_sim, f"sim-{n}", SETTINGS) for n in (3, 4)]
    with replicas[0] as first, replicas[1] as second:
        prometheus.set_targets([r.target(namespace="measured") for r in (first, second)])
        prometheus.wait_for_scrapes()
        with Load([first.url, second.url], "granite", WORKLOAD, rate=60.0, seed=2) as load:
            began = time.time()
            wait_until(
                time.time,
                lambda now: now - began > 2 * windows.long + 5,
                "two windows",
                3 * windows.long,
            )
            now = time.time()
            found = asyncio.run(survey(prometheus, wanted, windows, now))
            ends = [now - behind for behind in range(SCRAPES_BEHIND_S + 1)]
            sent = [
                60 * load.arrival_rate(end - length, end)
                for end in ends
                for length in (windows.short, windows.long)
            ]

    assert load.failures == []
    assert (found.quality, found.message) == ("Fresh", "")
    assert found.arrival_rate is not None
    assert 0.95 * min(sent) <= found.arrival_rate <= 1.05 * max(sent)
    assert found.avg_in_tokens == pytest.approx(100, rel=0.05)
    assert found.avg_out_tokens == pytest.approx(20, rel=0.05)
    assert found.replicas is not None
    assert (found.replicas.ready, found.replicas.reporting) == (2, 2)


async def survey(
    prometheus: Prometheus, wanted: Measure, windows: RateWindows, now: float
) -> Measured:
    """What one survey finds about a server at a Unix time [s], however long it takes."""
    async with connect(PrometheusEndpoint(prometheus.url)) as client:
        asking = Survey(Clocked(client, now), read_built_in_sources(), lambda: now, windows)
        ((_, result),) = (await asking.ask({Key("measured", "granite"): wanted})).items()
    return judge_reading(result.reading, result.source, None, result.hint)
