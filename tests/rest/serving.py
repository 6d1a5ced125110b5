"""A real `inferno serve`, and requests to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.cli.program import PROGRAM, ROOT

STOPS_WITHIN = 20
"""Seconds until a server that is told to stop has ended."""


@dataclass(frozen=True)
class Served:
    """A server that listens at `url`."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def workers(self) -> list[int]:
        """Processes that optimize; they are forked from one that the server started."""
        return [worker for starter in self.starters() for worker in children(starter)]

    def starters(self) -> list[int]:
        """Processes that the server started itself."""
        return children(self.process.pid)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(STOPS_WITHIN)


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
def serving(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Serve on a free port while the context lasts."""
    with running([PROGRAM, "serve", "--port", "0", *arguments], folder, environment) as served:
        yield served


@contextmanager
def limited(folder: Path, **limits: float) -> Iterator[Served]:
    """Serve without state, with other limits than usual."""
    command = [sys.executable, "-m", "tests.rest.limited", json.dumps(limits)]
    with running(command, folder) as served:
        yield served


@contextmanager
def running(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
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
            yield Served(line.split()[2], process, log)
        finally:
            process.kill()
