"""Too large, too slow, too many, too long, too late: each is told so, and nothing else waits."""

import itertools
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import httpx
import pytest

from tests.cli.program import SMALL
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.generate import fleet
from tests.rest.serving import Served, connected, limited, sent_by_post


@cache
def long_question() -> bytes:
    """What the exact solver works on until its time limit."""
    body = fleet(2000, 20, seed=2, demand=2.0)
    body["system"]["optimizerData"]["optimizer"] = {"milpSolver": True}
    return json.dumps(body).encode()


def wait_for(what: Callable[[], bool]) -> None:
    wait_until(what, bool, "what was to happen")


def solves(server: Served, state: str) -> float:
    """Optimizations that are running or waiting."""
    page = look(server, "/metrics").text
    (found,) = re.findall(rf"^inferno_solves_{state} (.*)$", page, re.MULTILINE)
    return float(found)


def look(server: Served, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=PATIENCE_S)


def post(server: Served, body: bytes | Iterator[bytes]) -> httpx.Response:
    return httpx.post(f"{server.url}/optimizeOne", content=body, timeout=PATIENCE_S)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(tmp_path: Path, announced: bool) -> None:
    body = b" " * 100_001
    with limited(tmp_path, body_bytes=100_000) as server:
        content = body if announced else iter([body[:50_000], body[50_000:]])
        reply = post(server, content)
        fits = post(server, SMALL.read_bytes())

    message = "the body is larger than 100000 bytes"
    assert (reply.status_code, reply.json()) == (413, {"message": message})
    assert fits.status_code == 200


def test_a_body_that_is_too_slow_is_refused(tmp_path: Path) -> None:
    with limited(tmp_path, body_seconds=0.2) as server, connected(server) as connection:
        connection.sendall(sent_by_post("/optimizeOne", b"{}")[:-1])
        reply = b"".join(iter(lambda: connection.recv(10_000), b""))

    assert reply.startswith(b"HTTP/1.1 408 ")
    assert reply.endswith(b'{"message":"the body did not arrive within 0.2 s"}')


def test_whoever_sends_a_whole_request_is_answered_while_others_send_half_of_one(
    tmp_path: Path,
) -> None:
    with limited(tmp_path, connections=5) as server, ExitStack() as half_open:
        clients = []
        for _ in range(20):
            client = half_open.enter_context(connected(server))
            client.sendall(b"POST /optimizeOne HTTP/1.1\r\nContent-Length: 9\r\nHost: x\r\n")
            clients.append(client)

        reply = look(server, "/healthz")
        first = clients[0].recv(10_000)

    assert reply.status_code == 200
    assert first.startswith(b"HTTP/1.1 503 ")
    assert b"there are too many connections" in first


def test_headers_that_trickle_do_not_hold_a_connection(tmp_path: Path) -> None:
    with (
        limited(tmp_path, head_seconds=0.5) as server,
        connected(server) as silent,
        connected(server) as trickling,
        server.client() as client,
    ):
        with suppress(ConnectionError):  # when it is closed from the other side
            for byte in itertools.chain(b"GET /healthz HTTP/1.1\r\nX: ", itertools.repeat(46)):
                trickling.sendall(bytes([byte]))
                client.get("/healthz").raise_for_status()  # which goes on meanwhile
        reply = b"".join(iter(lambda: silent.recv(10_000), b""))

    assert reply.startswith(b"HTTP/1.1 408 ")
    assert reply.endswith(b'{"message":"the headers did not arrive within 0.5 s"}')


def test_an_optimization_that_takes_too_long_is_broken_off(tmp_path: Path) -> None:
    with limited(tmp_path, solve_seconds=5.0) as server:
        reply = post(server, long_question())
        # The next process may take as long to start where the machine is busy.
        wait_for(lambda: post(server, SMALL.read_bytes()).status_code == 200)

    message = "the optimization took longer than 5 s; send less"
    assert (reply.status_code, reply.json()) == (504, {"message": message})


def test_when_too_many_wait_the_next_one_is_told_so(tmp_path: Path) -> None:
    with limited(tmp_path, workers=1, waiting=0) as server, ThreadPoolExecutor() as threads:
        working = threads.submit(post, server, long_question())
        wait_for(lambda: solves(server, "running") == 1)
        refused = post(server, SMALL.read_bytes())
        server.process.kill()

    assert working.exception() is not None
    assert refused.status_code == 503
    assert "busy" in refused.json()["message"]


def test_who_waits_too_long_is_told_so(tmp_path: Path) -> None:
    with (
        limited(tmp_path, workers=1, queue_seconds=0.2) as server,
        ThreadPoolExecutor() as threads,
    ):
        threads.submit(post, server, long_question())
        wait_for(lambda: solves(server, "running") == 1)
        refused = post(server, SMALL.read_bytes())
        server.process.kill()

    assert refused.status_code == 503


def test_others_are_answered_while_it_optimizes_and_workers_end_with_the_server(
    tmp_path: Path,
) -> None:
    with limited(tmp_path, workers=2) as server, ThreadPoolExecutor() as threads:
        threads.submit(post, server, long_question())
        wait_for(lambda: solves(server, "running") == 1)
        health = look(server, "/healthz")
        small = post(server, SMALL.read_bytes())
        still_running, started = solves(server, "running"), server.workers()
        server.process.kill()

        wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in started))

    assert (health.status_code, small.status_code, still_running) == (200, 200, 1)
    assert len(started) == 2


def break_off(server: Served) -> None:
    """Hang up while a long question is answered, and wait until the optimization has ended."""
    with connected(server) as connection:
        connection.sendall(sent_by_post("/optimizeOne", long_question()))
        wait_for(lambda: solves(server, "running") == 1)
    wait_for(lambda: solves(server, "running") == 0)


def test_an_optimization_ends_when_its_client_hangs_up_and_a_worker_has_one_thread(
    tmp_path: Path,
) -> None:
    with limited(tmp_path, workers=1) as server:
        (worker,) = server.workers()
        variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
        break_off(server)
        after = post(server, SMALL.read_bytes())

    assert after.status_code == 200
    assert b"OPENBLAS_NUM_THREADS=1" in variables


def test_clients_that_hang_up_while_a_process_starts_do_not_add_processes(tmp_path: Path) -> None:
    with limited(tmp_path, workers=1) as server:
        (first,) = server.workers()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: server.workers() == [])
        for _ in range(3):
            with connected(server) as connection:
                connection.sendall(sent_by_post("/optimizeOne", SMALL.read_bytes()))
                wait_for(lambda: server.workers() != [])
            wait_for(lambda: solves(server, "running") == 0)
        reply = post(server, SMALL.read_bytes())
        workers = server.workers()

    assert reply.status_code == 200
    assert len(workers) == 1


def is_closed(server: Served) -> bool:
    """Whether it takes no more connections: it stops."""
    try:
        with connected(server):
            return False
    except ConnectionRefusedError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_answers_what_runs_and_ends_quietly(
    tmp_path: Path, number: signal.Signals
) -> None:
    with limited(tmp_path, stop_seconds=0.3) as server, ThreadPoolExecutor() as threads:
        working = threads.submit(post, server, long_question())
        wait_for(lambda: solves(server, "running") == 1)
        server.process.send_signal(number)
        status = server.process.wait(PATIENCE_S)
        reply = working.result()

    message = "the server is stopping; send it again"
    assert (reply.status_code, reply.json()) == (503, {"message": message})
    assert status == 0
    assert server.log.read_text() == ""


def test_what_can_end_in_time_ends_when_it_is_told_to_stop(tmp_path: Path) -> None:
    with (
        limited(tmp_path, workers=1, stop_seconds=PATIENCE_S) as server,
        ThreadPoolExecutor() as threads,
    ):
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)  # it works for as long as the test needs
        working = threads.submit(post, server, SMALL.read_bytes())
        wait_for(lambda: solves(server, "running") == 1)
        server.process.terminate()
        wait_for(lambda: is_closed(server))
        os.kill(worker, signal.SIGCONT)
        reply = working.result()
        status = server.process.wait(PATIENCE_S)

    assert (reply.status_code, status) == (200, 0)
    assert len(reply.json()["allocations"]) > 0
    assert server.log.read_text() == ""
