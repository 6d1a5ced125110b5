"""Model: how fast a language model runs on each accelerator."""

from typing import ClassVar

from inferno_operator.resources.base import AGE, READY, Column, Resource
from inferno_operator.resources.schema import (
    Integer,
    Items,
    NonEmptyText,
    Number,
    Part,
    PositiveInteger,
    Rule,
)


class DecodeParms(Part):
    """Parameters of the decode time, alpha + beta * batch size."""

    alpha: Number
    """Decode time without load [ms]."""
    beta: Number
    """Decode time that each request of the batch adds [ms]."""


class PrefillParms(Part):
    """Parameters of the prefill time, gamma + delta * input tokens * batch size."""

    gamma: Number
    """Prefill time without load [ms]."""
    delta: Number
    """Prefill time that each input token of each request adds [ms]."""


class PerfParms(Part):
    """Parameters of the iteration time, alpha + beta * tokens computed + gamma * tokens read."""

    alpha: Number
    """Time of an iteration without load [ms]."""
    beta: Number
    """Time that each token computed adds [ms]."""
    gamma: Number
    """Time that each token read from the cache adds [ms]."""


class PerformanceData(Part):
    """How one replica of the model performs on one accelerator.

    The parameters come in one of three generations: alpha and beta; decodeParms, with
    prefillParms if there is a prefill time; or perfParms.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give one of: alpha and beta, decodeParms, perfParms",
            "[has(self.alpha) || has(self.beta), has(self.decodeParms), has(self.perfParms)]"
            ".exists_one(given, given)",
            lambda data: data.generations_given == 1,
        ),
        Rule(
            "alpha and beta go together",
            "has(self.alpha) == has(self.beta)",
            lambda data: (data.alpha is None) == (data.beta is None),
        ),
        Rule(
            "prefillParms needs decodeParms",
            "!has(self.prefillParms) || has(self.decodeParms)",
            lambda data: data.prefill_parms is None or data.decode_parms is not None,
        ),
    )

    acc: str
    """The accelerator's spec.name."""
    acc_count: Integer
    """Accelerators that one replica needs; 0 or less counts as 1."""
    alpha: Number | None = None
    """Inter-token latency without load [ms]; at batch size n it is alpha + beta * n."""
    beta: Number | None = None
    """Inter-token latency that each request of the batch adds [ms]."""
    decode_parms: DecodeParms | None = None
    """Decode time; the second generation of parameters."""
    prefill_parms: PrefillParms | None = None
    """Prefill time; absent means none."""
    perf_parms: PerfParms | None = None
    """Iteration time; the third generation of parameters."""
    max_batch_size: Integer
    """Largest batch at atTokens tokens per request [requests]."""
    at_tokens: Integer
    """Tokens per request for which maxBatchSize holds."""
    max_tokens: PositiveInteger | None = None
    """Most tokens, input and output, that a replica keeps for its requests (KV cache)."""
    max_num_seqs: PositiveInteger | None = None
    """Most requests that a replica serves together."""

    @property
    def generations_given(self) -> int:
        """Number of generations of parameters that are present; one in valid data."""
        first = self.alpha is not None or self.beta is not None
        return [first, self.decode_parms is not None, self.perf_parms is not None].count(True)


class ModelSpec(Part):
    """A model and its performance data."""

    name: NonEmptyText
    """Name that classes and servers refer to."""
    data: Items[PerformanceData] = ()
    """Performance data, one item per accelerator."""


class Model(Resource):
    """Model is a language model with its performance on the accelerators it can run on."""

    kind: ClassVar[str] = "Model"
    plural: ClassVar[str] = "models"
    short_names: ClassVar[tuple[str, ...]] = ("mdl",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Model", ".spec.name"),
        READY,
        AGE,
    )

    spec: ModelSpec
