"""What the admission of the original refuses in a booster, for clusters where nothing admits.

What it fills in first is taken as filled in: the grace period, which nothing reads, and the
rate of cost expansion.
"""

import re
from collections.abc import Iterator

from inferno_operator.boosters.booster import Backend, Booster
from inferno_operator.boosters.context import Problem
from inferno_operator.boosters.dialects import Dialect

MAX_GRACE_SECONDS = 1800.0
MAX_REPLICAS = 1_000_000

LONGEST_LABEL = 63
"""Characters of a DNS label; names of pods are made of the serving's and a few more."""

LONGEST_POD_SUFFIX = len("-00-prefill-00-0")

SERVER_ONLY = ("vLLM", "SGLang", "MindIE")

SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
DURATION = re.compile(r"([-+]?)((?:\d+(?:\.\d*)?(?:ms|us|µs|ns|h|m|s))+|0)")
PART = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|h|m|s)")


def seconds(text: str) -> float | None:
    """The length of a duration as Go writes it [s]; None if it is none."""
    found = DURATION.fullmatch(text)
    if found is None:
        return None
    length = sum(float(number) * SECONDS[unit] for number, unit in PART.findall(found[2]))
    return -length if found[1] == "-" else length


def problems(booster: Booster, dialect: Dialect) -> tuple[Problem, ...]:
    """Everything that is wrong, of the whole first."""
    backends = enumerate(booster.spec.backends)
    of_backends = (
        Problem(f"spec.backends[{i}]{path}", text, backend.name)
        for i, backend in backends
        for path, text in _of_backend(booster, backend)
    )
    of_whole = (Problem(path, text) for path, text in _of_whole(booster, dialect))
    return (*of_whole, *of_backends)


def _of_whole(booster: Booster, dialect: Dialect) -> Iterator[tuple[str, str]]:
    spec = booster.spec
    expansion = spec.cost_expansion_rate_percent
    if not spec.backends:
        yield "spec.backends", "is missing"  # the schema of the original admits that
        return
    if sum(backend.max_replicas for backend in spec.backends) > MAX_REPLICAS:
        yield "spec.backends", f"ask for more than {MAX_REPLICAS} replicas in all"
    if expansion is not None and expansion > dialect.max_cost_expansion:
        limit = dialect.max_cost_expansion
        yield "spec.costExpansionRatePercent", f"must be at most {limit}, not {expansion}"
    if spec.autoscaling_policy is None:
        if expansion is not None:
            yield "spec.costExpansionRatePercent", "needs spec.autoscalingPolicy"
    elif any(backend.autoscaling_policy is not None for backend in spec.backends):
        yield "spec.autoscalingPolicy", "excludes the autoscalingPolicy of a backend"
    elif sum(backend.min_replicas for backend in spec.backends) < 1:
        yield "spec.backends", "with spec.autoscalingPolicy need a minReplicas of at least 1 in all"


def _of_backend(booster: Booster, backend: Backend) -> Iterator[tuple[str, str]]:
    yield from _of_replicas(booster, backend)
    yield from _of_workers(backend)
    yield from _of_adapters(booster, backend)
    longest = LONGEST_LABEL - LONGEST_POD_SUFFIX
    if len(booster.child_name(backend)) > longest:
        name = booster.child_name(backend)
        yield ".name", f"makes {name!r}, which has more than {longest} characters"


def _of_replicas(booster: Booster, backend: Backend) -> Iterator[tuple[str, str]]:
    low, high = backend.min_replicas, backend.max_replicas
    if low > high:
        yield ".minReplicas", f"must be at most maxReplicas, which is {high}, not {low}"
    if backend.scale_to_zero_grace_period is not None:
        grace = seconds(backend.scale_to_zero_grace_period)
        if grace is None or not 0 <= grace <= MAX_GRACE_SECONDS:
            yield ".scaleToZeroGracePeriod", "must be between 0s and 30m"
    if booster.spec.autoscaling_policy is None:
        yield from _without_policy_of_model(backend)
    elif not backend.scaling_cost and not _has_own_policy(booster):
        yield ".scalingCost", "is missing; the policy of the model needs it"


def _without_policy_of_model(backend: Backend) -> Iterator[tuple[str, str]]:
    low, high = backend.min_replicas, backend.max_replicas
    if backend.scaling_cost:
        yield ".scalingCost", "needs spec.autoscalingPolicy"
    if backend.scale_to_zero_grace_period is not None:
        yield ".scaleToZeroGracePeriod", "needs spec.autoscalingPolicy"
    if backend.autoscaling_policy is not None:
        if low < 1:
            yield ".minReplicas", "must be at least 1 with an autoscalingPolicy"
    elif low < high and not _is_none(backend):
        text = f"has no autoscalingPolicy: minReplicas {low} and maxReplicas {high} must be equal"
        yield "", text


def _is_none(backend: Backend) -> bool:
    """No replica at all: the schema wants a maxReplicas of at least 1 all the same."""
    return (backend.min_replicas, backend.max_replicas) == (0, 1)


def _has_own_policy(booster: Booster) -> bool:
    return any(backend.autoscaling_policy is not None for backend in booster.spec.backends)


def _of_workers(backend: Backend) -> Iterator[tuple[str, str]]:
    for j, worker in enumerate(backend.workers):
        if " " in worker.image or (worker.image and not worker.image.strip()):
            yield f".workers[{j}].image", f"must have no spaces, as {worker.image!r} has"
    if backend.type in SERVER_ONLY:
        if len(backend.workers) != 1:
            yield ".workers", f"must be one for {backend.type}, not {len(backend.workers)}"
        elif backend.workers[0].type != "server":
            yield ".workers[0].type", f"must be server for {backend.type}"
        return
    for j, worker in enumerate(backend.workers):
        if backend.type == "vLLMDisaggregated" and worker.type not in ("prefill", "decode"):
            yield f".workers[{j}].type", f"must be prefill or decode, not {worker.type}"
        if backend.type == "MindIEDisaggregated" and worker.type == "server":
            yield f".workers[{j}].type", "must not be server for MindIEDisaggregated"


def _of_adapters(booster: Booster, backend: Backend) -> Iterator[tuple[str, str]]:
    names = [adapter.name for adapter in backend.lora_adapters]
    for j, name in enumerate(names):
        if name == booster.metadata.name:
            yield f".loraAdapters[{j}].name", "must not be the name of the booster"
        if name in names[:j]:
            yield f".loraAdapters[{j}].name", f"names {name} once more"
