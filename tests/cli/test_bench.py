"""`inferno bench` over a real connection, with an engine of tests."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.program import PROGRAM, inferno
from tests.controlplane.processes import Processes
from tests.engines.inference_sim import InferenceSim, SimulatorSettings
from tests.engines.streaming import LoopbackEngine, MixedSteps, StreamingEngine
from tests.loops import VirtualTimeLoop

NAMES = ("--model", "llama-8b", "--accelerator", "H100")
SMALL = ("--shape", "30/6", "--shape", "120/4", "--max-concurrency", "4", "--minutes", "0.25")


@pytest.fixture
def engine() -> Iterator[LoopbackEngine]:
    with LoopbackEngine(StreamingEngine(MixedSteps(alpha=10.0, kappa=0.0, delta=0.0))) as engine:
        yield engine


@pytest.fixture
def served(engine: LoopbackEngine, monkeypatch: pytest.MonkeyPatch) -> LoopbackEngine:
    """The engine in the loop of the command, where both have the same virtual time."""
    tasks: list[asyncio.Task[None]] = []

    def new_loop() -> VirtualTimeLoop:
        loop = VirtualTimeLoop()
        tasks.append(loop.create_task(engine.serve()))
        return loop

    monkeypatch.setattr(asyncio.events, "new_event_loop", new_loop)
    return engine


def test_it_tells_each_run_and_prints_a_model_and_writes_what_calibrate_reads(
    served: LoopbackEngine, tmp_path: Path
) -> None:
    file, key = tmp_path / "runs.csv", tmp_path / "key"
    key.write_text("secret\n")

    done = inferno("bench", served.url, *NAMES, *SMALL, "--csv", file, "--key-file", key)

    assert done.returncode == 0, done.stderr
    (model,) = yaml.safe_load_all(done.stdout)
    assert (model["kind"], model["spec"]["data"][0]["acc"]) == ("Model", "H100")
    told = done.stderr.decode()
    assert told.startswith("measuring 1 client, 30 input and 6 output tokens\n")
    assert "MS  " in told
    assert " requests, " in told
    assert " tokens/s, 0 errors\n" in told
    assert served.keys == {"Bearer secret"}
    assert "secret" not in told
    again = inferno("calibrate", file, *NAMES)
    assert again.stdout == done.stdout


async def test_ctrl_c_keeps_what_was_measured(engine: LoopbackEngine, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    arguments = (engine.url, *NAMES, *SMALL, "--csv", file, "--minutes", "5")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(engine.serve())
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "bench", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        while not file.exists():
            assert await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        stdout, stderr = await process.communicate()
        serving.cancel()

    lines = file.read_text().splitlines()
    assert (process.returncode, stdout) == (130, b"")
    assert stderr.decode().splitlines()[-1].startswith("warning: interrupted; ")
    assert b"Traceback" not in stderr
    assert lines[0] == "concurrency,input_tokens,output_tokens,itl_ms,ttft_ms"
    assert {line.count(",") for line in lines} == {4}


@pytest.mark.slow
@pytest.mark.soak("takes a minute")
def test_the_parameters_of_the_simulator_of_others_are_found_within_5_percent(
    inference_sim: Path, tmp_path: Path
) -> None:
    """Its latencies are the same at each concurrency, and long beside the pauses of a machine."""
    settings = SimulatorSettings("granite", inter_token_ms=100.0, prefill_ms=500.0)
    lengths = ("--shape", "100/6", "--max-concurrency", "8", "--minutes", "1")
    with (
        Processes() as processes,
        InferenceSim(processes, inference_sim, "sim", settings) as simulator,
    ):
        done = inferno("bench", simulator.url, *NAMES, *lengths, "--csv", tmp_path / "runs.csv")

    assert done.returncode == 0, done.stderr
    (model,) = yaml.safe_load_all(done.stdout)
    (data,) = model["spec"]["data"]
    assert data["decodeParms"]["alpha"] == pytest.approx(100.0, rel=0.05)
    assert data["prefillParms"]["gamma"] == pytest.approx(500.0, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://llm.example.com:8000",), "to do so, give --yes"),
        (("localhost:8000",), "is no URL of an engine"),
        (("http://localhost:1", "--shape", "512"), "expected INPUT/OUTPUT tokens"),
        (("http://localhost:1", "--key-file", "missing"), "missing: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = inferno("bench", *arguments, *NAMES)

    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_an_engine_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = inferno("bench", "http://127.0.0.1:1", *NAMES, "--csv", tmp_path / "runs.csv")

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("inferno: http://127.0.0.1:1: ")
    assert done.stderr.decode().endswith("; no run is complete\n")
    assert done.stderr.count(b"\n") == 1
