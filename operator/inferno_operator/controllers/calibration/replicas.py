"""What each vLLM replica did within a minute, from Prometheus.

Two queries return everything about all replicas of the cluster. Each is a union of parts, told
apart by the label `part`. Other engines do not serve the time of a prefill without the queue, as
a sum and a count; their replicas have no windows.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from types import MappingProxyType
from typing import NamedTuple

from inferno_operator.controllers.calibration.windows import Pair
from inferno_operator.engines.catalogue import tokens_per_step
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ACTUATED
from inferno_operator.runtime.prometheus import Prometheus, QueryResult, is_label_name, quote_string
from inferno_optimizer.calibration.windows import Window, batch_at_poisson_arrivals
from inferno_optimizer.units import MS_PER_SECOND

WINDOW_S = 60
"""Length of a window [s]: at least four scrapes at the usual interval of 15 s."""

VLLM = "vllm:"
"""What the names of metrics begin with; what runs vLLM may give them another prefix."""

PART = "part"
REPLICA = ("namespace", "pod", "instance")
MODEL, ENGINE = "model_name", "engine"
"""Labels that tell replicas apart, the label of the model, which some series do not have, and that
of the engines of a replica. Series that differ in another label are copies."""


_ITL = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
_PREFILL = ("vllm:request_prefill_time_seconds",)
_INPUT = ("vllm:request_prefill_kv_computed_tokens", "vllm:request_prompt_tokens")
_PROMPT = ("vllm:request_prompt_tokens",)
_OUTPUT = ("vllm:request_generation_tokens",)
_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_RUNNING = ("vllm:num_requests_running",)
"""Names of metrics, the newest first."""

_STARTED = f"process_start_time_seconds and on ({', '.join(REPLICA)}) {_RUNNING[0]}"
"""When the process of a replica started; many other programs have this metric, too.

It ends with the name of a metric of the replica, which may be followed by a selector.
"""


def _build_sums(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}_sum" for name in names)


def _build_counts(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}_count" for name in names)


class QueryPart(NamedTuple):
    """A part of a query: over the engines of a replica, of a range, of the first metric there is.

    Without a function it is the value now.
    """

    aggregate: str
    function: str
    names: Sequence[str]


COUNTERS: Mapping[str, QueryPart] = MappingProxyType(
    {
        "itl_sum": QueryPart("sum", "increase", _build_sums(_ITL)),
        "itl_count": QueryPart("sum", "increase", _build_counts(_ITL)),
        "prefill_sum": QueryPart("sum", "increase", _build_sums(_PREFILL)),
        "prefill_count": QueryPart("sum", "increase", _build_counts(_PREFILL)),
        "input_sum": QueryPart("sum", "increase", _build_sums(_INPUT)),
        "input_count": QueryPart("sum", "increase", _build_counts(_INPUT)),
        "prompt_sum": QueryPart("sum", "increase", _build_sums(_PROMPT)),
        "prompt_count": QueryPart("sum", "increase", _build_counts(_PROMPT)),
        "output_sum": QueryPart("sum", "increase", _build_sums(_OUTPUT)),
        "output_count": QueryPart("sum", "increase", _build_counts(_OUTPUT)),
        "accepted": QueryPart("sum", "increase", ("vllm:spec_decode_num_accepted_tokens_total",)),
        "generated": QueryPart("sum", "increase", ("vllm:generation_tokens_total",)),
        "preemptions": QueryPart("sum", "increase", ("vllm:num_preemptions_total",)),
        "restarts": QueryPart("sum", "resets", _build_counts(_ITL)),
    }
)
"""Parts of the first query."""

GAUGES: Mapping[str, QueryPart] = MappingProxyType(
    {
        "kv_usage": QueryPart("max", "max_over_time", _KV),
        "running_mean": QueryPart("sum", "avg_over_time", _RUNNING),
        "running_deviation": QueryPart("sum", "stddev_over_time", _RUNNING),
        "alive": QueryPart("sum", "", _RUNNING),
        "served": QueryPart("sum", "", _build_counts(_PREFILL)),
        "started": QueryPart("max", "", (_STARTED,)),
    }
)
"""Parts of the second query."""


@dataclass(frozen=True, slots=True)
class LabelledReplicas:
    """The replicas whose series have these labels run this model on this accelerator."""

    labels: Mapping[str, str]
    pair: Pair


def find_labelled_replicas(
    namespace: str, server: Server, labels: Mapping[str, str]
) -> LabelledReplicas | None:
    """The replicas of a Server whose series have these labels.

    None if it runs nowhere, or on several accelerators or as prefill and decode, where replicas
    cannot be told apart, or if a label has a name that a query cannot have.
    """
    if not all(is_label_name(name) and name != PART for name in labels):
        return None
    current = server.spec.current_alloc
    if current is None or current.mix or not current.accelerator or _has_halves(server):
        return None
    return LabelledReplicas(labels, Pair(namespace, server.spec.model, current.accelerator))


def _has_halves(server: Server) -> bool:
    """Whether some of the replicas may do one half of each request only.

    While a Server goes to or from prefill and decode, `currentAlloc` does not tell of them.
    """
    wholes = (server.spec.current_alloc, server.spec.desired_alloc)
    if any(whole is not None and whole.roles for whole in wholes):
        return True
    actuated = server.status.condition(ACTUATED)
    return server.names_roles and (actuated is None or actuated.status != "True")


def build_expression(
    parts: Mapping[str, QueryPart],
    names: Iterable[str] = (),
    window_s: int = WINDOW_S,
    selector: str = "",
    prefixes: Sequence[str] = (VLLM,),
) -> str:
    """The query of all parts.

    `names` are labels that series have besides those of replicas and of the model; `selector`
    restricts all metrics, such as `{namespace="prod"}`; `prefixes` begin the names of metrics.
    """
    by = ", ".join(dict.fromkeys((*REPLICA, MODEL, *sorted(names))))
    return "\nor\n".join(
        f"label_replace({part.aggregate} by ({by}) (max by ({by}, {ENGINE})"
        f' ({_any_of(part, window_s, selector, prefixes)})), "{PART}", "{name}", "", "")'
        for name, part in parts.items()
    )


def _any_of(part: QueryPart, window_s: int, selector: str, prefixes: Sequence[str]) -> str:
    """The first of the metrics that exists, for each engine."""
    names = [name.replace(VLLM, prefix) for prefix in prefixes for name in part.names]
    if not part.function:
        return " or ".join(f"{name}{selector}" for name in names)
    return " or ".join(f"{part.function}({name}{selector}[{window_s}s])" for name in names)


def _build_selector(labelled: Sequence[LabelledReplicas]) -> str:
    """The labels of a single server; several are selected in the answer."""
    if len(labelled) > 1:
        return ""
    matchers = (f"{name}={quote_string(value)}" for name, value in labelled[0].labels.items())
    return f"{{{', '.join(matchers)}}}"


class PrometheusWindows:
    """Reads windows of replicas from Prometheus.

    `labelled` returns which labels belong to which model and accelerator; a window takes at least
    four scrapes; `prefixes` begin the names of the metrics of vLLM; `replicas` are labels that tell
    replicas apart where one target has the metrics of several.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        labelled: Callable[[], Sequence[LabelledReplicas]],
        window_s: int = WINDOW_S,
        prefixes: Sequence[str] = (VLLM,),
        replicas: Iterable[str] = (),
    ) -> None:
        self._prometheus = prometheus
        self._prefixes, self._replicas = prefixes, frozenset(replicas)
        self._labelled = labelled
        self._window_s = window_s

    async def read(self, at: float | None = None) -> Mapping[Pair, Sequence[Window]]:
        """Return the window of each replica that ends at a Unix time [s], or now.

        There are none if there is nobody to ask about.
        """
        labelled = self._labelled()
        if not labelled:
            return {}
        names = self._replicas.union(*(each.labels for each in labelled))
        selector = _build_selector(labelled)
        queries = [
            build_expression(parts, names, self._window_s, selector, self._prefixes)
            for parts in (COUNTERS, GAUGES)
        ]
        answers = [await self._prometheus.query(query, at) for query in queries]
        return read_windows(answers, labelled, self._window_s)


def read_windows(
    answers: Sequence[QueryResult], labelled: Sequence[LabelledReplicas], window_s: int = WINDOW_S
) -> dict[Pair, list[Window]]:
    """The windows in the answers to both queries, by model and accelerator."""
    samples = [sample for answer in answers for sample in answer.samples]
    starts = {
        _read_values(sample.labels, REPLICA): sample.value
        for sample in samples
        if sample.labels.get(PART) == "started"
    }
    parts: defaultdict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != PART}
        parts[tuple(sorted(labels.items()))] |= {sample.labels.get(PART, ""): sample.value}
    by_pair: defaultdict[Pair, list[Window]] = defaultdict(list)
    index = _index_labels(labelled)
    end = max((sample.time for sample in samples), default=0.0)
    for identity, values in parts.items():
        labels = dict(identity)
        pair = _find_pair(labels, index)
        if pair is not None and "alive" in values:  # a stopped engine has counters for a while
            figures = {name: values.get(name, nan) for name in (*COUNTERS, *GAUGES)}
            figures["started"] = starts.get(_read_values(labels, REPLICA), -inf)
            by_pair[pair].append(_build_window(labels, figures, end, window_s))
    return dict(by_pair)


LabelIndex = Mapping[tuple[str, ...], Mapping[tuple[str, ...], set[Pair]]]
"""Names of labels -> their values -> what has them."""


def _index_labels(labelled: Sequence[LabelledReplicas]) -> LabelIndex:
    index: defaultdict[tuple[str, ...], defaultdict[tuple[str, ...], set[Pair]]]
    index = defaultdict(lambda: defaultdict(set))
    for one in labelled:
        names = tuple(sorted(one.labels))
        index[names][_read_values(one.labels, names)].add(one.pair)
    return index


def _find_pair(labels: Mapping[str, str], index: LabelIndex) -> Pair | None:
    """What the series belongs to; None if nothing, or several, which cannot be told apart."""
    pairs = {
        pair
        for names, by_values in index.items()
        for pair in by_values.get(_read_values(labels, names), ())
    }
    return pairs.pop() if len(pairs) == 1 else None


def _read_values(labels: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in names)


def _build_window(
    labels: Mapping[str, str], part: Mapping[str, float], end: float, window_s: int
) -> Window:
    """A window from the parts of a replica; what is absent is NaN, which rejects the window.

    The sum of the intervals between tokens per time is the mean number of requests in decode
    (Little's law). An interval is the time of a step, which may make several tokens; all but one
    of them were drafts.
    """
    pod = labels.get("pod", "")
    workload, shape = find_template(pod)
    per_step = tokens_per_step(_zero_if_nan(_divide(part["accepted"], part["generated"])))
    computed = _divide(part["input_sum"], part["input_count"])
    return Window(
        end=end,
        itl_ms=MS_PER_SECOND * _divide(part["itl_sum"], part["itl_count"]) / per_step,
        intervals=part["itl_count"],
        batch=batch_at_poisson_arrivals(part["itl_sum"] / window_s),
        prefill_ms=MS_PER_SECOND * _divide(part["prefill_sum"], part["prefill_count"]),
        prefills=part["prefill_count"],
        input_tokens=computed,
        output_tokens=_divide(part["output_sum"], part["output_count"]),
        preemptions=part["preemptions"],
        restarts=part["restarts"],
        kv_usage=part["kv_usage"],
        batch_cov=_divide(part["running_deviation"], part["running_mean"]),
        age_s=end - part["started"],
        served=part["served"],
        cached_tokens=max(
            _zero_if_nan(_divide(part["prompt_sum"], part["prompt_count"]) - computed), 0.0
        ),
        tokens_per_step=per_step,
        replica=pod or labels.get("instance", ""),
        workload=workload,
        shape=shape,
    )


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else nan


def _zero_if_nan(value: float) -> float:
    return 0.0 if isnan(value) else value


def find_template(pod: str) -> tuple[str, str]:
    """The Deployment and the hash of the pod template in the name of a pod; "" if there are none.

    The name ends with the hash and five characters, without vowels and look-alike digits.
    """
    match = re.search(
        r"^(.+)-([bcdfghjklmnpqrstvwxz2456789]{6,10})-[bcdfghjklmnpqrstvwxz2456789]{5}$", pod
    )
    return (match[1], match[2]) if match else ("", "")
