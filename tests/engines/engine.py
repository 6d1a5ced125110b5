"""The parameters of a simulated engine, in the terms of the optimizer's sizing."""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine with continuous batching on one accelerator.

    Attributes
    ----------
    alpha, beta
        A decode step of n requests takes `alpha + beta n` [ms].
    gamma, delta
        The prefill of h tokens takes `gamma + delta h n`, with n requests in the batch, its own
        included [ms]. Nothing is decoded meanwhile.
    max_batch_size
        Requests in the batch at most (`--max-num-seqs`).
    kv_tokens
        Tokens that fit into the KV cache.
    max_model_length
        Tokens of one request at most, input and output.
    max_queued
        Requests that wait at most; more are rejected. None: no limit.
    """

    alpha: float
    beta: float
    gamma: float
    delta: float
    max_batch_size: int = 256
    kv_tokens: int = 1_000_000
    max_model_length: int = 32_768
    max_queued: int | None = None

    def __post_init__(self) -> None:
        if self.kv_tokens < self.max_model_length:
            raise ValueError("kv_tokens must hold at least one request of max_model_length")

    @property
    def tokens_per_second(self) -> float:
        """Tokens that full batches make while no prompt is computed."""
        return self.max_batch_size / self.decode_s(self.max_batch_size)

    def decode_s(self, requests: int) -> float:
        """Duration of a decode step [s]."""
        return (self.alpha + self.beta * requests) / 1000

    def prefill_s(self, tokens: int, requests: int) -> float:
        """Duration of a prefill [s]."""
        return (self.gamma + self.delta * tokens * requests) / 1000

    def slowed(self, factor: float) -> Self:
        """The same engine, each step `factor` times as long."""
        return replace(
            self,
            alpha=self.alpha * factor,
            beta=self.beta * factor,
            gamma=self.gamma * factor,
            delta=self.delta * factor,
        )
