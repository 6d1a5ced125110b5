"""Model: how fast a language model runs on each accelerator."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.config import JsonDict

from inferno_operator.resources.allocation import ErrorPercent, Origin
from inferno_operator.resources.base import AGE, READY, Column, Resource, Status
from inferno_operator.resources.schema import (
    BoundedInteger,
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Number,
    Part,
    PositiveInteger,
    Rule,
    ShortText,
    Time,
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


class StepParms(Part):
    """Parameters of the steps of an engine that computes prefills and decode steps together.

    A step takes alpha + kappa * tokens in the cache + delta * prompt tokens; with a prefill, u more
    for each token in the cache.
    """

    alpha: Number
    """Time of a step without load [ms]."""
    kappa: Number
    """Time that each token in the cache adds to a step [ms]."""
    delta: Number
    """Time that each token of a prompt adds to the step that computes it [ms]."""
    u: Number = 0
    """Further time that each token in the cache adds to a step with a prefill [ms]."""
    ahead: Number = 0
    """Steps that are queued before the first one of a request."""
    budget: NonNegativeInteger = 0
    """Most tokens that a step computes; 0 means any number."""
    overhead: Number = 0
    """Tokens in the cache that a request takes beyond its own, such as partly filled blocks."""
    min_in_tokens: NonNegativeInteger = 0
    """Fewest mean input tokens for which the parameters hold; plans warn outside."""
    max_in_tokens: NonNegativeInteger = 0
    """Most mean input tokens for which they hold; 0 means any number."""
    min_out_tokens: NonNegativeInteger = 0
    """Fewest mean output tokens for which they hold."""
    max_out_tokens: NonNegativeInteger = 0
    """Most mean output tokens for which they hold; 0 means any number."""


class PerformanceData(Part):
    """How one replica of the model performs on one accelerator.

    The parameters come in one of four generations: alpha and beta; decodeParms, with
    prefillParms if there is a prefill time; perfParms; or stepParms.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give one of: alpha and beta, decodeParms, perfParms, stepParms",
            "[has(self.alpha) || has(self.beta), has(self.decodeParms), has(self.perfParms),"
            " has(self.stepParms)].exists_one(given, given)",
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
        Rule(
            "a role needs stepParms",
            "!has(self.role) || self.role == 'Both' || has(self.stepParms)",
            lambda data: data.role == "Both" or data.step_parms is not None,
        ),
        Rule(
            "accCount does not change, as replicas run on these cards: make a new Accelerator",
            "self.accCount == oldSelf.accCount || (self.accCount < 2 && oldSelf.accCount < 2)",
            lambda _: True,
        ),
    )

    acc: ShortText
    """The accelerator's spec.name."""
    role: Literal["Both", "Prefill", "Decode"] = "Both"
    """What the replica does: whole requests, prefill or decode."""
    acc_count: BoundedInteger
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
    step_parms: StepParms | None = None
    """Step time; the fourth generation of parameters, the most exact one."""
    max_batch_size: BoundedInteger
    """Largest batch at atTokens tokens per request [requests]; for Prefill, prompts in a step."""
    at_tokens: BoundedInteger
    """Tokens per request for which maxBatchSize holds."""
    max_tokens: PositiveInteger | None = None
    """Most tokens, input and output, that a replica keeps for its requests (KV cache)."""
    max_num_seqs: PositiveInteger | None = None
    """Most requests that a replica serves together."""
    origin: Origin | None = None
    """Where the parameters come from: measured, published by others, or estimated (data sheets)."""
    error_percent: ErrorPercent | None = None
    """Median error of predicted times [percent]."""

    @property
    def generations_given(self) -> int:
        """Number of generations of parameters that are present; one in valid data."""
        first = self.alpha is not None or self.beta is not None
        later = (self.decode_parms, self.perf_parms, self.step_parms)
        return first + sum(parms is not None for parms in later)


class Transfer(Part):
    """Time to hand a prompt over from a prefill replica to a decode replica."""

    per_request_ms: Number = 0
    """Time for each request [ms]."""
    per_token_ms: Number = 0
    """Time for each token of its prompt [ms]."""


BY_PLACE: JsonDict = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["acc", "role"],
}
"""Schema of a list whose items the API server finds again: their rules know what they were."""


class ModelSpec(Part):
    """A model and its performance data."""

    name: NonEmptyText
    """Name that classes and servers refer to."""
    calibrate: Literal["Off", "Report", "Use"] = "Report"
    """What measured parameters do: Off, none are found; Report, the status shows them; Use, they
    replace data.
    """
    typed_error_percent: ErrorPercent = 20
    """Error that plans with calibrate: Use assume for configured times of accelerators without
    measurements [percent].
    """
    data: Annotated[Items[PerformanceData], Field(json_schema_extra=BY_PLACE)] = ()
    """Performance data, one item per accelerator and role."""
    transfer: Transfer | None = None
    """How long it takes to hand a prompt over to a Decode replica; absent means no time."""


class FittedDecode(Part):
    """Time of a decode step; without waits for prefills, if the message does not say otherwise."""

    alpha: Number
    """Time without load [ms]."""
    beta: Number
    """Time that each request of the batch adds [ms]."""
    alpha_error: Number
    """Standard error of alpha [ms]."""
    beta_error: Number
    """Standard error of beta [ms]."""
    residual: Number
    """Median relative distance of the windows from the line."""
    condition: Number | None = None
    """Condition number of the regression; above 20 the line is not determined."""


class FittedPrefill(Part):
    """Time of a prefill."""

    gamma: Number
    """Time without load [ms]."""
    delta: Number
    """Time that each input token of each request adds [ms]."""
    gamma_error: Number
    """Standard error of gamma [ms]."""
    delta_error: Number
    """Standard error of delta [ms]."""
    residual: Number
    """Median relative distance of the windows from the line."""
    condition: Number | None = None
    """Condition number of the regression; above 20 the line is not determined."""


class RejectedWindows(Part):
    """Windows that were not used, for one reason."""

    reason: str
    """CamelCase word for the cause."""
    rows: NonNegativeInteger
    """How many."""


class HardlyKnownParameter(Part):
    """A parameter of stepParms that the windows hardly tell apart from the others.

    Plans for the lengths of the windows are right all the same; for other lengths they may not be.
    """

    name: str
    """The field of stepParms."""
    error: Number
    """Standard error, relative to the parameter."""
    share: Number
    """Largest share of a measured latency that it makes."""


class CalibratedData(Part):
    """What was measured of the replicas on one accelerator, and the parameters that follow."""

    acc: str
    """The accelerator's spec.name."""
    reason: str
    """Calibrated or Extrapolating if the parameters may be used; otherwise why not."""
    message: str = ""
    """Details for a person."""
    time: Time
    """When this was calculated."""
    rows: NonNegativeInteger = 0
    """Windows of replicas that were used."""
    rejected: Items[RejectedWindows] = ()
    """Windows that were not used."""
    least_batch: Number | None = None
    """Smallest batch of the windows used [requests]."""
    most_batch: Number | None = None
    """Largest batch of the windows used [requests]."""
    avg_in_tokens: Number | None = None
    """Mean input tokens of a request that were not in a cache."""
    avg_out_tokens: Number | None = None
    """Mean output tokens of a request."""
    shift: Number | None = None
    """Relative change of the latencies that was noticed; absent if none."""
    decode: FittedDecode | None = None
    """Time of a decode step."""
    prefill: FittedPrefill | None = None
    """Time of a prefill."""
    expected: DecodeParms | None = None
    """Inter-token latency with the waits for prefills of other requests."""
    decode_parms: DecodeParms | None = None
    """Upper confidence (90 %) of the inter-token latency; calibrate: Use takes it."""
    prefill_parms: PrefillParms | None = None
    """Upper confidence (90 %) of the prefill time; calibrate: Use takes it."""
    step_parms: StepParms | None = None
    """Upper confidence (90 %) of the step time, if it fits better; calibrate: Use then takes it."""
    hardly_known: Items[HardlyKnownParameter] = ()
    """Uncertain parameters: standard error above half, and more than 5 % of a latency."""
    perf_parms: PerfParms | None = None
    """Parameters of the third generation, if they fit better."""


class ModelStatus(Status):
    """What the operator says about a Model."""

    calibration: Items[CalibratedData] = ()
    """Parameters from measurements, one item per accelerator; usable ones stay after a refusal."""


class Model(Resource):
    """Model is a language model with its performance on the accelerators it can run on."""

    kind: ClassVar[str] = "Model"
    plural: ClassVar[str] = "models"
    short_names: ClassVar[tuple[str, ...]] = ("mdl",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Model", ".spec.name"),
        READY,
        Column("Calibrated", '.status.conditions[?(@.type=="Calibrated")].reason'),
        AGE,
    )

    spec: ModelSpec
    status: ModelStatus = ModelStatus()
