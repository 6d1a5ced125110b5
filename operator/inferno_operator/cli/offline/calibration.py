"""Results of benchmark runs -> a calibration, or a refusal that names the run that would help."""

from collections.abc import Sequence

from inferno_operator.cli.offline.runs import REQUIREMENTS, Run
from inferno_optimizer.calibration.calibrate import Calibration, Evidence, calibrate
from inferno_optimizer.calibration.verdict import next_batch
from inferno_optimizer.calibration.windows import judged
from inferno_optimizer.errors import CalibrationError


def unusable(runs: Sequence[Run]) -> list[str]:
    """Warnings about runs that are not used, with the reason."""
    judgements = judged([run.window for run in runs], REQUIREMENTS)
    return [f"{window.replica}: is not used: {reason}" for window, reason in judgements if reason]


def calibrate_runs(runs: Sequence[Run], largest_batch: float) -> Calibration:
    """Calibrate a model on an accelerator with benchmark runs.

    Parameters
    ----------
    runs
        The runs.
    largest_batch
        Largest batch of a replica [requests]; 0: the largest one of the runs.

    Raises
    ------
    CalibrationError
        The runs do not determine the parameters.
    """
    windows = [run.window for run in runs]
    (result,) = calibrate([Evidence(windows, largest_batch=largest_batch)], 0.0, REQUIREMENTS)
    if not result.reason.usable:
        raise CalibrationError(f"{result.reason}: {result.message}. {_helpful_run(result)}")
    return result


def _helpful_run(result: Calibration) -> str:
    facts = result.facts
    return (
        f"The run that would help most: concurrency {max(next_batch(facts), 1):.0f},"
        f" {facts.input_tokens:.0f} input tokens, {facts.output_tokens:.0f} output tokens"
    )
