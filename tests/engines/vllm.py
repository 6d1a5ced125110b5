"""The metrics of vLLM that tell its load and its latencies.

Names, labels and buckets are those of vLLM 0.33.0; it has more of them.
"""

from dataclasses import replace

from tests.engines.exposition import (
    Completions,
    Counter,
    Dialect,
    Distribution,
    Gauge,
    kv_usage,
    labels_with,
)
from tests.engines.replica import Bounds

_TIMES = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_BOUNDS = Bounds(
    inter_token=(
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0),
    ),
    first_token=(
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ),
    queue=_TIMES,
    prefill=_TIMES,
    tokens=tuple(m * 10**exponent for exponent in range(5) for m in (1, 2, 5))[:-1],
    iteration=tuple(2**exponent for exponent in (0, *range(3, 15))),
)

_ENGINE = labels_with(engine="0")

_FAMILIES = (
    Gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        lambda _: {},
        lambda replica: replica.started,
    ),
    Gauge(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        _ENGINE,
        lambda replica: replica.running,
    ),
    Gauge(
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed.",
        _ENGINE,
        lambda replica: replica.waiting,
    ),
    Gauge(
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        _ENGINE,
        kv_usage,
    ),
    Counter(
        "vllm:num_preemptions",
        "Cumulative number of preemption from the engine.",
        _ENGINE,
        lambda replica: replica.totals.preemptions,
    ),
    Counter(
        "vllm:prompt_tokens",
        "Number of prefill tokens processed.",
        _ENGINE,
        lambda replica: replica.totals.prompt_tokens,
    ),
    Counter(
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        _ENGINE,
        lambda replica: replica.totals.generation_tokens,
    ),
    Completions(
        "vllm:request_success",
        "Count of successfully processed requests.",
        _ENGINE,
        label="finished_reason",
    ),
    Counter(
        "vllm:admission_rejections",
        "Number of requests rejected by the limits of the queue.",
        labels_with(engine="0", reason="max_num_queued_reqs"),
        lambda replica: replica.totals.rejections,
    ),
    Distribution(
        "vllm:iteration_tokens_total",
        "Histogram of number of tokens per engine_step.",
        _ENGINE,
        lambda replica: replica.totals.iteration,
    ),
    Distribution(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        _ENGINE,
        lambda replica: replica.totals.first_token,
    ),
    Distribution(
        "vllm:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        _ENGINE,
        lambda replica: replica.totals.inter_token,
    ),
    Distribution(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        _ENGINE,
        lambda replica: replica.totals.queue,
    ),
    Distribution(
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        _ENGINE,
        lambda replica: replica.totals.prefill,
    ),
    Distribution(
        "vllm:request_prompt_tokens",
        "Number of prefill tokens processed.",
        _ENGINE,
        lambda replica: replica.totals.request_input,
    ),
    Distribution(
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        _ENGINE,
        lambda replica: replica.totals.request_output,
    ),
    Distribution(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        _ENGINE,
        lambda replica: replica.totals.computed_input,
    ),
)

VLLM = Dialect(_FAMILIES, _BOUNDS)
"""vLLM 0.33."""

_OLD_NAMES = {
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
}
_NOT_IN_OLD = {"vllm:admission_rejections", "vllm:request_prefill_kv_computed_tokens"}

VLLM_OLD = replace(
    VLLM,
    families=tuple(
        replace(family, name=_OLD_NAMES.get(family.name, family.name))
        for family in _FAMILIES
        if family.name not in _NOT_IN_OLD
    ),
)
"""vLLM before some of its metrics were renamed and others were added."""
