"""Windows or benchmark runs -> a calibration, or a refusal that names the run that would help."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from inferno_operator.cli.offline.runs import read_runs
from inferno_optimizer.calibration.calibrate import Calibration, Evidence, calibrate
from inferno_optimizer.calibration.choice import Laws, laws
from inferno_optimizer.calibration.verdict import next_batch
from inferno_optimizer.calibration.windows import RUNS, Requirements, Window, judged
from inferno_optimizer.errors import CalibrationError, InputError


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a calibration is made from.

    Attributes
    ----------
    windows
        What replicas did, or benchmark runs.
    requirements
        What windows must have.
    name
        What they are called, in the plural: `runs`, `windows`.
    warnings
        Which of them are not used, and why.
    of_clients
        Whether each is of a fixed number of clients that wait for their answers.
    """

    windows: Sequence[Window]
    requirements: Requirements
    name: str
    warnings: Sequence[str]
    of_clients: bool = False


def read_measurements(files: Sequence[str]) -> Measurements:
    """Read benchmark runs.

    Raises
    ------
    InputError
        There is no file, or a file cannot be read.
    """
    if not files:
        raise InputError("what was measured? Give files, or --prometheus and --labels")
    runs, warnings = read_runs(files)
    windows = [run.window for run in runs]
    unused = (
        f"{window.replica}: is not used: {reason}"
        for window, reason in judged(windows, RUNS)
        if reason
    )
    of_clients = all(isfinite(run.concurrency) for run in runs)
    return Measurements(windows, RUNS, "runs", [*warnings, *unused], of_clients)


def calibrate_windows(measured: Measurements, largest_batch: float, budget: float = 0.0) -> Laws:
    """Calibrate a model on an accelerator; older windows count less than the newest.

    Parameters
    ----------
    measured
        What was measured.
    largest_batch
        Largest batch of a replica [requests]; 0: the largest one of the windows.
    budget
        Most tokens that a step of the engine computes; 0: any number.

    Raises
    ------
    CalibrationError
        The windows do not determine the parameters.
    """
    newest = max((window.end for window in measured.windows), default=0.0)
    evidence = Evidence(
        measured.windows, largest_batch=largest_batch, of_clients=measured.of_clients
    )
    (result,) = calibrate([evidence], newest, measured.requirements)
    fitted = laws(result, budget, of_clients=measured.of_clients)
    if not (result.reason.usable or fitted.chosen_steps):
        raise CalibrationError(f"{result.reason}: {result.message}. {_name_helpful_run(result)}")
    return fitted


def _name_helpful_run(result: Calibration) -> str:
    facts = result.facts
    return (
        f"The run that would help most: concurrency {max(next_batch(facts), 1):.0f},"
        f" {facts.input_tokens:.0f} input tokens, {facts.output_tokens:.0f} output tokens"
    )
