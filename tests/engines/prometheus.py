"""A real Prometheus on loopback that scrapes what a test tells it."""

import json
import os
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.ports import HOST, on_free_port
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until


def wait_until_ready(processes: Processes, name: str, client: httpx.Client, path: str) -> None:
    """Wait until a process answers `path` with success.

    Raises
    ------
    ProgramError
        The process has ended.
    WaitTimeoutError
        It is not ready in time.
    """

    def answer() -> str:
        processes.require_running(name)
        try:
            reply = client.get(path)
        except httpx.TransportError as error:
            return repr(error)
        return "ready" if reply.is_success else f"{reply.status_code}: {reply.text}"

    wait_until(answer, lambda said: said == "ready", f"{name} ready")


JOB = "engines"
STOPPED = "T"

Json = dict[str, Any]


class QueryError(ControlPlaneError):
    """Prometheus refuses a query, or does not answer; the message has its words."""


@dataclass(frozen=True, slots=True)
class Target:
    """What Prometheus scrapes.

    Attributes
    ----------
    address
        Host and port.
    path
        Path of the metrics.
    labels
        Labels that Prometheus adds to each series; `pod` is one of them.
    """

    address: str
    path: str
    labels: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"http://{self.address}{self.path}"


@dataclass(frozen=True, slots=True)
class Sample:
    """A series, and its value at a Unix time [s]."""

    labels: Mapping[str, str]
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class Access:
    """How Prometheus protects its HTTP API, and how we get in.

    Attributes
    ----------
    web_config
        Contents of its `--web.config.file`.
    client
        Arguments of `httpx.Client`, such as `verify`, `cert` and `auth`.
    """

    web_config: Mapping[str, Any]
    client: Mapping[str, Any]

    @property
    def scheme(self) -> str:
        return "https" if "tls_server_config" in self.web_config else "http"


OPEN = Access({}, {})


class Prometheus(AbstractContextManager["Prometheus"]):
    """A Prometheus server; a context manager within which it runs.

    Parameters
    ----------
    processes
        Runs the program, and has its folder and log.
    program
        Path of `prometheus`.
    name
        Name among the processes.
    scrape_interval_s
        Time between two scrapes of a target [s]; a scrape may take as long.
    access
        How its API is protected.
    options
        More options of the program, such as `--query.lookback-delta=10s`.
    data
        Folder of its database; None: an empty one.
    """

    def __init__(
        self,
        processes: Processes,
        program: Path,
        *,
        name: str = "prometheus",
        scrape_interval_s: float = 1.0,
        access: Access = OPEN,
        options: Sequence[str] = (),
        data: Path | None = None,
    ) -> None:
        self.name = name
        self._processes = processes
        self._program = program
        self._access = access
        self._options = options
        self._folder = processes.folder / name
        self._folder.mkdir()
        self._data = data or self._folder / "data"
        self._targets_file = self._folder / "targets.json"
        self.set_targets([])
        self._write_configuration(scrape_interval_s)

    def __enter__(self) -> Self:
        self._port = on_free_port(self.name, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._processes.exit_code(self.name) is None:
            self.stop()

    @property
    def url(self) -> str:
        """Base of its API, without a slash at the end."""
        return f"{self._access.scheme}://{HOST}:{self._port}"

    def start(self) -> None:
        """Start it again, with the same data on the same port; it is ready on return."""
        self._client.close()
        self._start(self._port)

    def stop(self) -> None:
        """Kill it; what it has scraped stays in its write-ahead log."""
        self._processes.stop(self.name, signal.SIGKILL)

    def suspend(self) -> None:
        """Stop it with SIGSTOP: it accepts connections and does not answer."""
        os.kill(self._pid, signal.SIGSTOP)
        wait_until(
            lambda: _thread_states(self._pid),
            lambda states: states == {STOPPED},
            f"the stop of {self.name}",
        )

    def resume(self) -> None:
        """Let it go on after `suspend`."""
        os.kill(self._pid, signal.SIGCONT)

    def set_targets(self, targets: Sequence[Target]) -> None:
        """Scrape these targets and no others; Prometheus notices within about 5 s."""
        groups = [
            {
                "targets": [t.address],
                # Replicas at one address would be one instance by default.
                "labels": {**t.labels, "instance": t.url, "__metrics_path__": t.path},
            }
            for t in targets
        ]
        self._targets = targets
        new = self._targets_file.with_suffix(".new")
        new.write_text(json.dumps(groups))
        new.replace(self._targets_file)

    def wait_for_scrapes(self, down: Collection[str] = ()) -> None:
        """Wait until all present targets were scraped, those of the pods `down` in vain."""
        wanted = [
            {**t.labels, "url": t.url, "health": "down" if t.labels["pod"] in down else "up"}
            for t in self._targets
        ]
        wait_until(
            self._scraped,
            lambda scraped: scraped == sorted(wanted, key=_url),
            "scrapes of all targets",
        )

    def _scraped(self) -> list[Mapping[str, str]]:
        """The targets that Prometheus knows: labels, URL and health."""
        targets = [
            {**target["labels"], "url": target["scrapeUrl"], "health": target["health"]}
            for target in self._ask("targets", {})["activeTargets"]
        ]
        for target in targets:
            del target["job"], target["instance"]  # which nobody asked for
        return sorted(targets, key=_url)

    def query(self, expression: str, time: float | None = None) -> list[Sample]:
        """Evaluate an expression at a Unix time [s], by default now.

        Raises
        ------
        QueryError
            Prometheus refuses the expression, or does not answer.
        """
        parameters = {"query": expression}
        if time is not None:
            parameters["time"] = str(time)
        data = self._ask("query", parameters)
        if data["resultType"] == "scalar":
            return [Sample({}, *_numbers(data["result"]))]
        return [Sample(item["metric"], *_numbers(item["value"])) for item in data["result"]]

    def parse(self, expression: str) -> Json:
        """Parse an expression with Prometheus' own parser, and return its syntax tree.

        Raises
        ------
        QueryError
            The expression is wrong; the message says where.
        """
        tree: Json = self._ask("parse_query", {"query": expression})
        return tree

    def selectors(self, expression: str) -> list[str]:
        """The selectors of series in an expression, without ranges and offsets."""
        return [_selector(node) for node in _nodes(self.parse(expression)) if "matchers" in node]

    def _ask(self, resource: str, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        try:
            reply = self._client.get(f"/api/v1/{resource}", params=dict(parameters))
        except httpx.TransportError as error:
            raise QueryError(f"{self.url}: {error!r}") from error
        if reply.is_error:
            raise QueryError(f"{reply.status_code}: {reply.text}")
        return reply.json()["data"]

    def _start(self, port: int) -> None:
        settings = {"timeout": PATIENCE_S, **self._access.client}
        self._client = httpx.Client(base_url=f"{self._access.scheme}://{HOST}:{port}", **settings)
        self._pid = self._processes.start(
            self.name,
            [
                self._program,
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._data}",
                f"--web.config.file={self._folder / 'web.yml'}",
                f"--web.listen-address={HOST}:{port}",
                "--scrape.discovery-reload-interval=100ms",  # by default it waits 5 s
                *self._options,
            ],
        )
        wait_until_ready(self._processes, self.name, self._client, "/-/ready")

    def _write_configuration(self, scrape_interval_s: float) -> None:
        interval = f"{round(1000 * scrape_interval_s)}ms"
        job = {
            "job_name": JOB,
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "file_sd_configs": [{"files": [str(self._targets_file)], "refresh_interval": "1s"}],
        }
        configuration = {"scrape_configs": [job]}
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        (self._folder / "web.yml").write_text(yaml.safe_dump(dict(self._access.web_config)))


def _thread_states(pid: int) -> set[str]:
    """In which states the threads of a process are, by the letters of `ps`."""
    states = Path("/proc", str(pid), "task").glob("*/stat")
    return {state.read_text().rpartition(")")[2].split()[0] for state in states}


def _numbers(pair: Sequence[Any]) -> tuple[float, float]:
    """Time and value of a sample; the value is a string in JSON."""
    return float(pair[0]), float(pair[1])


def _url(target: Mapping[str, str]) -> str:
    return target["url"]


def _nodes(tree: object) -> Iterator[Json]:
    if isinstance(tree, list):
        for item in tree:
            yield from _nodes(item)
    elif isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)


def _selector(node: Json) -> str:
    matchers = (
        f"{matcher['name']}{matcher['type']}{json.dumps(matcher['value'])}"
        for matcher in node["matchers"]
    )
    return f"{{{','.join(matchers)}}}"
