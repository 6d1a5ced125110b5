"""The metrics of SGLang that tell its load and its latencies.

Names, labels and buckets are those of SGLang 0.5.23; it has more of them.
"""

from tests.engines.exposition import Counter, Dialect, Distribution, Gauge, kv_usage, labels_with
from tests.engines.replica import Bounds, Replica

_TOKENS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000),
    *(12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000),
    *(100000, 200000, 300000, 400000, 600000, 800000, 1000000, 1100000),
)
_FIRST_TOKEN = (*(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400),)
_BOUNDS = Bounds(
    inter_token=(
        *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060),
        *(0.080, 0.100, 0.200, 0.400, 0.600, 0.800, 1, 2, 4, 6, 8),
    ),
    first_token=_FIRST_TOKEN,
    queue=(
        *(0, 0.001, 0.005, 0.010, 0.050, 0.100, 0.200, 0.500, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40),
        *(50, 60, 70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600),
        *(1800, 2000, 2500, 3000),
    ),
    prefill=tuple(0.001 * 1.62**exponent for exponent in range(30)),
    tokens=_TOKENS,
    iteration=(),  # not told
)


def _finished(replica: Replica) -> int:
    return sum(replica.totals.completions.values())


def _http(_model_name: str) -> dict[str, str]:
    """Those that the HTTP server counts, which does not know the model."""
    return {"endpoint": "/v1/chat/completions", "method": "POST"}


_SCHEDULER_RANK = {"engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}
_SCHEDULER = labels_with(**_SCHEDULER_RANK)
_TOKENIZER = labels_with()
_STREAMING = labels_with(is_streaming="true")

_FAMILIES = (
    Gauge(
        "sglang:num_running_reqs",
        "The number of running requests.",
        _SCHEDULER,
        lambda replica: replica.running,
    ),
    Gauge(
        "sglang:num_queue_reqs",
        "The number of requests in the waiting queue.",
        _SCHEDULER,
        lambda replica: replica.waiting,
    ),
    Gauge(
        "sglang:token_usage",
        "The token usage.",
        _SCHEDULER,
        kv_usage,
    ),
    Gauge(
        "sglang:kv_used_tokens",
        "Number of actively used token slots in the KV cache pool.",
        _SCHEDULER,
        lambda replica: replica.kv_tokens,
    ),
    Gauge(
        "sglang:kv_available_tokens",
        "Number of free token slots in the KV cache pool.",
        _SCHEDULER,
        lambda replica: replica.engine.kv_tokens - replica.kv_tokens,
    ),
    Counter(
        "sglang:num_retracted_requests",
        "Total number of retracted requests.",
        _SCHEDULER,
        lambda replica: replica.totals.preemptions,
    ),
    Counter(
        "sglang:http_requests",
        "Total number of HTTP requests by endpoint and method.",
        _http,
        lambda replica: replica.totals.arrivals,
    ),
    Gauge(
        "sglang:http_requests_active",
        "Number of currently active HTTP requests.",
        _http,
        lambda replica: replica.running + replica.waiting,
    ),
    Counter(
        "sglang:num_requests",
        "Number of requests processed.",
        _STREAMING,
        _finished,
    ),
    Counter(
        "sglang:prompt_tokens",
        "Number of prefill tokens processed.",
        _STREAMING,
        lambda replica: replica.totals.request_input.sum,
    ),
    Counter(
        "sglang:generation_tokens",
        "Number of generation tokens processed.",
        _STREAMING,
        lambda replica: replica.totals.request_output.sum,
    ),
    Distribution(
        "sglang:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        _STREAMING,
        lambda replica: replica.totals.first_token,
    ),
    Distribution(
        "sglang:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        _TOKENIZER,
        lambda replica: replica.totals.inter_token,
    ),
    Distribution(
        "sglang:queue_time_seconds",
        "Histogram of queueing time in seconds.",
        _SCHEDULER,
        lambda replica: replica.totals.queue,
    ),
    Distribution(
        "sglang:per_stage_req_latency_seconds",
        "The latency of each stage of requests.",
        labels_with(**_SCHEDULER_RANK, stage="prefill_forward"),
        lambda replica: replica.totals.prefill,
    ),
    Distribution(
        "sglang:prompt_tokens_histogram",
        "Histogram of prompt token length.",
        _TOKENIZER,
        lambda replica: replica.totals.request_input,
    ),
    Distribution(
        "sglang:uncached_prompt_tokens_histogram",
        "Histogram of uncached (compute) prompt token length.",
        _TOKENIZER,
        lambda replica: replica.totals.computed_input,
    ),
    Distribution(
        "sglang:generation_tokens_histogram",
        "Histogram of generation token length.",
        _TOKENIZER,
        lambda replica: replica.totals.request_output,
    ),
)

SGLANG = Dialect(_FAMILIES, _BOUNDS)
"""SGLang 0.5, with its optional histograms of tokens; it counts tokens when a request ends."""
