"""`llm-d-inference-sim`, a simulator of vLLM by others: it answers requests and has metrics.

Its metrics deviate from those of vLLM 0.33: completions have the label `finish_reason`, no series
has the label `engine`, and the time to first token does not include the time in the queue.
"""

import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from tests.controlplane.ports import HOST, on_free_port
from tests.controlplane.processes import Processes
from tests.engines.prometheus import Target, wait_until_ready


@dataclass(frozen=True, slots=True)
class SimulatorSettings:
    """How fast the simulator is.

    Attributes
    ----------
    model_name
        Name of the model that it pretends to serve.
    inter_token_ms
        Time between two tokens of a request that is alone [ms].
    prefill_ms, prefill_ms_per_token
        Time to the first token, without the queue: constant, and for each input token [ms].
    factor_under_load
        With a full batch everything takes so many times as long; linear in between.
    max_batch_size
        Requests in the batch at most.
    max_queued
        Requests that wait at most.
    """

    model_name: str
    inter_token_ms: float
    prefill_ms: float
    prefill_ms_per_token: float = 0.0
    factor_under_load: float = 1.0
    max_batch_size: int = 64
    max_queued: int = 10_000

    @property
    def options(self) -> list[str]:
        return [
            f"--model={self.model_name}",
            f"--inter-token-latency={self.inter_token_ms}ms",
            "--latency-calculator=per-token",
            f"--prefill-overhead={self.prefill_ms}ms",
            f"--prefill-time-per-token={self.prefill_ms_per_token}ms",
            f"--time-factor-under-load={self.factor_under_load}",
            f"--max-num-seqs={self.max_batch_size}",
            f"--max-waiting-queue-length={self.max_queued}",
            "--max-model-len=32768",
            "--force-dummy-tokenizer",
        ]


class InferenceSim(AbstractContextManager["InferenceSim"]):
    """One replica of the simulator; a context manager within which it runs.

    Parameters
    ----------
    processes
        Runs the program, and has its log.
    program
        Path of `llm-d-inference-sim`.
    name
        Name among the processes, and of its pod.
    settings
        How fast it is.
    """

    def __init__(
        self, processes: Processes, program: Path, name: str, settings: SimulatorSettings
    ) -> None:
        self.name = name
        self._processes = processes
        self._command: Sequence[str | Path] = [program, *settings.options]

    def __enter__(self) -> Self:
        self._port = on_free_port(self.name, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop(self.name, signal.SIGKILL)

    @property
    def url(self) -> str:
        """Base of its API, without a slash at the end."""
        return f"http://{HOST}:{self._port}"

    def target(self, **labels: str) -> Target:
        """What Prometheus has to scrape; `pod` is added to the labels."""
        return Target(f"{HOST}:{self._port}", "/metrics", {**labels, "pod": self.name})

    def _start(self, port: int) -> None:
        self._processes.start(self.name, [*self._command, f"--port={port}"])
        with httpx.Client(base_url=f"http://{HOST}:{port}") as client:
            wait_until_ready(self._processes, self.name, client, "/ready")
