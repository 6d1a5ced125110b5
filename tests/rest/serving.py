"""A real `inferno serve`, started or copied, and requests to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx

from tests.cli.program import PROGRAM, ROOT
from tests.controlplane.operator_process import ENTRY
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until

IMPORTS = ("inferno_optimizer.api.server",)


@dataclass(frozen=True)
class Served:
    """A server that listens at `url`."""

    url: str
    pid: int
    log: Path

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S)

    def workers(self) -> list[int]:
        """Processes that optimize."""
        return children(self.pid)


@dataclass(frozen=True)
class Started(Served):
    """One that is a child of this process."""

    process: subprocess.Popen[str]

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


def empty(client: httpx.Client) -> None:
    """Remove all that a server was told."""
    for what, names in told(client).items():
        for name in names:
            client.get(f"/remove{what}/{quote(name, safe='')}").raise_for_status()
    assert not any(told(client).values())


def told(client: httpx.Client) -> dict[str, list[str]]:
    """Names of all that a server was told."""
    servers, counts = client.get("/getServers").json(), client.get("/getCapacities").json()
    classes = client.get("/getServiceClasses").json()
    return {
        "Server": [item["name"] for item in servers["servers"] or ()],
        "ServiceClass": [item["name"] for item in classes["serviceClasses"] or ()],
        "Model": client.get("/getModels").json() or [],
        "Capacity": [item["type"] for item in counts["count"] or ()],
        "Accelerator": [item["name"] for item in client.get("/getAccelerators").json() or ()],
    }


def children(pid: int) -> list[int]:
    """Processes that a process started; none when it has ended."""
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except FileNotFoundError:
        return []


@contextmanager
def connected(server: Served) -> Iterator[socket.socket]:
    """A connection to a server, on which anything can be sent."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S) as connection:
        yield connection


def sent_by_post(path: str, body: bytes) -> bytes:
    """A whole request, as it is sent on a connection."""
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(),
        len(body),
        body,
    )


@contextmanager
def copied(processes: Processes, *arguments: str) -> Iterator[Served]:
    """Serve on a free port while the context lasts, where all imports have been done.

    The log begins with the line that says where it listens.
    """
    name = f"optimizer-{uuid.uuid4().hex[:8]}"
    variables = {name: value for name, value in os.environ.items() if "INFERNO" not in name}
    variables["PYTHONUNBUFFERED"] = "1"
    pid = processes.fork(name, ENTRY, ["serve", "--port", "0", *arguments], variables, IMPORTS)
    log = processes.log_path(name)

    def listening() -> str:
        processes.require_running(name)
        return log.read_text()

    try:
        line = wait_until(listening, lambda text: text.endswith("\n"), "a server")
        assert line.startswith("listening on "), line
        yield Served(line.split()[2], pid, log)
    finally:
        processes.stop(name, signal.SIGKILL)


@contextmanager
def serving(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Started]:
    """Serve on a free port while the context lasts, as a person does."""
    with running([PROGRAM, "serve", "--port", "0", *arguments], folder, environment) as served:
        yield served


@contextmanager
def limited(folder: Path, **limits: float) -> Iterator[Started]:
    """Serve without state, with other limits than usual."""
    command = [sys.executable, "-m", "tests.rest.limited", json.dumps(limits)]
    with running(command, folder) as served:
        yield served


@contextmanager
def running(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Started]:
    """Run a command that serves, and says where."""
    others = {name: value for name, value in os.environ.items() if "INFERNO" not in name}
    log = folder / "serve.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**others, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), log.read_text()
            yield Started(line.split()[2], process.pid, log, process)
        finally:
            process.kill()
