"""The performance model of each generation of performance data."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from inferno_optimizer.sizing.performance import (
    CachedTokenBudgetModel,
    DecodeModel,
    PerformanceModel,
    PrefillDecodeModel,
    Requests,
    TokenBudgetModel,
)
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.sizing.step_model import StepModel
from inferno_optimizer.system import Generation, PerformanceParameters

_MODELS: Mapping[Generation, Any] = MappingProxyType(
    {
        Generation.DECODE: DecodeModel,
        Generation.PREFILL_DECODE: PrefillDecodeModel,
        Generation.TOKEN_BUDGET: TokenBudgetModel,
        Generation.STEPS: StepModel,
    }
)


def model_of(
    parameters: Sequence[PerformanceParameters], which: IntArray, requests: Requests
) -> PerformanceModel:
    """The performance model of replicas with profiles of one generation.

    Parameters
    ----------
    parameters
        Performance parameters of one generation, at least one.
    which
        The position in `parameters` for each replica.
    requests
        The requests that each replica serves.
    """
    kind = _MODELS[parameters[0].generation]
    if kind is TokenBudgetModel and (requests.computed_tokens < requests.input_tokens).any():
        kind = CachedTokenBudgetModel
    model: PerformanceModel = kind.of(parameters, which, requests)
    return model
