"""Measurement: where the load and the latencies of a server are measured, and what they are."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from inferno_operator.resources.allocation import Load
from inferno_operator.resources.schema import (
    ATOMIC,
    Fraction,
    Items,
    NonNegativeInteger,
    Number,
    Part,
    PositiveInteger,
    Rule,
    Time,
    without_fraction,
)

CUSTOM = "Custom"
"""The source that has no queries but those of the Server."""

Quality = Literal["Fresh", "Idle", "Partial", "Stale", "Missing", "Refused"]

USABLE: frozenset[Quality] = frozenset({"Fresh", "Idle", "Partial"})
"""Qualities whose numbers are new."""

SHORT_SECONDS, LONG_SECONDS = 60, 300
"""Defaults of the windows of rates [s]."""

SHORTEST_WINDOW, LONGEST_WINDOW = 10, 3600
"""Bounds of a window of rates [s]."""

CATCH_UP_SECONDS = 60
"""Default of the time in which a backlog is to be served [s]."""

MAX_LABELS = 16
"""Most labels that select the series of one server."""

MAX_LABEL = 256
"""Most characters of the name and of the value of a label: all Servers share their queries."""

MAX_QUERY = 4096
"""Most characters of a query of a Server."""

WindowSeconds = Annotated[
    int, Field(ge=SHORTEST_WINDOW, le=LONGEST_WINDOW), BeforeValidator(without_fraction)
]
SourceName = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
LabelValue = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
PromQL = Annotated[str, Field(min_length=1, max_length=MAX_QUERY)]


_SHORT_NAMES = Rule(
    f"names of labels have at most {MAX_LABEL} characters",
    f"!has(self.labels) || self.labels.all(name, size(name) <= {MAX_LABEL})",
    lambda part: all(len(name) <= MAX_LABEL for name in part.labels),
)


class Queries(Part):
    """PromQL by quantity; each expression returns one number."""

    arrival_rate: PromQL | None = None
    """Requests that arrive [requests/s]."""
    avg_in_tokens: PromQL | None = None
    """Mean input tokens per request."""
    avg_out_tokens: PromQL | None = None
    """Mean output tokens per request."""
    itl_average: PromQL | None = None
    """Mean inter-token latency [s]."""
    ttft_average: PromQL | None = None
    """Mean time to first token [s]."""
    wait_average: PromQL | None = None
    """Mean waiting time [s]."""
    running: PromQL | None = None
    """Requests that are being served."""
    waiting: PromQL | None = None
    """Requests that wait."""
    kv_cache_usage: PromQL | None = None
    """Share of the KV cache that is used [0..1]."""


class DemandSource(Part):
    """Where Prometheus has the requests for a server, also while it has no replica."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "name at least one label of the series of the requests for this server",
            f"self.source == '{CUSTOM}' || (has(self.labels) && size(self.labels) > 0)",
            lambda demand: demand.source == CUSTOM or bool(demand.labels),
        ),
        _SHORT_NAMES,
        Rule(
            f"source {CUSTOM} needs query, and no other source has one",
            f"(self.source == '{CUSTOM}') == has(self.query)",
            lambda demand: (demand.source == CUSTOM) == (demand.query is not None),
        ),
    )

    source: SourceName
    """EPP, KthenaRouter, Dynamo, Envoy, Istio, NGINX, Custom or a source of yours."""
    labels: Annotated[dict[str, LabelValue], Field(max_length=MAX_LABELS)] = Field(
        default_factory=dict
    )
    """Labels that all series of the requests for this server have: inference_pool, ingress, ..."""
    query: PromQL | None = None
    """PromQL of source Custom; above 0 while requests wait, or have arrived in five minutes."""


class MeasuringWindows(Part):
    """Over which times the rates of a server are measured."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "longSeconds must not be less than shortSeconds",
            "self.shortSeconds <= self.longSeconds",
            lambda windows: windows.short_seconds <= windows.long_seconds,
        ),
    )

    short_seconds: WindowSeconds = SHORT_SECONDS
    """Time in which an increase is seen; at least four scrape intervals [s]."""
    long_seconds: WindowSeconds = LONG_SECONDS
    """Time over which rate and lengths are averaged [s]."""


class Measure(Part):
    """Where Prometheus has the load and the latencies of a server."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "name at least one label of the series of this server",
            f"self.source == '{CUSTOM}' || (has(self.labels) && size(self.labels) > 0)",
            lambda measure: measure.source == CUSTOM or bool(measure.labels),
        ),
        _SHORT_NAMES,
        Rule(
            f"source {CUSTOM} needs queries.arrivalRate",
            f"self.source != '{CUSTOM}' || (has(self.queries) && has(self.queries.arrivalRate))",
            lambda measure: (
                measure.source != CUSTOM
                or (measure.queries is not None and measure.queries.arrival_rate is not None)
            ),
        ),
    )

    source: SourceName
    """An engine, a gateway, Custom, or a source of yours."""
    labels: Annotated[dict[str, LabelValue], Field(max_length=MAX_LABELS)] = Field(
        default_factory=dict
    )
    """Labels that all series of this server have, and no others: model_name, namespace, ..."""
    queries: Queries | None = None
    """PromQL that replaces single quantities of the source."""
    catch_up_seconds: PositiveInteger = CATCH_UP_SECONDS
    """Time in which the backlog is to be served [s]."""
    windows: MeasuringWindows | None = None
    """Over which times rates are means; absent: 60 s and 300 s."""
    demand: DemandSource | None = None
    """What sees requests while nothing runs; with it, a server that is idle may have 0 replicas."""


class Percentiles(Part):
    """Percentiles of a time [ms]."""

    p50: Number | None = None
    """Median [ms]."""
    p95: Number | None = None
    """95th percentile [ms]."""
    p99: Number | None = None
    """99th percentile [ms]."""


class MeasuredReplicas(Part):
    """Replicas of a server."""

    ready: NonNegativeInteger
    """Replicas that Prometheus knows; the ready pods in Kubernetes, where these are more."""
    reporting: NonNegativeInteger
    """Replicas of these whose newest scrape succeeded."""


class MeasuredDemand(Part):
    """What is seen of the requests for a server, whether it has replicas or not."""

    requests: Number | None = None
    """Requests that wait or arrived in five minutes; absent if unknown."""
    mean_rate: Number | None = None
    """Mean of the arrivals that are known of the last day [requests/min]."""
    idle_since: Time | None = None
    """Since when no request arrives, runs or waits; absent while one does, or may."""
    message: str = ""
    """What to do, unless requests are seen or known to be absent."""


class Ahead(Part):
    """How far ahead of the measured load plans are made."""

    seconds: Number
    """Time until a replica that is decided now serves [s]."""
    growth: Number
    """Factor by which the load may have grown by then."""
    history_seconds: Number
    """Length of the recorded loads that the growth follows from; 0 where it is a default [s]."""


class LoadCorrection(Part):
    """By how much more load is planned for where targets are missed by what should be enough."""

    factor: Number
    """What the load is multiplied by for plans, from 1 to 2."""
    missed_since: Time | None = None
    """Since when enough replicas miss targets, or since the last rise."""
    kept_since: Time | None = None
    """Since when all targets are met with room: the factor falls after the long window."""
    ratio_before: Number | None = None
    """Largest ratio of a latency to its target at the last rise."""
    vain: NonNegativeInteger = 0
    """Rises in a row that did not help; after two of them there are no more."""
    parameters: str = ""
    """Digest of the Model's data; with other data the correction begins anew."""


class Measured(Part):
    """What was measured; a quantity that is not known is absent."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    time: Time
    """When the numbers were measured."""
    quality: Quality
    """Fresh, Idle, Partial, Stale, Missing or Refused."""
    message: str = ""
    """What to do, unless the quality is Fresh and plans lack nothing."""
    arrival_rate: Number | None = None
    """Requests that arrive, whether they are served or not [requests/min]."""
    avg_in_tokens: Number | None = None
    """Mean input tokens per request."""
    avg_out_tokens: Number | None = None
    """Mean output tokens per request."""
    in_tokens_cov: Annotated[Number | None, Field(alias="inTokensCOV")] = None
    """Coefficient of variation of the input tokens per request."""
    avg_computed_tokens: Number | None = None
    """Mean input tokens per request that are in no prefix cache; absent: all count."""
    tokens_per_step: Number | None = None
    """Mean output tokens that a step makes; absent without speculative decoding."""
    out_tokens_cov: Annotated[Number | None, Field(alias="outTokensCOV")] = None
    """Coefficient of variation of the output tokens per request."""
    itl_average: Number | None = None
    """Mean inter-token latency [ms]."""
    ttft_average: Number | None = None
    """Mean time to first token [ms]."""
    wait_average: Number | None = None
    """Mean waiting time [ms]."""
    itl: Percentiles | None = None
    """Percentiles of the inter-token latency."""
    itl_of_requests: Percentiles | None = None
    """Percentiles of the mean inter-token latency of a request."""
    ttft: Percentiles | None = None
    """Percentiles of the time to first token."""
    wait: Percentiles | None = None
    """Percentiles of the waiting time."""
    running: Number | None = None
    """Requests that are being served."""
    waiting: Number | None = None
    """Requests that wait."""
    backlog: Number | None = None
    """Requests that wait beyond a healthy queue."""
    kv_cache_usage: Fraction | None = None
    """Mean share of the KV cache that is used."""
    replicas: MeasuredReplicas | None = None
    """Replicas that report."""
    misses_targets: Items[str] = ()
    """Targets that the measured latencies miss now, such as slo-ttft."""
    demand: MeasuredDemand | None = None
    """What `spec.measure.demand` sees; absent without it."""
    ahead: Ahead | None = None
    """How far ahead of the arrivals plans are made."""
    correction: LoadCorrection | None = None
    """Factor that raises the planned load; absent without a correction."""
    load: Load | None = None
    """The load that plans are made for: arrivals with growth, and backlog, times the correction."""


def misses_targets(measured: Measured | None) -> bool:
    """Whether it is measured that a server misses a target now."""
    return measured is not None and bool(measured.misses_targets)
