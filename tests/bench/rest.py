"""Measurements of the REST optimizer, a process of its own."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx

from inferno_optimizer.optimize import optimize
from inferno_optimizer.wire.codec import decode_system, encode_solution
from tests.bench.errors import NotSupportedError
from tests.bench.library import SEED, SOLVERS, Numbers, median_seconds
from tests.controlplane.ports import HOST, free_port
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until
from tests.generate import JsonObject, fleet

READY_S = 30.0
ANSWER_S = 60.0
OPTIMIZE = "/optimizeOne"


def one_request(
    *, servers: int, accelerators: int = 20, demand: float = 1.0, solver: str = "greedy"
) -> Numbers:
    """A whole request over the wire, from the client's document to the client's answer."""
    document = _document(servers, accelerators, SEED, demand, solver)
    with _server() as url, httpx.Client(base_url=url, timeout=ANSWER_S) as client:
        return {
            "seconds": median_seconds(
                lambda: client.post(OPTIMIZE, json=document).raise_for_status().json()
            )
        }


def concurrent_clients(*, clients: int, requests: int, servers: int) -> Numbers:
    """Requests that all differ, from several clients at once: how many answers are wrong."""
    documents = [_document(servers, 10, seed, 1.5, "greedy") for seed in range(requests)]
    right = [
        json.loads(json.dumps(encode_solution(optimize(decode_system(document)))["allocations"]))
        for document in documents
    ]
    with _server() as url, ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda document: _allocations(url, document), documents))
    wrong = sum(answer != its for answer, its in zip(answers, right, strict=True))
    return {"wrong": wrong, "requests": requests}


def _document(servers: int, accelerators: int, seed: int, demand: float, solver: str) -> JsonObject:
    document = fleet(servers, accelerators, seed, demand)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS[solver]}
    return document


def _allocations(url: str, document: JsonObject) -> object:
    """The answer's allocations; None where there was no answer."""
    try:
        answer = httpx.post(url + OPTIMIZE, json=document, timeout=ANSWER_S)
        return answer.raise_for_status().json()["allocations"]
    except httpx.HTTPError:
        return None


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a running server."""
    if find_spec("inferno_optimizer.api") is None:
        raise NotSupportedError("there is no REST server yet")
    with Processes() as processes:
        port = free_port()
        program = Path(sys.executable).with_name("inferno")
        processes.start("serve", [program, "serve", "--host", HOST, "--port", str(port)])
        url = f"http://{HOST}:{port}"
        wait_until(lambda: _ready(url), bool, "the REST server ready", READY_S)
        yield url


def _ready(url: str) -> bool:
    try:
        return httpx.get(url + "/readyz").is_success
    except httpx.TransportError:
        return False
