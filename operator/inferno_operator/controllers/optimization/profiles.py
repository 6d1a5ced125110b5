"""The performance data of Models, as the optimizer computes with them; pure."""

from collections.abc import Iterable, Mapping

from inferno_operator.resources import (
    CalibratedData,
    Model,
    PerformanceData,
    PrefillParms,
    StepParms,
)
from inferno_optimizer import system as core

PERCENT = 100.0

Place = tuple[str, str, core.Role]
"""A model, an accelerator, and what replicas do there."""

TIMES = frozenset({"alpha", "beta", "gamma", "delta", "kappa", "u"})
"""Parameters that are times."""


def profiles(models: Iterable[Model]) -> tuple[core.PerformanceProfile, ...]:
    """Return the profiles of models; of several for one accelerator, the last one is used."""
    return tuple(
        {
            place_of_data(model, data): _whole(model.spec.name, data)
            for model in models
            for data in effective(model)
            if data.role == "Both"
        }.values()
    )


def roles(models: Iterable[Model]) -> tuple[core.RoleProfile, ...]:
    """Return the profiles of the roles of models; of several for one role, the last one is used."""
    return tuple(
        {
            place_of_data(model, data): _role(model, data, data.step_parms)
            for model in models
            for data in effective(model)
            if data.role != "Both" and data.step_parms is not None
        }.values()
    )


def effective(model: Model) -> tuple[PerformanceData, ...]:
    """Return the data as plans compute with them, one item per accelerator and role.

    Only those of whole replicas are calibrated.
    """
    return tuple(
        {
            place_of_data(model, data): _calibrated(model, data) if data.role == "Both" else data
            for data in model.spec.data
        }.values()
    )


def place_of_data(model: Model, data: PerformanceData) -> Place:
    """Return where performance data of a model are about."""
    return model.spec.name, data.acc, core.Role(data.role)


def _role(model: Model, data: PerformanceData, steps: StepParms) -> core.RoleProfile:
    transfer = model.spec.transfer
    return core.RoleProfile(
        model=model.spec.name,
        accelerator=data.acc,
        role=core.Role(data.role),
        parameters=_steps(steps),
        max_batch_size=data.max_batch_size,
        at_tokens=data.at_tokens,
        accelerator_count=max(data.acc_count, 1),
        max_tokens=data.max_tokens or 0,
        max_sequences=data.max_num_seqs or 0,
        origin=data.origin or "",
        error_percent=data.error_percent or 0.0,
        transfer=core.Transfer(transfer.per_request_ms, transfer.per_token_ms)
        if transfer and data.role == "Prefill"
        else core.Transfer(),
    )


def _calibrated(model: Model, data: PerformanceData) -> PerformanceData:
    """The data with calibrated parameters, if the model asks for them and there are any.

    They are those of the upper confidence. Typed parameters get an error as well: else an
    accelerator would seem faster because nobody measured it.
    """
    if model.spec.calibrate != "Use":
        return data
    calibrated = next((row for row in model.status.calibration if row.acc == data.acc), None)
    measured = _measured(data, calibrated) if calibrated else None
    if measured is None:
        return _slower(data, 1 + model.spec.typed_error_percent / PERCENT)
    return data.model_copy(update=measured)


def _measured(data: PerformanceData, calibrated: CalibratedData) -> Mapping[str, object] | None:
    """The fields of the data that calibrated parameters replace; None if none do.

    The first generation has no prefill time of its own, so it takes only alpha and beta. The
    others become the fourth generation if the steps fit, else the second one; but configured steps
    are not replaced by lines, which hold only for the lengths that they were measured with.
    """
    decode, steps = calibrated.decode_parms, calibrated.step_parms
    distance = calibrated.decode.residual if calibrated.decode else None
    origin: dict[str, object] = {
        "origin": "measured",
        "error_percent": None if distance is None else min(PERCENT * distance, PERCENT),
    }
    if data.alpha is not None:
        return {"alpha": decode.alpha, "beta": decode.beta, **origin} if decode else None
    if steps is None and (decode is None or data.step_parms is not None):
        return None
    lines = None if steps else (decode, calibrated.prefill_parms)
    decode, prefill = lines or (None, None)
    return {
        "decode_parms": decode,
        "prefill_parms": prefill,
        "perf_parms": None,
        "step_parms": steps,
        **origin,
    }


def _slower(data: PerformanceData, factor: float) -> PerformanceData:
    """The data with all times longer by a factor."""
    parts = ("decode_parms", "prefill_parms", "perf_parms", "step_parms")
    times = {name: value * factor for name in ("alpha", "beta") if (value := getattr(data, name))}
    longer = {
        name: part.model_copy(update={n: v * factor for n, v in part if n in TIMES})
        for name in parts
        if (part := getattr(data, name))
    }
    return data.model_copy(update={**times, **longer})


def _whole(model: str, data: PerformanceData) -> core.PerformanceProfile:
    return core.PerformanceProfile(
        model=model,
        accelerator=data.acc,
        parameters=_parameters(data),
        max_batch_size=data.max_batch_size,
        at_tokens=data.at_tokens,
        accelerator_count=max(data.acc_count, 1),
        max_tokens=data.max_tokens or 0,
        max_sequences=data.max_num_seqs or 0,
        origin=data.origin or "",
        error_percent=data.error_percent or 0.0,
    )


def _parameters(data: PerformanceData) -> core.PerformanceParameters:
    """Performance parameters of the generation that the data have."""
    if data.step_parms:
        return _steps(data.step_parms)
    if data.perf_parms:
        budget = data.perf_parms
        return core.TokenBudgetParameters(budget.alpha, budget.beta, budget.gamma)
    if data.decode_parms:
        decode, prefill = data.decode_parms, data.prefill_parms or PrefillParms(gamma=0, delta=0)
        return core.PrefillDecodeParameters(decode.alpha, decode.beta, prefill.gamma, prefill.delta)
    return core.DecodeParameters(data.alpha or 0.0, data.beta or 0.0)


def _steps(steps: StepParms) -> core.StepParameters:
    return core.StepParameters(
        alpha=steps.alpha,
        kappa=steps.kappa,
        delta=steps.delta,
        u=steps.u,
        ahead=steps.ahead,
        budget=steps.budget,
        overhead=steps.overhead,
        min_input_tokens=steps.min_in_tokens,
        max_input_tokens=steps.max_in_tokens,
        min_output_tokens=steps.min_out_tokens,
        max_output_tokens=steps.max_out_tokens,
    )
