"""Pages of metrics as engines expose them at a time, from what they serve.

The names, the labels, and what a page has before the first request are facts of the sources of each
engine, at the release that is named here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

Labels = Mapping[str, str]

Row = tuple[str, Labels, float]
"""A series: its name, its labels and its value."""

BEFORE_S = 1000
"""How long an engine has served when the page begins [s]."""

BOUNDS = ("0.001", "0.01", "0.1", "1", "10", "100", "1000", "10000", "+Inf")
ITL_S, TTFT_S, WAIT_S = 0.01, 0.03, 0.005


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine serves: requests/s that it completes, and those that run and wait.

    `growth` is how many more wait each second: they arrive, and are not completed.
    """

    rate: float = 5.0
    running: float = 5.0
    waiting: float = 0.0
    growth: float = 0.0
    inputs: int = 500
    outputs: int = 200

    def waiting_at(self, time: float) -> float:
        """How many requests wait."""
        return self.waiting + self.growth * time

    def completed_at(self, time: float) -> float:
        """How many requests ended."""
        return self.rate * (time + BEFORE_S)

    def arrived_at(self, time: float) -> float:
        """How many requests arrived."""
        return self.completed_at(time) + self.running + self.waiting_at(time)


@dataclass(frozen=True, slots=True)
class EnginePage:
    """How an engine of a release names what it tells.

    Attributes
    ----------
    source, release
        The source in the catalogue, and the newest release whose names these are.
    labels
        Of all series.
    running, waiting, usage
        Gauges; "" if there is none.
    completed, arrived
        Counters of requests that ended or arrived, and the labels that they have besides; each of
        several arrived in equal parts.
    tokens
        Histograms of the lengths of requests; or counters, if their names end with `_total`.
    times
        Histograms of the inter-token latency, the time to the first token and in the queue.
    kinds
        The kinds of requests that are counted apart: their shares and labels.
    gauges_besides
        Labels under which gauges stand once more.
    alive
        Series that are there before the first request.
    counts_from_start
        Whether counters and histograms are there before the first request.
    """

    source: str
    release: str
    labels: Labels
    running: str
    waiting: str
    usage: str = ""
    completed: tuple[str, Labels] | None = None
    arrived: tuple[str, *tuple[Labels, ...]] | None = None
    tokens: tuple[str, str] | None = None
    times: tuple[str, ...] = ()
    kinds: tuple[tuple[float, Labels], ...] = ((1.0, {}),)
    gauges_besides: tuple[Labels, ...] = ()
    alive: Mapping[str, Labels] = field(default_factory=dict)
    counts_from_start: bool = False

    def rows(self, time: float, served: Served, **labels: str) -> Iterator[Row]:
        """The series of one engine, with labels of it besides."""
        own = {**self.labels, **labels}
        for name, more in self.alive.items():
            yield name, {**labels, **more}, 1.0
        is_used = served.rate > 0
        if is_used or self.running not in _ON_FIRST_REQUEST:
            for more in ({}, *self.gauges_besides):
                yield self.running, {**own, **more}, served.running
                yield self.waiting, {**own, **more}, served.waiting_at(time)
        if self.usage:
            yield self.usage, own, 0.2
        if not is_used and not self.counts_from_start:
            return
        if self.arrived:
            name, *parts = self.arrived
            arrived = served.arrived_at(time) / len(parts)
            yield from ((name, {**own, **more}, arrived) for more in parts)
        for share, more in self.kinds:
            yield from self._completed(served, share * served.completed_at(time), {**own, **more})

    def _completed(self, served: Served, completed: float, own: Labels) -> Iterator[Row]:
        """What the requests of a kind left when they ended."""
        if self.completed:
            name, more = self.completed
            yield name, {**own, **more}, completed
        for name, mean in zip(self.tokens or (), (served.inputs, served.outputs), strict=False):
            if name.endswith("_total"):
                yield name, own, completed * mean
            else:
                yield from _histogram(name, own, completed, mean)
        for name, mean_s in zip(self.times, (ITL_S, TTFT_S, WAIT_S), strict=False):
            yield from _histogram(name, own, completed, mean_s)


def _histogram(name: str, labels: Labels, count: float, mean: float) -> Iterator[Row]:
    for bound in BOUNDS:
        yield f"{name}_bucket", {**labels, "le": bound}, count if float(bound) >= mean else 0.0
    yield f"{name}_count", labels, count
    yield f"{name}_sum", labels, count * mean


def _of_vllm(source: str, release: str, prefix: str, **fields: object) -> EnginePage:
    return EnginePage(
        source,
        release,
        {"model_name": "llama"},
        f"{prefix}num_requests_running",
        f"{prefix}num_requests_waiting",
        f"{prefix}kv_cache_usage_perc",
        (f"{prefix}request_success_total", {"finished_reason": "stop"}),
        tokens=(f"{prefix}request_prompt_tokens", f"{prefix}request_generation_tokens"),
        times=(
            f"{prefix}inter_token_latency_seconds",
            f"{prefix}time_to_first_token_seconds",
            f"{prefix}request_queue_time_seconds",
        ),
        **fields,  # type: ignore[arg-type]  # those of the class
    )


_ON_FIRST_REQUEST = frozenset(
    {"ray_vllm_num_requests_running", "dynamo_frontend_inflight_requests"}
)
"""Gauges that are there from the first request on."""

VLLM = _of_vllm("vLLM", "0.31", "vllm:", counts_from_start=True)
RAY = _of_vllm(
    "RayServeLLM", "vLLM 0.31 in Ray", "ray_vllm_", alive={"ray_vllm_cache_config_info": {}}
)
NIM = _of_vllm("NIM", "1.14", "", counts_from_start=True)
SGLANG = EnginePage(
    "SGLang",
    "0.5.16",
    {"model_name": "llama", "engine_type": "unified"},
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    ("sglang:num_requests_total", {}),
    tokens=("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
    times=(
        "sglang:inter_token_latency_seconds",
        "sglang:time_to_first_token_seconds",
        "sglang:queue_time_seconds",
    ),
)
SGLANG_BY_PRIORITY = replace(
    SGLANG,
    kinds=(
        (0.5, {"is_streaming": "true", "priority": "1"}),
        (0.3, {"is_streaming": "false", "priority": "1"}),
        (0.2, {"is_streaming": "true", "priority": "5"}),
    ),
    gauges_besides=({"priority": "1"},),
)
SGLANG_BY_HTTP = replace(
    SGLANG,
    labels={},
    arrived=(
        "sglang:http_requests_total",
        {"endpoint": "/v1/chat/completions", "method": "POST"},
        {"endpoint": "/v1/responses", "method": "POST"},
        {"endpoint": "/v1/messages", "method": "POST"},
    ),
)
TGI = EnginePage(
    "TGI",
    "3.3",
    {},
    "tgi_batch_current_size",
    "tgi_queue_size",
    arrived=("tgi_request_count", {}),
    tokens=("tgi_request_input_length", "tgi_request_generated_tokens"),
    times=("tgi_request_mean_time_per_token_duration",),
)
TRTLLM = EnginePage(
    "TensorRT-LLM",
    "1.3",
    {"model_name": "llama", "engine_type": "trtllm"},
    "trtllm_num_requests_running",
    "trtllm_num_requests_waiting",
    "trtllm_kv_cache_utilization",
    ("trtllm_request_success_total", {"finished_reason": "stop"}),
    tokens=("trtllm_prompt_tokens_total", "trtllm_generation_tokens_total"),
    times=(
        "trtllm_time_per_output_token_seconds",
        "trtllm_time_to_first_token_seconds",
        "trtllm_request_queue_time_seconds",
    ),
)
DYNAMO = EnginePage(
    "Dynamo",
    "1.6",
    {"model": "llama"},
    "dynamo_frontend_inflight_requests",
    "dynamo_frontend_queued_requests",
    arrived=(
        "dynamo_frontend_requests_started_total",
        {"endpoint": "chat_completions", "request_type": "stream"},
    ),
    tokens=("dynamo_frontend_input_sequence_tokens", "dynamo_frontend_output_sequence_tokens"),
    times=(
        "dynamo_frontend_inter_token_latency_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
    ),
    alive={"dynamo_frontend_model_workers": {"model": "llama"}},
)
