"""Estimates the parameters of generation 4 of a model that nobody has measured on a card.

A step takes as long as the card needs to read the weights and the cache, or to multiply, if that
takes longer [1]; besides that each layer, each exchange between cards and each request take a time
that no data sheet tells. What is reached of a data sheet, and these times, are `EFFICIENCY`: fitted
to published measurements, see the page "Catalogue" of the documentation.

1. S. Williams, A. Waterman, D. Patterson, *Roofline: An Insightful Visual Performance Model for
   Multicore Architectures*, Communications of the ACM 52 (2009) 65-76.
2. R. Pope et al., *Efficiently Scaling Transformer Inference*, arXiv:2211.05102, 2022: weights,
   cache and exchanges of a decode step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.calibration.architecture import Architecture
from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import StepParameters

MEMORY_SHARE = 0.9
"""Share of the memory of a card that engines use for weights and cache; the default of vLLM."""

BUDGET = 8192
"""Most tokens that a step computes; the default of vLLM for a server on large cards."""

MAX_REQUESTS = 256
"""Most requests that are served together; a default of vLLM."""

REACH = 2.0
"""How far beyond the lengths of requests the parameters hold, as a factor."""

BATCHES = 24
"""Batches whose steps the line is closest to."""

EMBEDDING_BYTES = 2.0
"""Embeddings are not quantized."""

ACTIVATION_BYTES = 2
"""Bytes of each number that cards exchange."""

EXCHANGES = 2
"""Sums over all cards in each layer: after the attention, and after the feed-forward network."""


@dataclass(frozen=True, slots=True)
class CardFigures:
    """What a data sheet says of one card.

    Attributes
    ----------
    memory
        [GB].
    bandwidth
        Of the memory [GB/s].
    flops
        Multiplications and additions in half precision, without sparsity [TFLOP/s].
    fast_flops
        The same with eight bits; None: the card has none.
    link
        Bandwidth to other cards, in one direction [GB/s].
    """

    memory: float
    bandwidth: float
    flops: float
    fast_flops: float | None
    link: float


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a number of weights, of experts, of the cache; `fast`: multiplied as eight bits."""

    weights: float = 2.0
    experts: float = 2.0
    cache: float = 2.0
    fast: bool = False


FOUR_BITS = 4.25 / 8
"""Bytes of a weight of four bits, with a scale of eight bits for each 32 of them."""

PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision(),
    "fp8": Precision(1.0, 1.0, fast=True),
    "int4": Precision(FOUR_BITS, FOUR_BITS),
    "mxfp4": Precision(experts=FOUR_BITS),
}
"""Precisions by their usual names; mxfp4 has four bits for experts, and sixteen for all else."""

CACHE_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0}
"""Bytes of each number in the cache, by the name of its precision."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What engines reach of a data sheet, and what they take besides.

    `bandwidth` and `flops` are shares; `layer`, `exchange` (of a layer, between cards) and
    `request` are times [ms].
    """

    bandwidth: float
    flops: float
    layer: float
    exchange: float
    request: float


EFFICIENCY = Efficiency(0.732, 0.526, 0.039, 0.0472, 0.03)
"""Fitted to published measurements by `python -m tests.published`."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A replica of a model on one or more cards, which share the heads and the experts equally."""

    model: Architecture
    precision: Precision
    card: CardFigures
    cards: int = 1
    efficiency: Efficiency = EFFICIENCY

    @property
    def weights_gb(self) -> float:
        """All weights [GB]."""
        model, each = self.model, self.precision
        layers = model.common * each.weights + model.experts * model.expert * each.experts
        embeddings = model.embedding * (1 if model.tied else 2) * EMBEDDING_BYTES
        return (layers + embeddings) / 1e9

    def max_tokens(self, context: float) -> int:
        """Tokens that fit into the cache beside the weights, of requests of `context` tokens.

        Raises
        ------
        InputError
            The weights do not fit.
        """
        usable = self.card.memory * MEMORY_SHARE
        room = usable - self.weights_gb / self.cards
        if room <= 0:
            least = math.ceil(self.weights_gb / usable)
            raise InputError(
                f"the weights take {self.weights_gb:.0f} GB, and {self.cards * usable:.0f} GB can"
                f" be used: take at least {least} cards, or weights of fewer bits"
            )
        return int(room * 1e9 / (self.cached_bytes(context) / context))

    def step_ms(self, requests: FloatArray, context: float) -> FloatArray:
        """Time of a decode step for batches of requests with `context` tokens each [ms]."""
        cache = requests * (self.cached_bytes(context) + self._state_bytes) / self._bytes_per_ms
        reads = np.array([self._weights_read(n) for n in requests]) / self._bytes_per_ms
        work = 2.0 * self.model.active * requests / self._flops_per_ms
        besides = self.efficiency.request * requests
        return np.asarray(self._besides_ms + np.maximum(reads, work) + cache + besides)

    def prompt_token_ms(self, prompt: float) -> float:
        """Time that each token of a prompt of `prompt` tokens adds to a step [ms]."""
        model = self.model
        attention = model.attended * prompt / 2.0
        work = (2.0 * (model.active - model.embedding) + attention) / self._flops_per_ms
        return work + self._exchange_ms

    def parameters(self, prompt: int, output: int, batch: int) -> StepParameters:
        """Parameters of generation 4: the line that is closest to the steps of all batches.

        Parameters
        ----------
        prompt, output
            Mean tokens of requests.
        batch
            Largest batch.
        """
        context = prompt + output / 2.0
        sizes = np.unique(np.rint(np.geomspace(1, batch, num=BATCHES)))
        times = self.step_ms(sizes, context)
        design = np.stack((np.ones_like(sizes), sizes), axis=1) / times[:, None]
        (alpha, slope), *_ = np.linalg.lstsq(design, np.ones_like(times))
        kappa = self._growing / self._bytes_per_ms
        return StepParameters(
            float(alpha),
            kappa,
            self.prompt_token_ms(prompt),
            budget=BUDGET,
            overhead=max(float(slope) / kappa - context, 0.0),
            min_input_tokens=round(prompt / REACH),
            max_input_tokens=round(prompt * REACH),
            min_output_tokens=round(output / REACH),
            max_output_tokens=round(output * REACH),
        )

    @property
    def _bytes_per_ms(self) -> float:
        return self.card.bandwidth * 1e6 * self.efficiency.bandwidth

    @property
    def _flops_per_ms(self) -> float:
        peak = self.card.flops
        if self.precision.fast and self.card.fast_flops is not None:
            peak = self.card.fast_flops
        return peak * 1e9 * self.efficiency.flops * self.cards

    @property
    def _besides_ms(self) -> float:
        """What a step takes besides reading and multiplying [ms]."""
        model, each = self.model, self.efficiency
        return model.layers * (each.layer + (each.exchange if self.cards > 1 else 0.0))

    @property
    def _exchange_ms(self) -> float:
        """Exchange of the activations of a token between the cards [ms]."""
        sent = 2.0 * (self.cards - 1) / self.cards * self.model.hidden * ACTIVATION_BYTES
        return EXCHANGES * self.model.layers * sent / (self.card.link * 1e6)

    @property
    def _growing(self) -> float:
        """Bytes that a card keeps of each further token; all layers count if all have a window."""
        kept = self.model.attention_layers - self.model.windowed_layers
        return (kept or self.model.layers) * self._layer_bytes

    @property
    def _layer_bytes(self) -> float:
        return self.model.cached(self.cards) * self.precision.cache

    @property
    def _state_bytes(self) -> float:
        """Bytes that a card keeps of a request of any length; a step reads and writes them."""
        return self.model.linear.kept_bytes(self.cards) if self.model.linear else 0.0

    def cached_bytes(self, context: float) -> float:
        """Bytes that a card keeps of a request of `context` tokens."""
        model = self.model
        whole = (model.attention_layers - model.windowed_layers) * context
        part = model.windowed_layers * min(context, model.window)
        return (whole + part) * self._layer_bytes + self._state_bytes

    def _weights_read(self, tokens: float) -> float:
        """Bytes of weights that a card reads for a step that computes some tokens."""
        model, each = self.model, self.precision
        experts = model.experts_met(tokens) * model.expert * each.experts
        layers = model.common * each.weights + experts
        return float(layers + model.embedding * EMBEDDING_BYTES) / self.cards
