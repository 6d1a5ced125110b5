"""Windows or benchmark runs -> a calibration, or a refusal that names the run that would help."""

from collections.abc import Sequence

from inferno_operator.cli.offline.runs import REQUIREMENTS, Run
from inferno_optimizer.calibration.calibrate import Calibration, Evidence, calibrate
from inferno_optimizer.calibration.verdict import next_batch
from inferno_optimizer.calibration.windows import Requirements, Window, judged
from inferno_optimizer.errors import CalibrationError


def unusable(runs: Sequence[Run]) -> list[str]:
    """Warnings about runs that are not used, with the reason."""
    judgements = judged([run.window for run in runs], REQUIREMENTS)
    return [f"{window.replica}: is not used: {reason}" for window, reason in judgements if reason]


def calibrate_windows(
    windows: Sequence[Window], largest_batch: float, requirements: Requirements
) -> Calibration:
    """Calibrate a model on an accelerator; older windows count less than the newest.

    Parameters
    ----------
    windows
        What replicas did, or benchmark runs.
    largest_batch
        Largest batch of a replica [requests]; 0: the largest one of the windows.
    requirements
        What windows must have.

    Raises
    ------
    CalibrationError
        The windows do not determine the parameters.
    """
    newest = max((window.end for window in windows), default=0.0)
    evidence = Evidence(windows, largest_batch=largest_batch)
    (result,) = calibrate([evidence], newest, requirements)
    if not result.reason.usable:
        raise CalibrationError(f"{result.reason}: {result.message}. {_helpful_run(result)}")
    return result


def _helpful_run(result: Calibration) -> str:
    facts = result.facts
    return (
        f"The run that would help most: concurrency {max(next_batch(facts), 1):.0f},"
        f" {facts.input_tokens:.0f} input tokens, {facts.output_tokens:.0f} output tokens"
    )
