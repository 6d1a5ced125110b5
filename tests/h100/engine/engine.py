"""Continuous batching of transformers, with random weights, in a process of its own."""
# ruff: noqa: ANN401 - transformers has no types

import faulthandler
import gc
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import (
    continuous_api,
    initialization,
    input_outputs,
)
from transformers.integrations import flash_paged

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-4b": {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "llama3-3b": {
        "model_type": "llama",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
    },
    "tiny": {
        "model_type": "qwen3",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 1024,
    },
}
"""Shapes of models, as their configuration files have them."""


LONGEST = 4096
"""Most tokens of a request, prompt and answer."""

QUERY_STEP, CACHE_STEP = 128, 32768
"""What the tokens of a step, and those that it reads of the cache, are padded to on a GPU."""

EVENTS = 16
"""Steps after which the time that the GPU took is read; it is known two steps later."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What is served, and how.

    Attributes
    ----------
    shape
        Which of `SHAPES`.
    requests
        Largest batch.
    budget
        Most tokens of a step.
    blocks
        Blocks of 256 tokens in the cache.
    steps
        File for the times of the steps; "": none.
    """

    shape: str
    requests: int
    budget: int = 2048
    blocks: int = 640
    steps: str = ""

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return int(SHAPES[self.shape]["vocab_size"])


class PipeRouter(continuous_api.OutputRouter):  # type: ignore[misc]
    """Sends what a step has made as one message: the number of each request, and how it stands.

    True is "was the last token", False "there are more"; a text is an error.
    """

    def __init__(self, link: Connection) -> None:
        super().__init__()
        self._link = link

    def deliver(self, output: Any) -> None:
        """Send one."""
        self.deliver_batch([output])

    def deliver_batch(self, outputs: list[Any]) -> None:
        """Send those of a step."""
        self._link.send([(int(o.request_id), o.error or o.is_finished()) for o in outputs])


def run(link: Connection, settings: EngineSettings) -> None:
    """Serve what comes over a pipe, until it is None: (number, prompt, tokens), or (number,).

    The latter cancels a request. The first message that is sent says that the engine is ready.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the other process says when it is over
    faulthandler.register(signal.SIGUSR1)
    manager = _manager(settings)
    manager.output_router = PipeRouter(link)
    manager.warmup()
    _capture_all(manager)
    steps, gpu = _recorded(manager.batch_processor), _timed(manager.batch_processor)
    gc.freeze()  # collections stop the steps, and are long with all of this
    manager.start()
    link.send([])
    while (message := link.recv()) is not None:
        number, *rest = message
        if not rest:
            _end(manager.batch_processor.scheduler, str(number))
            continue
        prompt, tokens = rest
        manager.add_request(prompt, str(number), max_new_tokens=tokens, streaming=True)
    if settings.steps:
        np.savez_compressed(settings.steps, steps=np.array(steps), gpu=np.array(gpu))
    manager.stop(block=False, hard_stop=True)


def _end(scheduler: Any, number: str) -> None:
    """Let a request end with its next token.

    `cancel_request` frees blocks that the step in flight still writes.
    """
    states = (scheduler.active_requests.get(number), scheduler.waiting_requests.get(number))
    for state in filter(None, states):
        state._new_tokens_limit = state.generated_len() + 1  # noqa: SLF001 - there is no other way


def _manager(settings: EngineSettings) -> Any:
    gpu = torch.cuda.is_available()
    torch.manual_seed(0)
    config = AutoConfig.for_model(**SHAPES[settings.shape], max_position_embeddings=40960)
    with torch.device("cuda" if gpu else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    _use_attention(model, gpu=gpu)
    batching = ContinuousBatchingConfig(
        num_blocks=settings.blocks,
        max_batch_tokens=settings.budget,
        max_requests_per_batch=settings.requests,
        q_padding_interval_size=QUERY_STEP if gpu else 0,
        kv_padding_interval_size=CACHE_STEP if gpu else 0,
    )
    model.generation_config.do_sample = False
    model.generation_config.eos_token_id = -1
    return model.init_continuous_batching(continuous_batching_config=batching)


def _use_attention(model: Any, *, gpu: bool) -> None:
    """Give transformers our kernels in place of the package flash-attn, on a GPU."""
    if not gpu:
        model.set_attn_implementation("paged|sdpa")
        return
    from tests.h100.engine import kernels  # noqa: PLC0415 - needs a GPU

    def functions(*_: object, **__: object) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache

    initialization.lazy_import_paged_flash_attention = functions
    flash_paged.lazy_import_paged_flash_attention = functions
    model.config._attn_implementation_internal = "paged|flash_attention_2"  # noqa: SLF001


def _capture_all(manager: Any) -> None:
    """Make the CUDA graphs of all sizes of steps, so that none is made while requests are served.

    A graph has the padded sizes of a step, and the longest request in it, padded to a power of 2;
    that is set to `LONGEST`, so that there are fewer graphs.
    """
    processor = manager.batch_processor
    runner, cache = processor.model_runner, processor.cache
    if not runner.pad_inputs:
        return
    input_outputs.pad_to_pow2 = lambda *_: LONGEST
    began, pairs = time.perf_counter(), processor.inputs_and_outputs
    sizes = [
        (queries, cached)
        for queries in range(cache.max_batch_tokens, 0, -QUERY_STEP)
        for cached in range(1, cache.num_pages - queries, CACHE_STEP)
    ]
    with torch.no_grad():
        for _ in range(2):
            for queries, cached in sizes:
                runner.run_one_warmup(manager.model, num_q_tokens=queries, max_kv_read=cached)
            pairs.swap_io_pairs()
    print(f"{2 * len(sizes)} graphs in {time.perf_counter() - began:.1f} s", flush=True)
    capture = runner._capture_graph  # noqa: SLF001 - to see whether one is missing

    def reported(*given: Any) -> None:
        print("a graph is missing", flush=True)
        capture(*given)

    runner._capture_graph = reported  # noqa: SLF001


def _recorded(processor: Any) -> deque[tuple[float, int, int, int, int]]:
    """When each step was scheduled [s], with its requests, new tokens, and tokens in the cache.

    The time is that of the monotonic clock, which other processes have as well. The last number is
    that of all prompt tokens so far that need not be computed.
    """
    steps: deque[tuple[float, int, int, int, int]] = deque(maxlen=500_000)
    scheduler, cache = processor.scheduler, processor.cache
    schedule = scheduler.schedule_batch

    def recorded(token_budget: int, cache_budget: int) -> Any:
        found = schedule(token_budget, cache_budget)
        if found[0]:
            known = cache._total_prefix_length  # noqa: SLF001 - there is no other way
            steps.append((time.perf_counter(), len(found[0]), found[2], found[3], known))
        return found

    scheduler.schedule_batch = recorded
    return steps


def _timed(processor: Any) -> deque[float]:
    """How long the GPU computes each step [ms]; of the last `EVENTS` it is not known."""
    times: deque[float] = deque(maxlen=500_000)
    runner = processor.model_runner
    compute, stream = runner.compute_batch, runner.inputs_and_outputs.compute_stream
    if stream is None:
        return times
    events = deque(
        tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(EVENTS)
    )
    number = count()

    def timed(*given: Any) -> None:
        began, ended = events[0]
        events.rotate(-1)
        if next(number) >= EVENTS:
            times.append(began.elapsed_time(ended))  # of a step that was over long ago
        began.record(stream)
        compute(*given)
        ended.record(stream)

    runner.compute_batch = timed
    return times
