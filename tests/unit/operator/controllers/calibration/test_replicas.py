"""Windows of replicas from the answers of Prometheus."""

import re
from math import isnan

import pytest

from inferno_operator.controllers.calibration.replicas import (
    COUNTERS,
    GAUGES,
    LabelledReplicas,
    PrometheusWindows,
    build_expression,
    find_labelled_replicas,
    find_template,
    read_windows,
)
from inferno_operator.controllers.calibration.windows import Pair
from inferno_operator.resources import Server, parse
from inferno_operator.runtime.prometheus import QueryResult, Sample
from tests.unit.operator import objects

PAIR = Pair("prod", "llama", "H100")
SUBJECT = LabelledReplicas({"namespace": "prod", "model_name": "llama"}, PAIR)
OTHER = LabelledReplicas(
    {"namespace": "test", "model_name": "llama"}, Pair("test", "llama", "H100")
)
REPLICA = {"namespace": "prod", "pod": "llama-7c4d5f9b8d-x2x4z", "instance": "10.0.0.1:8000"}

# One minute: 8 requests in decode on average, 10 ms between tokens, 200 further tokens a request.
PARTS = {
    "itl_sum": 480.0,
    "itl_count": 48000.0,
    "prefill_sum": 7.2,
    "prefill_count": 240.0,
    "input_sum": 120000.0,
    "input_count": 240.0,
    "output_sum": 48240.0,
    "output_count": 240.0,
    "preemptions": 0.0,
    "restarts": 0.0,
    "kv_usage": 0.4,
    "running_mean": 8.0,
    "running_deviation": 2.0,
    "alive": 9.0,
    "served": 5000.0,
}


def answer(parts: dict[str, float], labels: dict[str, str], time: float = 1000.0) -> QueryResult:
    return QueryResult(
        tuple(Sample({**labels, "part": part}, time, value) for part, value in parts.items())
    )


def replica(**changes: float) -> QueryResult:
    return answer(PARTS | changes, {**REPLICA, "model_name": "llama"})


STARTED = answer({"started": 100.0}, REPLICA)


def test_a_window_has_what_the_replica_did() -> None:
    (window,) = read_windows([replica(), STARTED], [SUBJECT])[PAIR]

    assert window.itl_ms == pytest.approx(10)
    assert window.batch == pytest.approx(9)  # eight others, and the request itself
    assert window.prefill_ms == pytest.approx(30)
    assert (window.input_tokens, window.output_tokens) == pytest.approx((500, 201))
    assert (window.end, window.age_s, window.served) == (1000, 900, 5000)
    assert (window.kv_usage, window.batch_cov) == (0.4, 0.25)
    assert window.replica == "llama-7c4d5f9b8d-x2x4z"
    assert (window.workload, window.shape) == ("llama", "7c4d5f9b8d")


def test_a_window_has_what_was_cached_of_prompts_and_the_time_of_each_token_of_a_step() -> None:
    counts = {"prompt_sum": 100_000, "prompt_count": 50, "accepted": 600, "generated": 1000}

    (window,) = read_windows([replica(**counts), STARTED], [SUBJECT])[PAIR]

    assert (window.input_tokens, window.prompt_tokens) == pytest.approx((500, 2000))
    assert window.tokens_per_step == pytest.approx(2.5)
    assert window.itl_ms == pytest.approx(10 / 2.5)
    assert window.batch == pytest.approx(9)


def test_a_window_of_a_replica_that_tells_nothing_of_caches_and_drafts_has_none() -> None:
    (window,) = read_windows([replica(), STARTED], [SUBJECT])[PAIR]

    assert (window.cached_tokens, window.tokens_per_step) == (0, 1)


def test_without_traffic_the_latencies_are_unknown_not_zero() -> None:
    idle = replica(itl_sum=0, itl_count=0, prefill_sum=0, prefill_count=0)

    (window,) = read_windows([idle, STARTED], [SUBJECT])[PAIR]

    assert isnan(window.itl_ms)
    assert isnan(window.prefill_ms)


def test_a_replica_that_has_stopped_has_no_window() -> None:
    parts = {name: value for name, value in PARTS.items() if name != "alive"}

    assert read_windows([answer(parts, {**REPLICA, "model_name": "llama"})], [SUBJECT]) == {}


def test_series_of_nobody_and_of_several_have_no_window() -> None:
    other = LabelledReplicas({"namespace": "prod"}, Pair("prod", "llama", "A100"))

    assert read_windows([replica()], []) == {}
    assert read_windows([replica()], [SUBJECT, other]) == {}


def test_replicas_are_told_apart() -> None:
    second = {**REPLICA, "pod": "llama-7c4d5f9b8d-zzzzz", "model_name": "llama"}

    found = read_windows([replica(), answer(PARTS, second)], [SUBJECT])[PAIR]

    assert len(found) == 2


@pytest.mark.parametrize(
    ("pod", "workload", "shape"),
    [
        ("llama-7c4d5f9b8d-x2x4z", "llama", "7c4d5f9b8d"),
        ("llama-8b-7c4d5f9b8d-x2x4z", "llama-8b", "7c4d5f9b8d"),
        ("llama-0", "", ""),
        ("llama-router-abcde", "", ""),
        ("", "", ""),
    ],
)
def test_workload_and_pod_template_are_in_the_name_of_the_pod(
    pod: str, workload: str, shape: str
) -> None:
    assert find_template(pod) == (workload, shape)


def test_every_part_is_asked_for_once() -> None:
    for parts in (COUNTERS, GAUGES):
        query = build_expression(parts)
        assert all(query.count(f'"part", "{name}", ""') == 1 for name in parts)


def test_labels_of_subjects_are_kept_in_the_answers() -> None:
    query = build_expression(COUNTERS, {"job", "namespace"})

    assert query.count("by (namespace, pod, instance, model_name, job)") == len(COUNTERS)


@pytest.mark.parametrize(
    ("current", "accelerator"),
    [
        (objects.running(2, 1, "H100"), "H100"),
        (objects.running(0, 1), None),
        (None, None),
    ],
)
def test_replicas_belong_to_the_accelerator_that_a_server_runs_on(
    current: objects.Manifest | None, accelerator: str | None
) -> None:
    server = parse(objects.server("S", spec={"currentAlloc": current}))
    assert isinstance(server, Server)

    found = find_labelled_replicas("prod", server, SUBJECT.labels)

    assert (found.pair if found else None) == (accelerator and Pair("prod", "M", accelerator))


ROLES = {
    "prefill": {"accelerator": "L40S", "numReplicas": 2},
    "decode": {"accelerator": "H100", "numReplicas": 1},
}
WORKLOADS = [
    {"accelerator": "H100", "name": "whole"},
    {"accelerator": "L40S", "role": "Prefill", "name": "prefill"},
    {"accelerator": "H100", "role": "Decode", "name": "decode"},
]


@pytest.mark.parametrize(
    ("fields", "actuated", "is_known"),
    [
        ({}, "True", True),
        ({}, "Unknown", False),  # replicas of both roles may be ending
        (
            {"desiredAlloc": {"accelerator": "H100", "numReplicas": 3, "roles": ROLES}},
            "True",
            False,
        ),
        (
            {"currentAlloc": {"accelerator": "H100", "numReplicas": 3, "roles": ROLES}},
            "True",
            False,
        ),
    ],
)
def test_replicas_that_do_half_of_each_request_are_not_calibrated(
    fields: objects.Manifest, actuated: str, is_known: bool
) -> None:
    spec = {"workloads": WORKLOADS, "currentAlloc": objects.running(2, 1, "H100"), **fields}
    conditions = [{**objects.condition("Actuated", "Any"), "status": actuated}]
    server = parse({**objects.server("S", spec=spec), "status": {"conditions": conditions}})
    assert isinstance(server, Server)

    assert (find_labelled_replicas("prod", server, SUBJECT.labels) is not None) == is_known


@pytest.mark.parametrize("name", ["a) or (b", "with space", "", "part", "__name__"])
def test_a_server_with_a_label_that_queries_cannot_have_is_left_out(name: str) -> None:
    server = parse(objects.server("S", spec={"currentAlloc": objects.running(2, 1, "H100")}))
    assert isinstance(server, Server)

    assert find_labelled_replicas("prod", server, {**SUBJECT.labels, name: "x"}) is None


class Answers:
    """Prometheus with two answers; it counts what it is asked, and at which times."""

    def __init__(self, *answers: QueryResult) -> None:
        self.queries: list[str] = []
        self.times: list[float | None] = []
        self._answers = list(answers)

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        self.queries.append(expression)
        self.times.append(at)
        return self._answers.pop(0)

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        raise NotImplementedError(matcher)


async def test_two_queries_tell_about_all_replicas() -> None:
    prometheus = Answers(replica(), STARTED)

    found = await PrometheusWindows(prometheus, lambda: [SUBJECT, OTHER]).read()

    assert [len(of) for of in found.values()] == [1]
    assert prometheus.queries == [build_expression(COUNTERS), build_expression(GAUGES)]


async def test_queries_about_one_server_select_its_replicas() -> None:
    prometheus = Answers(replica(), STARTED)
    one = LabelledReplicas({"namespace": 'a "b" \\', "model_name": "llama"}, SUBJECT.pair)

    await PrometheusWindows(prometheus, lambda: [one]).read()

    selector = r'{namespace="a \"b\" \\", model_name="llama"}'
    names = len(re.findall("vllm:", "".join(prometheus.queries)))
    assert "".join(prometheus.queries).count(selector) == names > 20


async def test_windows_of_the_past_are_asked_for_at_their_end() -> None:
    prometheus = Answers(replica(), STARTED)

    await PrometheusWindows(prometheus, lambda: [SUBJECT]).read(1234.5)

    assert prometheus.times == [1234.5, 1234.5]


async def test_without_subjects_nothing_is_asked() -> None:
    prometheus = Answers()

    assert await PrometheusWindows(prometheus, list).read() == {}
    assert prometheus.queries == []
