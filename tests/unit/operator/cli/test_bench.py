"""`inferno bench` finds the parameters of engines, and keeps what it measured, in virtual time."""

import asyncio
import errno
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest

from inferno_operator.adapters.completions.client import EngineEndpoint, EngineError, connect
from inferno_operator.adapters.completions.load import Clients, TrialResult
from inferno_operator.cli.bench import (
    Benchmark,
    RunsFile,
    measure,
    parse_shape,
    require_consent,
    runs,
)
from inferno_operator.cli.calibration import calibrate_windows, read_measurements
from inferno_operator.cli.tables.calibration import describe_run
from inferno_optimizer.calibration.choice import Laws
from inferno_optimizer.calibration.plan import Scope, Shape, Trial
from inferno_optimizer.errors import InputError
from tests.engines.engine import Engine
from tests.engines.streaming import (
    MixedSteps,
    PrefillsApart,
    Steps,
    Stream,
    StreamingEngine,
    Transport,
    WarmingUp,
    event,
)
from tests.full_disk import room_for

HERE = EngineEndpoint("http://127.0.0.1:8000")
SHAPES = [Shape(256, 96), Shape(1024, 48), Shape(64, 192)]
BUDGET = 2048


def benchmark(seconds: float = 900.0) -> Benchmark:
    return Benchmark(HERE, Scope(SHAPES, 16, BUDGET), seconds)


async def measured(
    file: Path, transport: httpx.AsyncBaseTransport, seconds: float = 900.0
) -> list[TrialResult]:
    """The runs of a benchmark, which are written into a file."""
    done: list[TrialResult] = []
    await measure(benchmark(seconds), RunsFile(file), lambda _: None, done.append, transport)
    return done


async def found(folder: Path, steps: Steps) -> Laws:
    """What is found of an engine."""
    file = folder / "runs.csv"
    await measured(file, Transport(StreamingEngine(steps)), 300.0)
    return calibrate_windows(read_measurements([str(file)]), 0, BUDGET)


@pytest.mark.extended
async def test_the_steps_of_an_engine_that_mixes_are_found_within_5_percent(tmp_path: Path) -> None:
    laws = await found(tmp_path, MixedSteps(alpha=8.0, kappa=0.001, delta=0.03))

    assert laws.chosen_steps is not None
    steps = laws.chosen_steps.parameters
    assert steps.alpha == pytest.approx(8.0, rel=0.05)
    assert steps.kappa == pytest.approx(0.001, rel=0.05)
    assert steps.delta == pytest.approx(0.03, rel=0.05)
    assert steps.ahead == pytest.approx(0.0, abs=0.05)


@pytest.mark.extended
async def test_runs_of_an_engine_that_warms_up_are_made_again(tmp_path: Path) -> None:
    """It stands still at each new size of step."""
    cold = WarmingUp(MixedSteps(alpha=8.0, kappa=0.001, delta=0.03), still_s=0.5)
    file = tmp_path / "runs.csv"

    done = await measured(file, Transport(StreamingEngine(cold)), 300.0)

    repeated = [run for run in done if run.repeated]
    assert repeated
    assert len(file.read_text().splitlines()) == 1 + len(done) - len(repeated)
    assert [step.warm_up for step in done[:2]] == [0.0, pytest.approx(0.09, abs=0.01)]
    last = str([*describe_run(done[1])][-1])
    assert last.endswith("warm-up detected (+9% ITL): the run is repeated")
    assert done[2].trial == done[1].trial
    laws = calibrate_windows(read_measurements([str(file)]), 0, BUDGET)
    assert laws.chosen_steps is not None
    steps = laws.chosen_steps.parameters
    assert steps.alpha == pytest.approx(8.0, rel=0.05)
    assert steps.kappa == pytest.approx(0.001, rel=0.05)
    assert steps.delta == pytest.approx(0.03, rel=0.05)


@pytest.mark.extended
@pytest.mark.parametrize(
    "engine",
    [
        Engine(8.0, 0.2, 10.0, 0.001, max_batch_size=16),
        Engine(12.0, 0.05, 20.0, 0.002, max_batch_size=16),
        Engine(5.0, 0.5, 3.0, 0.0003, max_batch_size=16),
        Engine(20.0, 0.3, 30.0, 0.005, max_batch_size=16),
        Engine(8.0, 0.02, 5.0, 0.0005, max_batch_size=16),
        Engine(6.0, 0.1, 60.0, 0.004, max_batch_size=16),
    ],
    ids=str,
)
async def test_the_lines_of_an_engine_with_prefills_apart_are_found_within_5_percent(
    engine: Engine, tmp_path: Path
) -> None:
    laws = await found(tmp_path, PrefillsApart(engine))

    assert laws.chosen_steps is None
    facts = laws.lines.facts
    assert facts.decode.intercept == pytest.approx(engine.alpha, rel=0.05)
    assert facts.decode.slope == pytest.approx(engine.beta, rel=0.05)
    assert facts.prefill.intercept == pytest.approx(engine.gamma, rel=0.05)
    assert facts.prefill.slope == pytest.approx(engine.delta, rel=0.05)


async def test_what_is_measured_is_what_the_engine_did() -> None:
    async with aclosing(
        runs(benchmark(), Transport(StreamingEngine(MixedSteps(10, 0, 0.1))))
    ) as all_:
        first = await anext(step async for step in all_ if isinstance(step, TrialResult))

    assert first.trial.clients == 1
    assert first.errors == 0
    assert first.itl_ms == pytest.approx([10.0] * len(first.itl_ms))
    inputs = [answer.input_tokens for answer in first.answers]
    assert first.ttft_ms == pytest.approx([10.0 + 0.1 * tokens for tokens in inputs])
    assert 0.5 * 256 <= min(inputs) <= max(inputs) <= 1.5 * 256
    mean = sum(answer.output_tokens for answer in first.answers) / len(first.answers)
    assert first.window.output_tokens == mean
    table, counted = map(str, describe_run(first))
    assert table.splitlines()[1].split()[:2] == ["TTFT", f"{first.ttft_ms.mean():.2f}"]
    assert counted == f"40 requests, {first.tokens_per_second:.1f} tokens/s, 0 errors"


async def test_clients_that_are_slower_than_the_engine_are_told() -> None:
    """The time of the loop is that of the engine; that of the clients is real."""

    async def parts(alpha_ms: float) -> list[str]:
        async with connect(HERE, Transport(StreamingEngine(MixedSteps(alpha_ms, 0, 0)))) as client:
            clients = Clients(client, "granite", random.Random(0))  # noqa: S311 - no secret
            return list(map(str, describe_run(await clients.run(Trial(4, SHAPES[0]), 60.0))))

    assert not any("busy" in part for part in await parts(100.0))
    assert "the clients were busy for " in (await parts(1e-3))[-1]


async def test_a_short_run_has_the_waits_of_a_long_one() -> None:
    """The prompts of all clients do not come together at its beginning."""
    trial = Trial(48, Shape(1536, 96))

    async def ttft_ms(longest_s: float) -> float:
        transport = Transport(StreamingEngine(MixedSteps(8.0, 0.0002, 0.02)))
        async with connect(HERE, transport) as client:
            chance = random.Random(0)  # noqa: S311 - no secret
            run = await Clients(client, "granite", chance).run(trial, longest_s)
        return float(run.ttft_ms.mean())

    assert await ttft_ms(8.0) == pytest.approx(await ttft_ms(1000.0), rel=0.15)


Answer = Callable[[httpx.Request], httpx.Response]


class Failing(httpx.AsyncBaseTransport):
    """Answers as an engine does, until so many requests were made."""

    def __init__(self, after: int, answer: Answer) -> None:
        self._transport = Transport(StreamingEngine(MixedSteps(8.0, 0.001, 0.03)))
        self._left, self._answer = after, answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._left -= 1
        if self._left >= 0:
            return await self._transport.handle_async_request(request)
        return self._answer(request)


def raising(error: httpx.TransportError, cause: Exception | None = None) -> Answer:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error from cause

    return answer


def streaming(*parts: bytes) -> Answer:
    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return lambda _: httpx.Response(200, stream=Stream(body()))


TOKEN = event({"choices": [{"text": "a"}]})
REFUSED = OSError("All connection attempts failed")
REFUSED.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)")
FAULTS = {
    "dies": (
        raising(httpx.ConnectError("All connection attempts failed"), REFUSED),
        "the engine does not answer: connection refused",
    ),
    "breaks off": (streaming(TOKEN), "the answer breaks off"),
    "429": (lambda _: httpx.Response(429, text="slow\ndown"), "status 429: slow down"),
    "500": (lambda _: httpx.Response(500, text="x" * 500), f"status 500: {'x' * 120}..."),
    "garbage": (streaming(b"<html>hello</html>\n"), "this is no answer: <html>hello</html>"),
    "error in the stream": (streaming(event({"error": {"message": "no"}})), "this is no answer"),
    "nothing": (streaming(b"data: [DONE]\n\n"), "the answer has no token"),
    "slowly": (raising(httpx.ReadTimeout("")), "no token within 60 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_of_an_engine_that_fails_what_was_measured_stays(fault: str, tmp_path: Path) -> None:
    answer, message = FAULTS[fault]
    file = tmp_path / "runs.csv"

    with pytest.raises(EngineError) as error:
        await measured(file, Failing(100, answer))

    assert str(error.value).startswith(f"{HERE.url}: {message}")
    assert "\n" not in str(error.value)
    rows = file.read_text().splitlines()[1:]
    assert str(error.value).endswith(
        f"; {len(rows)} run{'s are' if len(rows) > 1 else ' is'} in {file}"
    )
    assert len(rows) == 1
    assert len(read_measurements([str(file)]).windows) == 1


class EachSeventh(Failing):
    """Fails now and then."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(0, answer)
        self._asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._asked += 1
        self._left = 1 if self._asked % 7 else 0
        return await super().handle_async_request(request)


async def test_single_failures_are_counted(tmp_path: Path) -> None:
    done = await measured(tmp_path / "runs.csv", EachSeventh(FAULTS["500"][0]), 60.0)

    whole = [run for run in done if len(run.answers) + run.errors == 40]
    assert whole
    assert all(4 <= run.errors <= 7 for run in whole)


async def test_an_engine_that_does_not_stream_is_refused(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 9}
    whole = (TOKEN, event({"choices": [], "usage": usage}), b"data: [DONE]\n\n")

    with pytest.raises(EngineError, match=r"come at once: it does not stream; no run is complete$"):
        await measured(tmp_path / "runs.csv", Failing(1, streaming(*whole)))


class Silent(Failing):
    """Never ends an answer but the first."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()
        return await self._transport.handle_async_request(request)


async def test_an_engine_that_is_too_slow_ends_with_the_time(tmp_path: Path) -> None:
    done = await measured(tmp_path / "runs.csv", Silent(2, FAULTS["500"][0]), 60.0)

    assert done
    assert all(
        list(describe_run(run)) == ["no request was answered in time, 0 errors"] for run in done
    )
    assert not (tmp_path / "runs.csv").exists()


async def test_a_connection_that_was_closed_is_opened_anew(tmp_path: Path) -> None:
    closed = raising(httpx.RemoteProtocolError("Server disconnected without sending a response."))

    done = await measured(tmp_path / "runs.csv", EachSeventh(closed), 60.0)

    assert done
    assert all(run.errors == 0 for run in done)


async def test_an_engine_that_fails_at_once_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"

    with pytest.raises(EngineError, match=r"; no run is complete$"):
        await measured(file, Failing(0, FAULTS["500"][0]))

    assert not file.exists()


async def test_a_full_disk_keeps_the_runs_that_were_made(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"

    with room_for(150), pytest.raises(InputError) as refused:
        await measured(file, Transport(StreamingEngine(MixedSteps(10, 0, 0.1))), 300.0)

    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) > 2
    assert all(line.count(",") == 4 and line.endswith("\n") for line in lines)
    kept = f"{len(lines) - 1} runs are in {file}"
    assert str(refused.value) == f"{file}: File too large; {kept}"


def test_a_file_that_exists_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("mine")

    with pytest.raises(InputError, match="exists already; name another file with --csv"):
        RunsFile(file)
    with pytest.raises(InputError, match="there is no folder"):
        RunsFile(tmp_path / "missing" / "runs.csv")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:8000", "127.9.9.9"])
def test_this_machine_is_measured_without_asking(host: str) -> None:
    here = EngineEndpoint(f"http://{host}")

    require_consent(here, 15, yes=False)

    assert here.is_local


@pytest.mark.parametrize(
    "host", ["llm.example.com", "10.0.0.1", "localhost.example.com", "[::2]", "127.0.0.1.nip.io"]
)
def test_other_machines_are_measured_with_consent_only(host: str) -> None:
    there = EngineEndpoint(f"https://{host}")

    with pytest.raises(InputError, match=r"not on this machine.*up to 15 minutes.*give --yes"):
        require_consent(there, 15, yes=False)
    require_consent(there, 15, yes=True)


@pytest.mark.parametrize("text", ["512", "512/", "/128", "0/128", "512/1", "a/b", "512/128/3"])
def test_a_shape_is_two_numbers(text: str) -> None:
    with pytest.raises(InputError, match="expected INPUT/OUTPUT tokens"):
        parse_shape(text)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://", ""])
def test_a_url_is_that_of_an_engine(url: str) -> None:
    with pytest.raises(InputError, match="is no URL of an engine"):
        EngineEndpoint(url)


def test_the_key_is_sent_and_never_told(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-1\n")

    assert EngineEndpoint(HERE.url, key).headers() == {"Authorization": "Bearer secret-1"}
    for text in ("", "two words"):
        key.write_text(text)
        with pytest.raises(InputError, match="has no API key") as error:
            EngineEndpoint(HERE.url, key).headers()
        assert "two" not in str(error.value)
    with pytest.raises(InputError, match="No such file"):
        EngineEndpoint(HERE.url, tmp_path / "missing").headers()


async def test_requests_are_what_engines_understand(tmp_path: Path) -> None:
    bodies: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(500)

    with pytest.raises(EngineError):
        await measured(tmp_path / "runs.csv", Failing(1, answer))

    (body,) = bodies
    assert body["model"] == "granite"
    assert body["stream"] is True
    assert body["max_tokens"] == body["min_tokens"] == 2
