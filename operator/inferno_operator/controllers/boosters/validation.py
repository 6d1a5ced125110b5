"""Fields of a booster that make its children invalid or are odd, with what to do; pure.

The operator checks them itself, because a cluster may have no admission webhook for boosters.
What is only odd gets advice. Most of it are rules of the admission webhook of the original
controller. The fields that this webhook fills in may be missing: the grace period, which nothing
reads, and the rate of cost expansion.
"""

import re
from collections.abc import Iterator

from inferno_operator.controllers.boosters.booster import Booster, ModelBackend
from inferno_operator.controllers.boosters.conversion import BoosterProblem
from inferno_operator.resources.dialects import DISAGGREGATED, Dialect

Remark = tuple[str, str]
"""The path of a field, and the remark on it."""

NO_START = "the autoscaler cannot scale up from zero"

MAX_GRACE_SECONDS = 1800.0
MAX_REPLICAS = 1_000_000

LONGEST_LABEL = 63
"""Characters of a DNS label; the name of a pod is that of the serving with a suffix."""

LONGEST_POD_SUFFIX = len("-00-prefill-00-0")

ROLES = {
    "vLLM": ("server",),
    "SGLang": ("server",),
    "MindIE": ("server",),
    DISAGGREGATED: ("prefill", "decode"),
    "MindIEDisaggregated": ("prefill", "decode", "controller", "coordinator"),
}
"""The worker types of each backend type."""

SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
DURATION = re.compile(r"([-+]?)((?:\d+(?:\.\d*)?(?:ms|us|µs|ns|h|m|s))+|0)")
PART = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|h|m|s)")


def list_problems(booster: Booster) -> tuple[BoosterProblem, ...]:
    """Return the invalid fields that a conversion does not check itself."""
    if not booster.spec.backends:
        return (BoosterProblem("spec.backends", "is missing"),)  # the original's schema allows that
    return tuple(
        BoosterProblem(f"spec.backends[{i}]{path}", text, backend.name)
        for i, backend in enumerate(booster.spec.backends)
        for path, text in _list_backend_problems(backend)
    )


def _list_backend_problems(backend: ModelBackend) -> Iterator[Remark]:
    low, high = backend.min_replicas, backend.max_replicas
    if low > high:
        yield ".minReplicas", f"must be at most maxReplicas, which is {high}, not {low}"
    scheme, _, claim = backend.cache_uri.partition("://")
    if scheme == "pvc" and not claim.strip("/"):  # the volume would be at /, with no claim
        yield ".cacheURI", f"must name a claim, such as pvc://weights, not {backend.cache_uri!r}"
    for j, worker in enumerate(backend.workers):  # the API server checks empty images
        if any(map(str.isspace, worker.image)):
            yield f".workers[{j}].image", f"must have no spaces, not {worker.image!r}"
    names = [adapter.name for adapter in backend.lora_adapters]
    for j, name in enumerate(names):
        if name in names[:j]:  # an engine does not start
            yield f".loraAdapters[{j}].name", f"must be unique, but {name!r} is used before"


def list_advice(booster: Booster, dialect: Dialect) -> tuple[BoosterProblem, ...]:
    """Return the rules that a booster breaks, those about the whole booster first."""
    of_backends = (
        BoosterProblem(f"spec.backends[{i}]{path}", text, backend.name)
        for i, backend in enumerate(booster.spec.backends)
        for path, text in (
            *_advise_on_scaling(booster, backend),
            *_advise_on_workers(backend),
            *_advise_on_names(booster, backend),
        )
    )
    of_whole = (BoosterProblem(path, text) for path, text in _advise_on_whole(booster, dialect))
    return (*of_whole, *of_backends)


def parse_duration(text: str) -> float | None:
    """Parse a duration in the syntax of Go [s]; None if it is not valid."""
    match = DURATION.fullmatch(text)
    if match is None:
        return None
    length = sum(float(number) * SECONDS[unit] for number, unit in PART.findall(match[2]))
    return -length if match[1] == "-" else length


def _advise_on_whole(booster: Booster, dialect: Dialect) -> Iterator[Remark]:
    spec, limit = booster.spec, dialect.max_cost_expansion
    expansion = spec.cost_expansion_rate_percent
    if sum(backend.max_replicas for backend in spec.backends) > MAX_REPLICAS:
        yield "spec.backends", f"allow more than {MAX_REPLICAS} replicas in all: reduce maxReplicas"
    if expansion is not None and expansion > limit:
        yield "spec.costExpansionRatePercent", f"should be at most {limit}, not {expansion}"
    if spec.autoscaling_policy is None:
        if expansion is not None:
            yield "spec.costExpansionRatePercent", "has no effect without spec.autoscalingPolicy"
    elif any(backend.autoscaling_policy is not None for backend in spec.backends):
        text = "overrides the autoscalingPolicy of the backends: remove one of the two"
        yield "spec.autoscalingPolicy", text
    elif not any(backend.min_replicas for backend in spec.backends):
        yield "spec.backends", f"should have a minReplicas of at least 1 in all: {NO_START}"


def _advise_on_scaling(booster: Booster, backend: ModelBackend) -> Iterator[Remark]:
    low, high, period = backend.min_replicas, backend.max_replicas, ".scaleToZeroGracePeriod"
    if backend.scale_to_zero_grace_period is not None:
        grace = parse_duration(backend.scale_to_zero_grace_period)
        if grace is None or not 0 <= grace <= MAX_GRACE_SECONDS:
            yield period, "should be between 0s and 30m"
    if booster.spec.autoscaling_policy is not None:
        has_own = any(each.autoscaling_policy is not None for each in booster.spec.backends)
        if not backend.scaling_cost and not has_own:
            text = "is missing and counts as 0; spec.autoscalingPolicy compares costs"
            yield ".scalingCost", text
        return
    if backend.scaling_cost:
        yield ".scalingCost", "has no effect without spec.autoscalingPolicy"
    if backend.scale_to_zero_grace_period is not None:
        yield period, "has no effect without spec.autoscalingPolicy"
    if backend.autoscaling_policy is not None:
        if low < 1:
            yield ".minReplicas", f"should be at least 1 with an autoscalingPolicy: {NO_START}"
    elif low < high and (low, high) != (0, 1):  # the maximum must be at least 1
        text = f"has no effect without an autoscalingPolicy: minReplicas ({low}) replicas run"
        yield ".maxReplicas", text


def _advise_on_workers(backend: ModelBackend) -> Iterator[Remark]:
    """Yield remarks: the last worker of a type is used, and unknown types are ignored."""
    types = [worker.type for worker in backend.workers]
    roles = ROLES.get(backend.type, types)
    for j, type_ in enumerate(types):
        path = f".workers[{j}].type"
        if type_ not in roles:
            yield path, f"is {type_}, but {backend.type} has only {' and '.join(roles)}: ignored"
        elif type_ in types[j + 1 :]:
            yield path, f"is {type_}, and so is a later worker: only the last one is used"


def _advise_on_names(booster: Booster, backend: ModelBackend) -> Iterator[Remark]:
    name = booster.child_name(backend)
    longest = LONGEST_LABEL - LONGEST_POD_SUFFIX
    if len(name) > longest:
        text = f"makes {name!r}, which has more than {longest} characters: pods may be rejected"
        yield ".name", text
    for j, adapter in enumerate(backend.lora_adapters):
        if adapter.name == booster.metadata.name:
            text = "is the name of the booster: requests for it go to the model without the adapter"
            yield f".loraAdapters[{j}].name", text
