"""Measuring cycles on a cluster: what is written, when, and what optimizations get."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from inferno_operator.controllers.measurement.controller import MeasurementController
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Queries, Server
from inferno_operator.resources.objects import Kind, Manifest, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import MeasuredServer, ObservedLatency, Observer
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.forecast import first_ratio
from tests.fakes import FakeCluster
from tests.unit.operator.background import started
from tests.unit.operator.engines.prometheus import NOW, Table
from tests.unit.operator.objects import condition, server, service_class

INTERVAL = 30.0
GROWTH = round(first_ratio(120.0 + INTERVAL), 3)
"""That of loads without history, over the lead time and a cycle."""

START = datetime.fromtimestamp(NOW, UTC)
SERVER = kind_of(Server)
ALIVE = {"reporting": 1.0}
MEANS = {"avgInTokens": 500.0, "avgOutTokens": 100.0, "itlAverage": 0.02, "ttftAverage": 0.1}
MEASURE: dict[str, Any] = {"source": "vLLM", "labels": {"model_name": "m"}}


class Reports(Observer):
    """Keeps the last report of each namespace."""

    def __init__(self) -> None:
        self.servers: dict[str, Sequence[MeasuredServer]] = {}

    def measured(self, namespace: str, servers: Sequence[MeasuredServer]) -> None:
        self.servers[namespace] = servers


class Scene:
    """A measured Server, a Prometheus with its series, and a clock that moves with the loop."""

    def __init__(
        self, spec: dict[str, Any] | None = None, cluster: FakeCluster | None = None
    ) -> None:
        self.cluster = cluster or FakeCluster()
        self.table = Table(["model_name"])
        self.observer = Reports()
        self.means: Mapping[str, float] = MEANS
        self.serve(5.0)
        self.key = self.cluster.add(server(spec=spec or {"measure": MEASURE}))
        self.cluster.add(service_class())
        self.table.clock = lambda: self.now().timestamp()
        self.survey: Survey | None = Survey(self.table, read_built_in_sources(), self.table.clock)

    def serve(self, rate: float, short: float | None = None, **alive: float) -> None:
        rates = {"offset 300s": {"0": rate}, "offset 60s": {"0": rate if short is None else short}}
        words = {**rates, "request_prompt_tokens_sum": self.means}
        self.table.serve("m", count_over_time={**ALIVE, **alive}, **words)

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MeasurementController]:
        controller = MeasurementController(
            self.cluster, Informers(self.cluster), self.survey, INTERVAL, self.now, self.observer
        )
        async with started(controller):
            yield controller

    async def cycles(self, count: int) -> None:
        """Wait until so many more cycles have ended; the first one is due at once."""
        now = asyncio.get_running_loop().time()
        done = (now + INTERVAL / 2) // INTERVAL
        await asyncio.sleep((done + count - 0.5) * INTERVAL - now)

    @property
    def stored(self) -> Manifest:
        return self.cluster.objects["Server", self.key]

    @property
    def measured(self) -> Manifest:
        (found,) = (c for c in self.stored["status"]["conditions"] if c["type"] == "Measured")
        return {key: str(value) for key, value in found.items()}

    def message(self) -> str:
        return str(self.measured["message"])

    def condition(self) -> tuple[str, str]:
        return self.measured["status"], self.measured["reason"]


async def test_a_measured_server_gets_its_load_and_its_status() -> None:
    scene = Scene()

    async with scene.running():
        await scene.cycles(1)

    load = scene.stored["spec"]["currentAlloc"]["load"]
    assert load == {"arrivalRate": round(300 * GROWTH, 6), "avgInTokens": 500, "avgOutTokens": 100}
    assert scene.stored["status"]["measured"]["quality"] == "Fresh"
    assert scene.stored["status"]["measured"]["ttftAverage"] == 100
    assert scene.condition() == ("True", "Fresh")


APART = {
    "accelerator": "H100",
    "numReplicas": 5,
    "load": {"arrivalRate": 60, "avgInTokens": 500, "avgOutTokens": 100},
    "roles": {
        "prefill": {"accelerator": "L40S", "numReplicas": 2},
        "decode": {"accelerator": "H100", "numReplicas": 3},
    },
}
"""Two prefill and three decode replicas."""


async def test_requests_that_both_roles_have_counted_change_no_load() -> None:
    scene = Scene({"measure": MEASURE, "currentAlloc": APART})
    scene.serve(5.0, reporting=5.0)

    async with scene.running():
        await scene.cycles(1)
        assert scene.condition() == ("False", "Refused")
        assert "EPP or Dynamo" in scene.message()
        assert scene.stored["spec"]["currentAlloc"]["load"] == APART["load"]

        scene.serve(0.0, reporting=5.0)
        await scene.cycles(1)
        assert scene.condition() == ("True", "Idle")  # twice nothing is nothing


@pytest.mark.parametrize(
    ("measure", "replicas"),
    [
        (MEASURE, 3.0),  # the labels select those that decode
        ({**MEASURE, "queries": {"arrivalRate": "a", "avgOutTokens": "b"}}, 5.0),
        ({**MEASURE, "source": "EPP"}, 5.0),
    ],
)
async def test_requests_that_are_counted_once_are_the_load_of_both_roles(
    measure: Manifest, replicas: float
) -> None:
    scene = Scene({"measure": measure, "currentAlloc": APART})
    scene.serve(5.0, reporting=replicas)

    async with scene.running():
        await scene.cycles(1)

    assert scene.condition()[1] != "Refused"


WORKLOADS = [{"accelerator": "H100", "name": "chat"}]


def running(pods: int, **fields: object) -> dict[str, Any]:
    """What the operator has counted of a Server that needs five replicas."""
    load = {"arrivalRate": 1800, "avgInTokens": 500, "avgOutTokens": 100}
    return {"accelerator": "H100", "numReplicas": pods, "cost": 1.0, "load": load, **fields}


def crowd(**fields: object) -> dict[str, Any]:
    desired = {key: value for key, value in running(5).items() if key != "load"}
    spec = {"measure": MEASURE, "workloads": WORKLOADS, "currentAlloc": running(5)}
    return {**spec, "desiredAlloc": desired, **fields}


class SharingCluster(FakeCluster):
    """Keeps the fields of currentAlloc that another manager than the one who writes has set."""

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        written = manifest.get("spec", {}).get("currentAlloc")
        if written:
            (stored,) = (o for (name, _), o in self.objects.items() if name == "Server")
            current = {**stored["spec"]["currentAlloc"], **written}
            manifest = {**manifest, "spec": {**manifest["spec"], "currentAlloc": current}}
        return await super().apply(kind, manifest, manager, force=force)


def count(scene: Scene, pods: int) -> None:
    """Let the operator count other pods."""
    spec = scene.stored["spec"]
    current = {**spec["currentAlloc"], "numReplicas": pods}
    scene.cluster.add({**scene.stored, "spec": {**spec, "currentAlloc": current}})


async def planned(scene: Scene, controller: MeasurementController) -> Server:
    """The Server as an optimization gets it now."""
    (found,) = await controller.with_loads([observe(Server, scene.stored)])
    assert isinstance(found.resource, Server)
    return found.resource


def rate(subject: Server) -> float:
    current = subject.spec.current_alloc
    assert current is not None
    assert current.load is not None
    return current.load.arrival_rate


async def test_pods_that_prometheus_does_not_discover_lower_no_plan() -> None:
    scene = Scene(crowd(), SharingCluster())
    scene.serve(30.0, reporting=5.0)

    async with scene.running() as controller:
        await scene.cycles(1)
        assert scene.condition() == ("True", "Fresh")
        before = await planned(scene, controller)

        scene.serve(6.5, reporting=1.0)
        for _ in range(40):  # 20 minutes: longer than each window
            await scene.cycles(1)
            after = await planned(scene, controller)
            assert scene.condition() == ("True", "Partial")
            assert "1 of 5 ready pods report" in scene.message()
            assert rate(after) >= rate(before)
            assert after.spec.min_num_replicas == 5
        replicas = scene.stored["status"]["measured"]["replicas"]
        assert replicas == {"ready": 5, "reporting": 1}

        scene.serve(60.0, reporting=2.0)
        await scene.cycles(1)
        assert "2 of 5 ready pods report" in scene.message()
        assert rate(await planned(scene, controller)) >= 3600


async def test_an_operator_that_starts_meanwhile_lowers_no_plan_either() -> None:
    scene = Scene(crowd(), SharingCluster())
    scene.serve(6.5, reporting=1.0)

    async with scene.running() as controller:
        await scene.cycles(1)
        after = await planned(scene, controller)

    assert scene.condition() == ("True", "Partial")
    assert rate(after) >= 1800
    assert after.spec.min_num_replicas == 5


async def test_pods_that_have_just_become_ready_may_take_two_scrapes_to_report() -> None:
    scene = Scene(crowd(currentAlloc=running(2)), SharingCluster())
    scene.serve(30.0, reporting=2.0)
    scene.table.serve("", count_over_time={"interval": 30.0})

    async with scene.running():
        await scene.cycles(1)
        count(scene, 5)
        for cycle in range(5):
            await scene.cycles(1)
            quality = "Fresh" if 30 * cycle < 75 else "Partial"  # two scrapes and 15 s
            assert scene.condition() == ("True", quality)
        assert "2 of 5 ready pods report" in scene.message()

        count(scene, 2)  # three end, and are awaited no more
        await scene.cycles(1)
        assert scene.condition() == ("True", "Fresh")


NAMED: dict[str, Any] = {"workloads": WORKLOADS}
BOOSTER: dict[str, Any] = {
    "modelBooster": {"name": "b", "backends": [{"accelerator": "H100", "name": "x"}]}
}


@pytest.mark.parametrize(
    ("spec", "current", "reporting", "quality"),
    [
        (NAMED, APART, 3.0, "Fresh"),  # the labels select those that decode
        (NAMED, APART, 2.0, "Partial"),
        ({**NAMED, "measure": {**MEASURE, "source": "EPP"}}, APART, 1.0, "Fresh"),
        ({**NAMED, "measure": {**MEASURE, "source": "KthenaRouter"}}, running(5), 1.0, "Fresh"),
        (NAMED, None, 1.0, "Fresh"),  # nobody has counted them
        ({}, running(5), 1.0, "Fresh"),  # nobody knows which they are
        (BOOSTER, running(2), 1.0, "Partial"),
    ],
)
async def test_pods_are_compared_where_each_reports_by_itself(
    spec: Manifest, current: Manifest | None, reporting: float, quality: str
) -> None:
    scene = Scene({"measure": MEASURE, **spec, "currentAlloc": current})
    scene.serve(5.0, reporting=reporting)

    async with scene.running():
        await scene.cycles(1)

    assert scene.condition() == ("True", quality)


def serve_rate(scene: Scene, means: Mapping[str, float] | None = None) -> None:
    """Serve the rate of any source, and perhaps means."""
    scene.table.serve("m", count_over_time=ALIVE, **{"rate(": {"0": 5.0, **(means or {})}})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("TensorRT-LLM", "TensorRT-LLM exports them from release 1.3 on"),
        ("KthenaRouter", "source KthenaRouter does not tell them"),
        ("Envoy", "source Envoy does not tell them"),
        ("vLLM", "no request yet in vllm:request_prompt_tokens_count and vllm:request_gen"),
    ],
)
async def test_a_fresh_measurement_says_what_plans_lack(source: str, why: str) -> None:
    scene = Scene({"measure": {**MEASURE, "source": source}, "currentAlloc": None})
    serve_rate(scene)

    async with scene.running():
        await scene.cycles(1)

    assert scene.condition() == ("True", "Fresh")
    message = scene.message()
    assert message == scene.stored["status"]["measured"]["message"]
    assert message.startswith("plans lack the mean lengths of requests (avgInTokens and avgOut")
    assert why in message
    assert "by hand in spec.currentAlloc.load, or name queries" in message


async def test_a_message_about_what_plans_lack_ends_when_it_is_known() -> None:
    scene = Scene({"measure": {**MEASURE, "source": "SGLang"}, "currentAlloc": None})
    serve_rate(scene)

    async with scene.running():
        await scene.cycles(1)
        before = scene.message()
        serve_rate(scene, MEANS)
        await scene.cycles(1)

    assert "plans lack" in before
    assert scene.message() == ""


@pytest.mark.parametrize("lengths", [{"avgInTokens": 500, "avgOutTokens": 100}, {"avgLength": 600}])
async def test_lengths_that_are_set_by_hand_are_lacking_no_more(lengths: Manifest) -> None:
    current = {"accelerator": "H100", "numReplicas": 1, "load": {"arrivalRate": 0, **lengths}}
    scene = Scene(
        {"measure": {**MEASURE, "source": "Envoy"}, "currentAlloc": current}, SharingCluster()
    )
    serve_rate(scene)

    async with scene.running():
        await scene.cycles(1)

    assert (scene.condition(), scene.message()) == (("True", "Fresh"), "")
    assert scene.stored["spec"]["currentAlloc"]["load"] == {
        "arrivalRate": round(300 * GROWTH, 6),
        **lengths,
    }


async def test_a_server_without_a_ready_replica_tells_what_hinders_its_pods() -> None:
    scene = Scene()
    scene.table.rows.clear()
    actuated = {
        "type": "Actuated",
        "status": "Unknown",
        "reason": "Moving",
        "message": "0 x A100 (2 wanted); not ready: 2 x ImagePullBackOff",
        "lastTransitionTime": START.isoformat(),
    }

    async with scene.running():
        await scene.cycles(1)
        before = scene.message()
        scene.cluster.add({**scene.stored, "status": {"conditions": [actuated]}})
        await scene.cycles(1)

    assert "let it scrape the replicas" in before
    assert scene.message().endswith(
        "no replica is ready (condition Actuated): " + actuated["message"]
    )


async def test_definitions_of_another_release_are_told_and_the_load_grows_all_the_same() -> None:
    scene = Scene()

    async with scene.running():
        await scene.cycles(1)
        scene.cluster.undefined = {"measured"}
        scene.serve(15.0)
        await scene.cycles(3)
        told, message, writes = scene.condition(), scene.message(), [*scene.cluster.writes]
        load = scene.stored["spec"]["currentAlloc"]["load"]["arrivalRate"]
        scene.cluster.undefined.clear()
        await scene.cycles(1)

    assert told == ("False", "Rejected")
    assert ".status.measured" in message
    assert writes.count("status Server s") == 2  # before, and once that it is refused
    assert load >= 900
    assert scene.condition() == ("True", "Fresh")
    assert scene.stored["status"]["measured"]["arrivalRate"] == 900


async def test_a_server_that_was_created_again_does_not_keep_the_load_of_the_one_before() -> None:
    scene = Scene()

    async with scene.running():
        await scene.cycles(1)
        scene.table.rows.clear()
        again = server(spec={"measure": MEASURE, "currentAlloc": None}, uid="another")
        scene.cluster.add({**again, "status": {}})  # as after a watch that was interrupted
        await scene.cycles(1)

    assert scene.condition() == ("False", "Missing")
    assert "arrivalRate" not in scene.stored["status"]["measured"]


async def test_numbers_are_written_where_they_move_and_at_most_once_a_minute() -> None:
    scene = Scene()

    async with scene.running():
        await scene.cycles(1)
        scene.cluster.writes.clear()
        scene.serve(5.2)  # 4 %
        await scene.cycles(20)
        assert scene.cluster.writes == []
        for step in range(10):
            scene.serve(10.0 * (step + 1))
            await asyncio.sleep(INTERVAL)

    assert 4 <= scene.cluster.writes.count("status Server s") <= 5


@pytest.mark.parametrize("skew", [-3600, -90, 90, 3600])
async def test_a_clock_of_prometheus_that_differs_changes_no_load(skew: float) -> None:
    stored = []
    for difference in (0.0, skew):
        scene = Scene()
        clock = scene.table.clock
        scene.table.clock = lambda clock=clock, by=difference: clock() + by  # type: ignore[misc]
        async with scene.running():
            for rate in (5.0, 5.0, 10.0, 10.0, 10.0, 10.0, 10.0, 4.0, 4.0, 4.0, 4.0, 4.0):
                scene.serve(rate)
                await scene.cycles(1)
        stored.append((scene.stored["spec"]["currentAlloc"]["load"], scene.condition()))

    assert stored[0] == stored[1]


async def test_a_server_is_stale_at_once_and_after_15_minutes_not_measured_any_more() -> None:
    scene = Scene()

    async with scene.running():
        await scene.cycles(1)
        scene.table.failing = {"": UnavailableError("http://p: no answer within 10 s")}
        await scene.cycles(1)
        assert scene.condition() == ("Unknown", "Stale")
        assert scene.stored["status"]["measured"]["arrivalRate"] == 300
        await scene.cycles(32)

    assert scene.condition() == ("False", "Stale")
    assert [(event.type, event.reason) for event in scene.cluster.events] == [("Warning", "Stale")]


async def test_an_optimization_gets_the_newest_load_and_waits_for_a_first_one() -> None:
    scene = Scene()
    other = server("N", spec={"measure": MEASURE, "currentAlloc": None})

    async with scene.running() as controller:
        await scene.cycles(1)
        before = observe(Server, scene.stored)
        scene.serve(50.0)
        await asyncio.sleep(INTERVAL)
        (after,) = await controller.with_loads([before])
        new = scene.cluster.objects["Server", scene.cluster.add(other)]
        (first,) = await controller.with_loads([observe(Server, new)])

    for found in (after, first):
        assert isinstance(found.resource, Server)
        assert rate(found.resource) == pytest.approx(3000 * GROWTH)


async def test_an_operator_that_just_started_keeps_the_last_good_load() -> None:
    first = Scene()
    async with first.running():
        await first.cycles(1)
    second = Scene()
    second.cluster = first.cluster
    second.table.failing = {"": UnavailableError("http://p: no answer within 10 s")}

    async with second.running() as controller:
        await second.cycles(1)

        assert rate(await planned(second, controller)) == pytest.approx(300 * GROWTH)


async def test_without_prometheus_a_server_is_told_what_to_set() -> None:
    scene = Scene()
    scene.survey = None

    async with scene.running():
        await scene.cycles(3)

    assert scene.condition() == ("False", "NoPrometheus")
    assert scene.cluster.writes == ["status Server s"]


async def test_a_server_that_is_not_measured_any_more_loses_its_measurement() -> None:
    scene = Scene()

    async with scene.running():
        await scene.cycles(1)
        spec = {k: v for k, v in scene.stored["spec"].items() if k != "measure"}
        scene.cluster.add({**scene.stored, "spec": spec})
        await scene.cycles(1)
        writes = len(scene.cluster.writes)
        await scene.cycles(3)

    assert "measured" not in scene.stored["status"]
    assert scene.stored["spec"]["currentAlloc"]["load"]["arrivalRate"] == pytest.approx(
        300 * GROWTH
    )
    assert len(scene.cluster.writes) == writes


@pytest.mark.parametrize("rate", [0.0, 5.0])
async def test_a_missed_target_is_in_the_status(rate: float) -> None:
    scene = Scene()
    target = {"model": "M", "slo-itl": 10}
    classes = service_class()
    scene.cluster.add({**classes, "spec": {**classes["spec"], "data": [target]}})
    scene.serve(rate, running=rate)

    async with scene.running():
        await scene.cycles(1)

    assert scene.stored["status"]["measured"].get("missesTargets") == ["slo-itl"]


async def test_an_operator_that_just_started_goes_on_with_the_correction_of_the_one_before() -> (
    None
):
    planned = {"arrivalRate": round(300 * GROWTH, 6), "avgInTokens": 500, "avgOutTokens": 100}
    runs = {"accelerator": "A", "numReplicas": 4, "load": planned}
    scene = Scene({"measure": MEASURE, "currentAlloc": runs, "desiredAlloc": runs})
    classes, target = service_class(), {"model": "M", "slo-itl": 15}
    scene.cluster.add({**classes, "spec": {**classes["spec"], "data": [target]}})
    conditions = [condition("Allocated", "Allocated")]
    scene.cluster.add({**scene.stored, "status": {"conditions": conditions}})

    async with scene.running():
        await scene.cycles(11)  # 20 ms for five minutes
    before, asked = scene.stored["status"]["measured"], scene.stored["spec"]["currentAlloc"]["load"]
    scene.stored["spec"]["currentAlloc"] = {**runs, "load": asked}
    async with scene.running():
        await scene.cycles(2)
        after = scene.stored["status"]["measured"]

    assert before["correction"]["factor"] == after["correction"]["factor"] == 1.25
    assert asked["arrivalRate"] == after["load"]["arrivalRate"] == 1.25 * planned["arrivalRate"]
    assert [event.reason for event in scene.cluster.events] == ["TargetsMissed"]


async def test_metrics_get_what_is_measured_and_what_was_predicted() -> None:
    scene = Scene()
    classes = service_class()
    targets = [{"model": "M", "slo-itl": 10, "slo-ttft": 500}]
    scene.cluster.add({**classes, "spec": {**classes["spec"], "data": targets}})
    predicted = {"accelerator": "A", "numReplicas": 1, "itlAverage": 15.0}
    scene.stored["spec"]["desiredAlloc"] = predicted

    async with scene.running():
        await scene.cycles(1)
        (found,) = scene.observer.servers["default"]
        scene.cluster.remove(SERVER, scene.key)
        await scene.cycles(1)

    assert (found.server, found.quality, found.arrival_rate) == ("S", "Fresh", 300)
    assert found.latencies["itl"] == ObservedLatency(20, 15, 10)
    assert found.misses == {"slo-itl": True, "slo-ttft": False}
    assert list(scene.observer.servers["default"]) == []


async def test_a_plan_is_asked_for_when_a_target_is_missed_and_once_in_a_cycle() -> None:
    scene, asked = Scene(), list[str]()
    classes = service_class()
    target = {"model": "M", "slo-ttft": 500}
    scene.cluster.add({**classes, "spec": {**classes["spec"], "data": [target]}})

    async with scene.running() as controller:
        controller.when_a_plan_is_needed(asked.append)
        await scene.cycles(3)
        assert asked == ["default"]  # its load is known for the first time; 100 ms
        asked.clear()
        scene.means = {**MEANS, "ttftAverage": 0.9}
        scene.serve(5.0)
        await scene.cycles(1)
        assert asked == ["default"]
        await scene.cycles(3)
        assert asked == ["default"]  # the plan knows it
        scene.serve(5.0, waiting=1000.0)
        await scene.cycles(1)
        assert asked == ["default", "default"]


async def test_a_plan_is_asked_for_at_once_when_a_load_jumps_and_not_when_it_drifts() -> None:
    scene, asked = Scene(), list[str]()

    async with scene.running() as controller:
        controller.when_a_plan_is_needed(asked.append)
        scene.serve(5.0)
        await scene.cycles(1)
        asked.clear()
        for rate in (5.8, 6.6, 5.0):
            scene.serve(rate)
            await scene.cycles(1)
        assert not asked
        scene.serve(10.0)
        await scene.cycles(2)

    assert asked == ["default"]


@pytest.mark.parametrize("true", [5.0, 24.0])
async def test_the_noise_of_a_constant_load_changes_next_to_nothing(true: float) -> None:
    """Poisson counts of an hour, in windows of 60 s and of 300 s: 120 measurements."""
    scene, random = Scene(), np.random.default_rng(1)
    arrivals = random.poisson(true, 4000)
    loads: list[float] = []

    async with scene.running() as controller:
        for end in range(300, 3900, round(INTERVAL)):
            short, long = (arrivals[end - window : end].mean() for window in (60, 300))
            scene.serve(long, short)
            await scene.cycles(1)
            loads.append(rate(await planned(scene, controller)) / 60)

    changes = sum(1 for old, new in pairwise(loads) if old != new)
    writes = scene.cluster.writes.count("apply Server s")
    assert changes <= 3
    assert writes == changes + 1
    assert max(abs(load / GROWTH - true) for load in loads) < 0.15 * true


def with_slow_queries(number: int) -> Manifest:
    """A Server with nine queries, each of which takes ten seconds."""
    names = [field.alias or name for name, field in Queries.model_fields.items()]
    measure = {"source": "Custom", "queries": dict.fromkeys(names, f"slow_{number}")}
    return server(f"Slow{number}", spec={"measure": measure}, namespace="slow")


async def test_slow_queries_of_a_namespace_delay_no_other_and_end_with_their_servers() -> None:
    scene = Scene()
    scene.table.seconds = {"slow": 10.0}
    slow = [scene.cluster.add(with_slow_queries(number)) for number in range(20)]

    async with scene.running() as controller:
        await asyncio.sleep(1)
        assert scene.stored["status"]["measured"]["quality"] == "Fresh"
        await asyncio.sleep(11)
        assert not controller.queue.longest_run  # the cycle has ended
        for key in slow:
            scene.cluster.remove(SERVER, key)
        scene.table.asked.clear()
        scene.serve(50.0)
        await asyncio.sleep(2 * INTERVAL)

    assert not any("slow" in text for text in scene.table.asked)
    assert scene.stored["spec"]["currentAlloc"]["load"]["arrivalRate"] == pytest.approx(
        3000 * GROWTH
    )


@pytest.mark.parametrize("namespaces", [1, 9])
async def test_a_load_that_jumps_is_planned_for_in_time_whoever_has_slow_queries(
    namespaces: int,
) -> None:
    """Nine namespaces use up all the time of a measurement."""
    scene, asked = Scene(), list[tuple[str, float]]()
    scene.table.seconds = {"slow": 10.0}
    for number in range(20 * namespaces):
        slow = with_slow_queries(number)
        scene.cluster.add(slow, namespace=f"slow-{number % namespaces}")
    loop = asyncio.get_running_loop()

    async with scene.running() as controller:
        controller.when_a_plan_is_needed(lambda name: asked.append((name, loop.time())))
        await asyncio.sleep(10 * INTERVAL + 1)
        asked.clear()
        scene.serve(50.0)
        jumped = loop.time()
        await asyncio.sleep(3 * INTERVAL)

    times = [time - jumped for name, time in asked if name == "default"]
    longest = INTERVAL if namespaces == 1 else 30 + INTERVAL / 3  # of a survey, and of a pause
    assert len(times) == 1
    assert times[0] <= longest + 1
