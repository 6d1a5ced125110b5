"""Predict an engine out of sample: `python -m tests.h100.trial URL FOLDER --batch 48`.

Measures the engine with `inferno bench`, predicts random arrivals at several rates and lengths from
the Model that it prints, writes the predictions down, and only then measures. Each run is written
when it is over, so that nothing is lost if the time ends: `bench.csv`, `model.yaml`,
`predicted.csv`, `requests.csv`.
"""

import argparse
import asyncio
import csv
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import yaml

from inferno_operator.adapters.completions.client import (
    Completion,
    EngineClient,
    EngineEndpoint,
    connect,
)
from inferno_operator.adapters.completions.load import LONGEST, SHORTEST, WORDS
from inferno_operator.cli.bench import shape_of
from inferno_optimizer.calibration.plan import Shape
from inferno_optimizer.system import StepParameters
from tests.h100.runs import P95, fitted, latencies, replica

FIRST_S = 8.0
"""Arrivals at the beginning of a run that do not count [s]."""

LONGEST_END_S = 8.0
"""Time after which a run ends although a request that counts has no answer [s]."""

WARM_CLIENTS = 16

CACHED = "cached"
"""Name of runs whose prompts begin alike."""

STEPS = ("alpha", "kappa", "delta", "u", "ahead", "budget", "overhead")
"""The numbers of `stepParms` that a prediction takes."""


@dataclass(frozen=True)
class Arrivals:
    """A run: requests of a shape at a rate, which is a share of the predicted saturation."""

    name: str
    shape: Shape
    share: float
    seconds: float
    """Time in which arrivals count [s]."""
    same: int = 0
    """Words that all prompts begin with."""


@dataclass(frozen=True)
class Expected:
    """What is predicted for a run: rates in requests/s, times in ms; its time [s]."""

    name: str
    saturation: float
    rate: float
    itl: float
    itl_p95: float
    ttft: float
    ttft_p95: float
    seconds: float
    cached: int


@dataclass(frozen=True)
class Request:
    """A request of a run: its arrival since the start, first and last token since that [ms]."""

    name: str
    arrival: float
    input_tokens: int
    output_tokens: int
    first: float
    last: float


def planned(options: argparse.Namespace) -> Iterator[Arrivals]:
    """The runs: percents of the saturation, with what tells them apart."""
    shape = shape_of(options.usual[0])
    for text in options.runs:
        percent, _, kind = text.partition("-")
        same = options.same if kind == CACHED else 0
        seconds = options.cached if same else options.each
        name = f"o-{shape.input_tokens}-{shape.output_tokens}-{text}"
        yield Arrivals(name, shape, float(percent) / 100.0, seconds, same)


def expected(parameters: StepParameters, batch: int, run: Arrivals) -> Expected:
    """What the parameters predict for a run."""
    inputs, outputs = run.shape.input_tokens, run.shape.output_tokens
    model = replica(parameters, batch, inputs, outputs, cached=run.same)
    saturation = 1000.0 * batch / float(model.full_ms[0])
    rate = run.share * saturation
    found = latencies(model, rate)
    itl, ttft = found.itl_percentiles[0, P95], found.ttft_percentiles[0, P95]
    return Expected(
        run.name,
        saturation,
        rate,
        float(found.itl_ms[0]),
        float(itl),
        float(found.ttft_ms[0]),
        float(ttft),
        run.seconds,
        run.same,
    )


class Writer:
    """A CSV file that is complete after each row."""

    def __init__(self, path: Path, kind: type) -> None:
        self.path = path
        self._write("w", [tuple(field.name for field in fields(kind))])

    def add(self, rows: Sequence[Expected] | Sequence[Request]) -> None:
        """Append rows."""
        self._write("a", [astuple(row) for row in rows])

    def _write(self, mode: str, rows: Sequence[tuple[object, ...]]) -> None:
        with self.path.open(mode, encoding="utf-8", newline="") as file:
            texts = [[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows]
            csv.writer(file, lineterminator="\n").writerows(texts)


@dataclass
class Users:
    """Send random requests; `same` words of a prompt are those with which all begin."""

    client: EngineClient
    model: str
    chance: random.Random

    async def one(self, shape: Shape, same: int = 0) -> Completion:
        """One request of random lengths."""
        own, outputs = (
            max(round(mean * self.chance.uniform(SHORTEST, LONGEST)), 2)
            for mean in (shape.input_tokens - same, shape.output_tokens)
        )
        words = [WORDS[0]] * same + self.chance.choices(WORDS, k=own)
        return await self.client.complete(self.model, words, outputs)

    async def warm(self, shapes: Sequence[Shape], seconds: float) -> None:
        """Let the engine see each of the shapes so long [s]."""
        for shape in shapes:
            done = await self._closed(shape, WARM_CLIENTS, seconds)
            print(f"warmed with {WARM_CLIENTS} clients: {done} answers", flush=True)

    async def _closed(self, shape: Shape, clients: int, seconds: float) -> int:
        """Answers that a number of clients have in so many seconds."""
        over, done = asyncio.Event(), 0

        async def ask() -> None:
            nonlocal done
            while not over.is_set():
                await self.one(shape)
                done += 1

        tasks = [asyncio.create_task(ask()) for _ in range(clients)]
        await asyncio.wait(tasks, timeout=seconds)
        over.set()
        await _cancelled(tasks)
        return done

    async def arrive(self, run: Arrivals, rate: float) -> list[Request]:
        """Requests that arrive at random; also those in the first time, which do not count.

        In the time that counts there are as many as the rate says.
        """
        found: list[Request] = []
        now, ends = asyncio.get_running_loop().time, FIRST_S + run.seconds
        began = now()

        async def ask() -> None:
            done = await self.one(run.shape, run.same)
            times = (1000.0 * (t - done.asked) for t in (done.first, done.last))
            counted = (done.input_tokens, done.output_tokens)
            found.append(Request(run.name, done.asked - began, *counted, *times))

        tasks: list[asyncio.Task[None]] = []

        async def send() -> None:
            for arrival in self._arrivals(rate, run.seconds):
                await asyncio.sleep(max(arrival - (now() - began), 0.0))
                tasks.append(asyncio.create_task(ask()))

        sender = asyncio.create_task(send())
        await asyncio.sleep(ends)
        await asyncio.wait(list(tasks), timeout=LONGEST_END_S)
        sender.cancel()
        await _cancelled(tasks)
        return sorted((r for r in found if r.arrival < ends), key=lambda r: r.arrival)

    def _arrivals(self, rate: float, seconds: float) -> list[float]:
        """When requests come, since the start of a run [s]."""
        parts = (0.0, FIRST_S), (FIRST_S, seconds), (FIRST_S + seconds, LONGEST_END_S)
        return sorted(
            begin + length * self.chance.random()
            for begin, length in parts
            for _ in range(round(rate * length))
        )


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    _, late = await asyncio.wait(tasks, timeout=LONGEST_END_S)
    for task in late:
        task.print_stack()


def printed(model: str) -> StepParameters | None:
    """The parameters in the manifest of a Model."""
    document = yaml.safe_load(model) or {"spec": {"data": [{}]}}
    steps = document["spec"]["data"][0].get("stepParms")
    return steps and StepParameters(**{name: steps[name] for name in STEPS if name in steps})


def benchmark(options: argparse.Namespace, folder: Path) -> StepParameters:
    """Measure with our command, unless there is a Model; the parameters that it prints."""
    if options.printed:
        found = printed(Path(options.printed).read_text(encoding="utf-8"))
        assert found is not None
        return found
    shapes = [part for shape in options.usual for part in ("--shape", shape)]
    command = ["bench", options.url, "--model", "m", "--accelerator", "GPU", *shapes]
    command += ["--max-concurrency", str(options.batch), "--minutes", str(options.minutes)]
    program = "from inferno_operator.cli.entry import inferno; inferno()"
    csv_file = folder / "bench.csv"
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "--csv", str(csv_file)],
        stdout=subprocess.PIPE,
        check=False,
    )
    (folder / "model.yaml").write_bytes(done.stdout)
    found = printed(done.stdout.decode())
    if found is None:
        print("no stepParms are printed: fitted all the same", flush=True)
    return found or fitted(str(csv_file)).parameters


async def measure(options: argparse.Namespace) -> None:
    """All of it, as long as there is time."""
    folder, ends = Path(options.folder), time.monotonic() + options.seconds
    usual = [shape_of(text) for text in options.usual]
    async with connect(EngineEndpoint(options.url)) as client:
        users = Users(client, await client.model(), random.Random(options.seed))  # noqa: S311
        await users.warm(usual, options.warm)
        print(f"warm, {ends - time.monotonic():.0f} s left", flush=True)
        parameters = benchmark(options, folder)
        runs = [(run, expected(parameters, options.batch, run)) for run in planned(options)]
        Writer(folder / "predicted.csv", Expected).add([predicted for _, predicted in runs])
        file = Writer(folder / "requests.csv", Request)
        for run, predicted in runs:
            if ends - time.monotonic() < FIRST_S + run.seconds + LONGEST_END_S:
                return
            busy = time.process_time()
            requests = await users.arrive(run, predicted.rate)
            file.add(requests)
            busy = (time.process_time() - busy) / (FIRST_S + run.seconds)
            counted = [request for request in requests if request.arrival >= FIRST_S]
            print(summary(counted, predicted, run.seconds), f"busy {busy:.2f}", flush=True)


def summary(requests: Sequence[Request], predicted: Expected, seconds: float) -> str:
    """A run in a line: measured (predicted)."""
    if not requests:
        return f"{predicted.name}: no request"
    intervals = sum(r.output_tokens - 1 for r in requests)
    itl = sum(r.last - r.first for r in requests) / max(intervals, 1)
    ttft = sorted(r.first for r in requests)
    mean, p95 = sum(ttft) / len(ttft), ttft[int(0.95 * len(ttft))]
    return (
        f"{predicted.name}: {len(requests) / seconds:.2f}/s ({predicted.rate:.2f}),"
        f" ITL {itl:.2f} ({predicted.itl:.2f}), TTFT {mean:.1f} ({predicted.ttft:.1f}),"
        f" p95 {p95:.1f} ({predicted.ttft_p95:.1f})"
    )


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url")
    options.add_argument("folder")
    options.add_argument("--batch", type=int, default=48, help="largest batch of the engine")
    options.add_argument("--warm", type=float, default=3.0, help="seconds of a shape to warm up")
    options.add_argument("--minutes", type=float, default=2.3, help="of `inferno bench`")
    options.add_argument("--printed", default="", help="file with a Model, instead of measuring")
    options.add_argument(
        "--runs", nargs="+", default=["85", "75", "85-cached", "60-cached", "85-2"]
    )
    options.add_argument("--each", type=float, default=55.0, help="seconds of a run that count")
    options.add_argument("--cached", type=float, default=40.0, help="the same with cached prompts")
    options.add_argument("--seconds", type=float, default=500.0, help="for all of it")
    options.add_argument("--seed", type=int, default=26)
    options.add_argument("--usual", nargs="+", default=["1280/128", "2560/64", "256/320"])
    options.add_argument("--same", type=int, default=768, help="words that cached prompts share")
    asyncio.run(measure(options.parse_args()))


if __name__ == "__main__":
    main()
