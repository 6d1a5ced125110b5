"""Windows of replicas -> what the status of each Model tells of its parameters; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from operator import attrgetter
from statistics import fmean

from inferno_operator.controllers.calibration.windows import Pair
from inferno_operator.resources import (
    DIGITS,
    CalibratedData,
    DecodeParms,
    FittedDecode,
    FittedPrefill,
    HardlyKnownParameter,
    Model,
    PerformanceData,
    PerfParms,
    PrefillParms,
    RejectedWindows,
    StepParms,
)
from inferno_optimizer.calibration.calibrate import Calibration, Evidence, calibrate
from inferno_optimizer.calibration.choice import Laws, laws
from inferno_optimizer.calibration.steps import StepFit
from inferno_optimizer.calibration.verdict import CalibrationReason, LineFit
from inferno_optimizer.calibration.windows import Window, lagged
from inferno_optimizer.system import PrefillDecodeParameters, TokenBudgetParameters

SUCCESSIVE_S = 90.0
"""Time between the ends of two windows up to which one follows the other [s]."""

CONFIGURED_STEPS_STAY = "the configured stepParms stay, as lines hold only for the lengths measured"

FEWEST_ROWS = 2
"""Windows below which no line is shown, not even one that is refused."""


def calibrate_models(
    windows: Mapping[Pair, Sequence[Window]], models: Mapping[tuple[str, str], Model], now: datetime
) -> Mapping[tuple[str, str], tuple[CalibratedData, ...]]:
    """The calibration of each model, by namespace and spec.name, sorted by accelerator.

    `windows` have what replicas of each model did on each accelerator; those of others are left
    out.
    """
    pairs = [pair for pair in sorted(windows) if (pair.namespace, pair.model) in models]
    pair_models = [models[pair.namespace, pair.model] for pair in pairs]
    # Of several data for an accelerator the last one counts, as in an optimization.
    data = [
        next((d for d in reversed(model.spec.data) if d.acc == pair.accelerator), None)
        for pair, model in zip(pairs, pair_models, strict=True)
    ]
    evidence = [
        Evidence(windows[pair], find_prior(item), find_largest_batch(item, windows[pair]))
        for pair, item in zip(pairs, data, strict=True)
    ]
    rows: defaultdict[tuple[str, str], list[CalibratedData]] = defaultdict(list)
    results = calibrate(evidence, now.timestamp())
    for pair, model, item, result in zip(pairs, pair_models, data, results, strict=True):
        known = model.status.calibration
        before = next((row for row in known if row.acc == pair.accelerator), None)
        previous = _PreviousData(pair.accelerator, item, before, now)
        rows[pair.namespace, pair.model].append(_build_row(previous, result))
    return {model: tuple(own) for model, own in rows.items()}


def add_prefill_batch(new: Iterable[Window], before: Iterable[Window]) -> list[Window]:
    """New windows of replicas with the batch of their prefills; see `windows.lagged`.

    Of the windows `before` those count that are earlier than all of the new ones.
    """
    windows = list(new)
    first = min((window.end for window in windows), default=0.0)
    earlier = sorted((w for w in before if w.end < first), key=attrgetter("end"))
    last = {window.replica: window for window in earlier}
    return [_add_prefill_batch(window, last.get(window.replica)) for window in windows]


def _add_prefill_batch(window: Window, before: Window | None) -> Window:
    if before is None or not 0 < window.end - before.end < SUCCESSIVE_S:
        return window
    return lagged(window, before)


def find_prior(data: PerformanceData | None) -> PrefillDecodeParameters | None:
    """The configured parameters; None if they are of the third generation or later."""
    if data is None or data.perf_parms is not None or data.step_parms is not None:
        return None
    if data.decode_parms is None:
        return PrefillDecodeParameters(data.alpha or 0.0, data.beta or 0.0, 0.0, 0.0)
    decode, prefill = data.decode_parms, data.prefill_parms or PrefillParms(gamma=0, delta=0)
    return PrefillDecodeParameters(decode.alpha, decode.beta, prefill.gamma, prefill.delta)


def find_largest_batch(data: PerformanceData | None, windows: Sequence[Window]) -> float:
    """Largest batch of a replica for requests as those of the windows; 0 if unknown [requests].

    As in sizing: maxBatchSize holds for atTokens tokens per request, of which the first
    generation counts input and output, and the others output only.
    """
    if data is None or not windows:
        return 0.0
    outputs, inputs = (
        _find_mean(w.output_tokens for w in windows),
        _find_mean(w.prompt_tokens for w in windows),
    )
    tokens = outputs + inputs if data.alpha is not None else outputs
    batch = max(data.max_batch_size * data.at_tokens / max(tokens, 1.0) // 1, 1.0)
    limits = [data.max_num_seqs, data.max_tokens and data.max_tokens // max(inputs + outputs, 1)]
    return min(batch, *(float(limit) for limit in limits if limit)) if any(limits) else batch


def _find_mean(values: Iterable[float]) -> float:
    finite = [value for value in values if isfinite(value)]
    return fmean(finite) if finite else 0.0


@dataclass(frozen=True, slots=True)
class _PreviousData:
    """What is known of an accelerator so far: what is configured, and the row of before."""

    accelerator: str
    configured: PerformanceData | None
    before: CalibratedData | None
    now: datetime

    @property
    def configured_steps(self) -> StepParms | None:
        """The configured step time."""
        return self.configured.step_parms if self.configured else None


def _build_row(previous: _PreviousData, result: Calibration) -> CalibratedData:
    """What is known of an accelerator; after a refusal the usable parameters stay as before."""
    facts = result.facts
    seen = facts.rows >= FEWEST_ROWS
    fitted = _find_laws(previous, result)
    decode_parms, prefill_parms = _find_usable(result, previous.before)
    reason, message = _judge(previous, result, fitted)
    return CalibratedData(
        acc=previous.accelerator,
        reason=reason,
        message=message,
        time=previous.now,
        rows=facts.rows,
        rejected=tuple(RejectedWindows(reason=r, rows=n) for r, n in result.rejected.items()),
        least_batch=_round(facts.batches[0]) if seen else None,
        most_batch=_round(facts.batches[1]) if seen else None,
        avg_in_tokens=_round(facts.input_tokens) if seen else None,
        avg_out_tokens=_round(facts.output_tokens) if seen else None,
        shift=_round(facts.shift) if facts.shift else None,
        decode=_convert_decode(facts.decode) if seen else None,
        prefill=_convert_prefill(facts.prefill) if seen else None,
        expected=_convert_decode_parms(result.expected) if seen else None,
        decode_parms=decode_parms,
        prefill_parms=prefill_parms,
        step_parms=_find_step_parms(previous, result, fitted),
        hardly_known=_find_hardly_known(previous, result, fitted),
        perf_parms=_convert_budget(result.budget) if result.budget else None,
    )


def _find_laws(previous: _PreviousData, result: Calibration) -> Laws | None:
    """Both laws; None where lines describe the windows, and no steps are configured.

    To fit steps takes much longer than to fit lines.
    """
    if previous.configured_steps is None and result.facts.is_steady:
        return None
    budget = previous.configured_steps.budget if previous.configured_steps else 0
    return laws(result, budget, of_clients=False)


def _judge(
    previous: _PreviousData, result: Calibration, laws: Laws | None
) -> tuple[CalibrationReason, str]:
    """The result of a calibration with both laws, and which of them is taken."""
    if laws and laws.chosen_steps and laws.from_steps:
        steps, lines = laws.from_steps.mean, laws.from_lines.mean
        reason = result.reason if result.reason.usable else CalibrationReason.CALIBRATED
        rest = f"; {result.message}" if result.reason.usable else ""
        off = f"stepParms fit better: windows are {steps:.1%} off, not {lines:.1%}"
        return reason, f"{off}{_describe_doubts(laws.chosen_steps)}{rest}"
    if previous.configured_steps and result.reason.usable:
        return result.reason, f"{result.message}; {CONFIGURED_STEPS_STAY}"
    return result.reason, result.message


def _find_step_parms(
    previous: _PreviousData, result: Calibration, laws: Laws | None
) -> StepParms | None:
    if laws and laws.chosen_steps:
        upper = laws.chosen_steps.upper
        return StepParms(
            alpha=_round(upper.alpha),
            kappa=_round(upper.kappa),
            delta=_round(upper.delta),
            u=_round(upper.u),
            ahead=_round(upper.ahead),
            budget=int(upper.budget),
            overhead=_round(upper.overhead),
            min_in_tokens=upper.min_input_tokens,
            max_in_tokens=upper.max_input_tokens,
            min_out_tokens=upper.min_output_tokens,
            max_out_tokens=upper.max_output_tokens,
        )
    refused = not result.reason.usable
    return previous.before.step_parms if previous.before and refused else None


def _describe_doubts(steps: StepFit) -> str:
    if not steps.hardly_known:
        return ""
    names, valid = ", ".join(one.name for one in steps.hardly_known), steps.parameters
    inputs = f"{valid.min_input_tokens} to {valid.max_input_tokens} input"
    outputs = f"{valid.min_output_tokens} to {valid.max_output_tokens} output"
    return f"; {names} hardly known, so plans hold for {inputs} and {outputs} tokens only"


def _find_hardly_known(
    previous: _PreviousData, result: Calibration, laws: Laws | None
) -> tuple[HardlyKnownParameter, ...]:
    """The parameters of the step time that are hardly known; as before after a refusal."""
    if laws and laws.chosen_steps:
        return tuple(
            HardlyKnownParameter(name=one.name, error=_round(one.error), share=_round(one.share))
            for one in laws.chosen_steps.hardly_known
        )
    refused = not result.reason.usable
    return previous.before.hardly_known if previous.before and refused else ()


def _find_usable(
    result: Calibration, before: CalibratedData | None
) -> tuple[DecodeParms | None, PrefillParms | None]:
    if result.reason.usable:
        upper = result.upper
        prefill = PrefillParms(gamma=_round(upper.gamma), delta=_round(upper.delta))
        return _convert_decode_parms(upper), prefill
    return (before.decode_parms, before.prefill_parms) if before else (None, None)


def _convert_budget(budget: TokenBudgetParameters) -> PerfParms:
    alpha, beta, gamma = map(_round, (budget.alpha, budget.beta, budget.gamma))
    return PerfParms(alpha=alpha, beta=beta, gamma=gamma)


def _convert_decode_parms(parameters: PrefillDecodeParameters) -> DecodeParms:
    return DecodeParms(alpha=_round(parameters.alpha), beta=_round(parameters.beta))


def _convert_decode(line: LineFit) -> FittedDecode:
    return FittedDecode(
        alpha=_round(line.intercept),
        beta=_round(line.slope),
        alpha_error=_round(line.intercept_error),
        beta_error=_round(line.slope_error),
        residual=_round(line.residual),
        condition=_round(line.condition) if isfinite(line.condition) else None,
    )


def _convert_prefill(line: LineFit) -> FittedPrefill:
    return FittedPrefill(
        gamma=_round(line.intercept),
        delta=_round(line.slope),
        gamma_error=_round(line.intercept_error),
        delta_error=_round(line.slope_error),
        residual=_round(line.residual),
        condition=_round(line.condition) if isfinite(line.condition) else None,
    )


def _round(value: float) -> float:
    """Six significant digits: a delta may be as small as 0.00005."""
    return float(f"{value:.{DIGITS}g}")
