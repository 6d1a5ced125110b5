"""`inferno bench` over a real connection, with an engine in a thread."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.cli.program import PROGRAM, inferno
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.engines.inference_sim import InferenceSim, SimulatorSettings

NAMES = ("--model", "llama-8b", "--accelerator", "H100")
SMALL = ("--shape", "30/6", "--shape", "120/4", "--max-concurrency", "4", "--minutes", "0.25")
STEP_S = 0.05


class Engine(BaseHTTPRequestHandler):
    """Makes a token each step, alike for all requests."""

    server: "Server"

    def do_GET(self) -> None:
        """Tell the model."""
        self._send(b'{"data": [{"id": "served"}]}')

    def do_POST(self) -> None:
        """Complete a prompt."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.keys.add(self.headers.get("Authorization"))
        self.send_response(200)
        self.end_headers()
        words, tokens = len(body["prompt"].split()), body["max_tokens"]
        try:
            for _ in range(tokens):
                time.sleep(STEP_S)  # it is the engine
                self._event({"choices": [{"text": "a"}]})
            usage = {"prompt_tokens": words, "completion_tokens": tokens}
            self._event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has gone

    def log_message(self, _format: str, *_arguments: object) -> None:
        """Say nothing."""

    def _event(self, document: object) -> None:
        self.wfile.write(f"data: {json.dumps(document)}\n\n".encode())
        self.wfile.flush()

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """An engine on a port of loopback."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Engine)
        self.keys: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def engine() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_it_tells_each_run_and_prints_a_model_and_writes_what_calibrate_reads(
    engine: Server, tmp_path: Path
) -> None:
    file, key = tmp_path / "runs.csv", tmp_path / "key"
    key.write_text("secret\n")

    done = inferno("bench", engine.url, *NAMES, *SMALL, "--csv", file, "--key-file", key)

    assert done.returncode == 0, done.stderr
    (model,) = yaml.safe_load_all(done.stdout)
    assert (model["kind"], model["spec"]["data"][0]["acc"]) == ("Model", "H100")
    told = done.stderr.decode()
    assert told.startswith("measuring 1 client, 30 input and 6 output tokens\n")
    assert "MS  " in told
    assert " requests, " in told
    assert " tokens/s, 0 errors\n" in told
    assert engine.keys == {"Bearer secret"}
    assert "secret" not in told
    again = inferno("calibrate", file, *NAMES)
    assert again.stdout == done.stdout


def test_ctrl_c_keeps_what_was_measured(engine: Server, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    command: list[str | Path] = [
        PROGRAM,
        "bench",
        engine.url,
        *NAMES,
        *SMALL,
        "--csv",
        file,
        "--minutes",
        "5",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: file.exists() and file.read_text(), bool, "a run")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)

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
