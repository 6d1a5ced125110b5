"""JSON keys of performance data: of whole requests, and of one half of them."""

from collections.abc import Container
from typing import NamedTuple

from inferno_optimizer.system import (
    PAIR,
    DecodeParameters,
    Generation,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Role,
    RoleProfile,
    StepParameters,
    TokenBudgetParameters,
    Transfer,
)
from inferno_optimizer.wire.fields import (
    INTEGER,
    NUMBER,
    ORIGIN,
    TEXT,
    List,
    Object,
    Scalar,
    choice,
    last_of_each,
    optional,
    read_integer,
    without_origin,
)


class _Prefill(NamedTuple):
    gamma: float
    delta: float


def _profile(  # noqa: PLR0913 - an argument for each key
    *,
    model: str,
    accelerator: str,
    accelerator_count: int,
    alpha: float,
    beta: float,
    decode: DecodeParameters | None,
    prefill: _Prefill | None,
    budget: TokenBudgetParameters | None,
    steps: StepParameters | None,
    max_batch_size: int,
    at_tokens: int,
    max_tokens: int,
    max_sequences: int,
    origin: str,
    error_percent: float,
) -> PerformanceProfile:
    """Build a profile; if there are parameters of several generations, the latest is used."""
    parameters: PerformanceParameters = DecodeParameters(alpha, beta)
    if steps is not None:
        parameters = steps
    elif budget is not None:
        parameters = budget
    elif decode is not None or prefill is not None:
        tokens, first = decode or DecodeParameters(0, 0), prefill or _Prefill(0, 0)
        parameters = PrefillDecodeParameters(tokens.alpha, tokens.beta, *first)
    return PerformanceProfile(
        model,
        accelerator,
        parameters,
        max_batch_size,
        at_tokens,
        accelerator_count,
        max_tokens,
        max_sequences,
        origin,
        error_percent,
    )


def _not_written(profile: PerformanceProfile) -> Container[str]:
    """Keys that are not written: parameters of other generations, and bounds that are not set."""
    own_keys = _PARAMETERS[profile.parameters.generation]
    others = {key for keys in _PARAMETERS.values() for key in keys} - {*own_keys}
    bounds = {"maxTokens": profile.max_tokens, "maxNumSeqs": profile.max_sequences}
    unset = {key for key, bound in bounds.items() if not bound}
    return others | unset | {*without_origin(profile)}


def _without_bounds(steps: StepParameters) -> Container[str]:
    """Keys that are not written: bounds of lengths that are not set."""
    bounds = {
        "minInTokens": steps.min_input_tokens,
        "maxInTokens": steps.max_input_tokens,
        "minOutTokens": steps.min_output_tokens,
        "maxOutTokens": steps.max_output_tokens,
    }
    return [key for key, bound in bounds.items() if not bound]


_PARAMETERS = {
    Generation.DECODE: ("alpha", "beta"),
    Generation.PREFILL_DECODE: ("decodeParms", "prefillParms"),
    Generation.TOKEN_BUDGET: ("perfParms",),
    Generation.STEPS: ("stepParms",),
}

_AT_LEAST_ONE = Scalar(1, lambda value: max(read_integer(value), 1), int)

_DECODE = Object(DecodeParameters, {"alpha": ("alpha", NUMBER), "beta": ("beta", NUMBER)})

_PREFILL = Object(_Prefill, {"gamma": ("gamma", NUMBER), "delta": ("delta", NUMBER)})

_BUDGET = Object(
    TokenBudgetParameters,
    {"alpha": ("alpha", NUMBER), "beta": ("beta", NUMBER), "gamma": ("gamma", NUMBER)},
)

_STEPS = Object(
    StepParameters,
    {name: (name, NUMBER) for name in ("alpha", "kappa", "delta", "u", "ahead")}
    | {name: (name, NUMBER) for name in ("budget", "overhead")}
    | {
        "minInTokens": ("min_input_tokens", INTEGER),
        "maxInTokens": ("max_input_tokens", INTEGER),
        "minOutTokens": ("min_output_tokens", INTEGER),
        "maxOutTokens": ("max_output_tokens", INTEGER),
    },
    left_out=_without_bounds,
)

PROFILES = List(
    "performance data",
    ("name", "acc"),
    Object(
        _profile,
        {
            "name": ("model", TEXT),
            "acc": ("accelerator", TEXT),
            "accCount": ("accelerator_count", _AT_LEAST_ONE),
            "alpha": ("parameters.alpha", NUMBER),
            "beta": ("parameters.beta", NUMBER),
            "decodeParms": ("parameters", optional(_DECODE), "decode"),
            "prefillParms": ("parameters", optional(_PREFILL), "prefill"),
            "perfParms": ("parameters", optional(_BUDGET), "budget"),
            "stepParms": ("parameters", optional(_STEPS), "steps"),
            "maxBatchSize": ("max_batch_size", INTEGER),
            "atTokens": ("at_tokens", INTEGER),
            "maxTokens": ("max_tokens", INTEGER),
            "maxNumSeqs": ("max_sequences", INTEGER),
            **ORIGIN,
        },
        left_out=_not_written,
    ),
    collect=last_of_each("model", "accelerator"),
    spread=tuple,
)

ROLES = List(
    "role data",
    ("name", "acc", "role"),
    Object(
        RoleProfile,
        {
            "name": ("model", TEXT),
            "acc": ("accelerator", TEXT),
            "role": ("role", choice(Role.BOTH, PAIR, "Prefill or Decode")),
            "accCount": ("accelerator_count", _AT_LEAST_ONE),
            "stepParms": ("parameters", _STEPS),
            "maxBatchSize": ("max_batch_size", INTEGER),
            "atTokens": ("at_tokens", INTEGER),
            "maxTokens": ("max_tokens", INTEGER),
            "maxNumSeqs": ("max_sequences", INTEGER),
            "transfer": (
                "transfer",
                Object(
                    Transfer,
                    {
                        "perRequestMs": ("request_ms", NUMBER),
                        "perTokenMs": ("token_ms", NUMBER),
                    },
                ),
            ),
            **ORIGIN,
        },
        left_out=lambda role: (
            *(() if role.transfer.request_ms or role.transfer.token_ms else ("transfer",)),
            *without_origin(role),
        ),
    ),
    collect=last_of_each("model", "accelerator", "role"),
    spread=tuple,
)
