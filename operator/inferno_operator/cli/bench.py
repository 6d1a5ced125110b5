"""Runs a benchmark: one run after the other, each the one that tells most, until time is over."""

import asyncio
import csv
import io
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from inferno_operator.adapters.completions.client import EngineEndpoint, EngineError, connect
from inferno_operator.adapters.completions.load import Clients, TrialResult
from inferno_operator.runtime.files import append_bytes
from inferno_optimizer.calibration.plan import Scope, Shape, Trial, next_trial
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.errors import InputError

# Columns of the file, as `inferno calibrate` reads it.
COLUMNS = ("concurrency", "input_tokens", "output_tokens", "itl_ms", "ttft_ms")

PARTS = 8  # a run takes at most this part of the time
LEAST_S = 2.0  # time below which no further run begins [s]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is measured.

    `endpoint`: where the engine is; `scope`: what may be measured; `seconds`: the time for it
    [s]; `model`: the name under which the engine serves the model; "": the first that it tells;
    `seed`: of the random lengths and words.
    """

    endpoint: EngineEndpoint
    scope: Scope
    seconds: float
    model: str = ""
    seed: int = 0


def parse_shape(text: str) -> Shape:
    """Return the kind of requests in a text such as `512/128`.

    Raises InputError if the text is not two numbers above 0, the second above 1.
    """
    inputs, _, outputs = text.partition("/")
    if not (inputs.isdecimal() and outputs.isdecimal() and int(inputs) > 0 and int(outputs) > 1):
        raise InputError(f"--shape {text!r}: expected INPUT/OUTPUT tokens, such as 512/128")
    return Shape(int(inputs), int(outputs))


def require_consent(endpoint: EngineEndpoint, minutes: float, *, yes: bool) -> None:
    """Refuse to load an engine elsewhere that nobody has agreed to.

    Raises InputError if the engine is not on this machine, and `yes` is not given.
    """
    if not (endpoint.is_local or yes):
        raise InputError(
            f"{endpoint.url} is not on this machine, and a benchmark loads it fully for up to"
            f" {minutes:g} minutes: to do so, give --yes"
        )


async def runs(
    benchmark: Benchmark, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncGenerator[Trial | TrialResult]:
    """Yield each run before it begins, and what was measured in it.

    A run that began slower than it went on is made again, once, if there is time.

    `benchmark`: what is measured; `transport`: sends the requests; None: over the network.
    Raises EngineError if the engine does not answer as it should.
    """
    loop = asyncio.get_running_loop()
    made: list[Trial] = []
    windows: list[Window] = []
    again: Trial | None = None
    ends = loop.time() + benchmark.seconds
    async with connect(benchmark.endpoint, transport) as client:
        model = benchmark.model or await client.model()
        clients = Clients(client, model, random.Random(benchmark.seed))  # noqa: S311 - no secret
        await clients.learn()
        while (left := ends - loop.time()) > LEAST_S:
            trial = next_trial(benchmark.scope, made, windows)
            if trial is None:
                return
            yield trial
            longest = benchmark.seconds / PARTS
            measured = await clients.run(trial, min(left, longest))
            if measured.warm_up and trial != again and ends - loop.time() > longest:
                again = trial
                yield replace(measured, repeated=True)
                continue
            again = None
            made.append(trial)
            if measured.answers:
                windows.append(_require_stream(measured.window, benchmark.endpoint))
            yield measured


def _require_stream(window: Window, endpoint: EngineEndpoint) -> Window:
    if window.itl_ms > 0:
        return window
    raise EngineError(f"{endpoint.url}: all tokens of an answer come at once: it does not stream")


class RunsFile:
    """A CSV file with a line for each run, which is complete at any time.

    `path`: the file; it is made with the first run. Raises InputError if it exists already, or
    its folder does not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        if path.exists():
            raise InputError(f"{path}: exists already; name another file with --csv")
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}")

    def add(self, measured: TrialResult) -> None:
        """Append a run.

        Raises InputError if the file cannot be written, such as on a full disk; the text
        says what is kept.
        """
        window = measured.window
        numbers = (window.input_tokens, window.output_tokens, window.itl_ms, window.prefill_ms)
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        if not self.rows:
            lines.writerow(COLUMNS)
        lines.writerow((str(measured.trial.clients), *(f"{number:.6g}" for number in numbers)))
        try:
            append_bytes(self.path, text.getvalue().encode())
        except InputError as error:
            raise InputError(f"{error}; {self.kept}") from error
        self.rows += 1

    @property
    def kept(self) -> str:
        """What a message says of it."""
        if not self.rows:
            return "no run is complete"
        return f"{self.rows} {'run is' if self.rows == 1 else 'runs are'} in {self.path}"


async def measure(
    benchmark: Benchmark,
    file: RunsFile,
    begins: Callable[[Trial], None],
    ends: Callable[[TrialResult], None],
    transport: httpx.AsyncBaseTransport | None = None,
) -> None:
    """Make the runs; write each into the file, and tell when it begins and ends.

    Raises EngineError if the engine does not answer as it should; the text says what is kept.
    """
    try:
        async with aclosing(runs(benchmark, transport)) as steps:
            async for step in steps:
                if isinstance(step, Trial):
                    begins(step)
                    continue
                if step.answers and not step.repeated:
                    file.add(step)
                ends(step)
    except EngineError as error:
        raise EngineError(f"{error}; {file.kept}") from error
