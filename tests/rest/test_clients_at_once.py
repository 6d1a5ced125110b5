"""Many clients at the same time: nobody reads what belongs to another."""

import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.cli.program import SMALL
from tests.rest.serving import Served

CLIENTS = 8
REQUESTS = 40


def two_systems() -> list[dict[str, Any]]:
    """The small system, and one with other servers under other loads."""
    one: dict[str, Any] = json.loads(SMALL.read_text())
    other = copy.deepcopy(one)
    for place, server in enumerate(other["system"]["serverData"]["servers"]):
        server["name"] = f"other-{place}"
        server["currentAlloc"]["load"]["arrivalRate"] = 900 + place
    return [one, other]


def allocations(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/optimizeOne", json=body).raise_for_status().json()
    return found["allocations"]  # type: ignore[no-any-return]  # JSON


def test_eight_clients_with_two_systems_all_get_their_own_answers(stateless: Served) -> None:
    systems = two_systems()
    with stateless.client() as client:
        right = [allocations(client, system) for system in systems]

    def ask(place: int) -> int:
        with stateless.client() as client:
            answers = [allocations(client, systems[place % 2]) for _ in range(REQUESTS)]
        return answers.count(right[place % 2])

    with ThreadPoolExecutor(CLIENTS) as threads:
        found = sum(threads.map(ask, range(CLIENTS)))

    assert right[0].keys().isdisjoint(right[1].keys())
    assert found == CLIENTS * REQUESTS


def test_a_reader_never_sees_a_change_half_done(stateful: Served) -> None:
    """Each writer replaces all capacities at once: all counts of an answer are one writer's."""
    types = [f"type-{place}" for place in range(50)]
    done = threading.Event()

    def write(writer: int) -> None:
        body = {"count": [{"type": name, "count": writer} for name in types]}
        with stateful.client() as client:
            for _ in range(REQUESTS):
                client.post("/setCapacities", json=body).raise_for_status()

    def read() -> list[set[int]]:
        seen = []
        with stateful.client() as client:
            while not done.is_set():
                counts = client.get("/getCapacities").json()["count"]
                seen.append({count["count"] for count in counts})
        return seen

    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        reader = threads.submit(read)
        list(threads.map(write, range(1, CLIENTS + 1)))
        done.set()
        seen = reader.result()

    assert len(seen) > 1
    assert [counts for counts in seen if len(counts) > 1] == []


def test_a_change_during_an_optimization_is_not_lost(stateful: Served) -> None:
    small = json.loads(SMALL.read_text())["system"]
    with stateful.client() as client:
        for path, section in (
            ("/setAccelerators", "acceleratorData"),
            ("/setModels", "modelData"),
            ("/setServiceClasses", "serviceClassData"),
            ("/setServers", "serverData"),
        ):
            client.post(path, json=small[section])

    def optimize(_: int) -> int:
        with stateful.client() as client:
            return client.post("/optimize", json={"unlimited": True}).status_code

    def add(place: int) -> int:
        with stateful.client() as client:
            return client.post("/addServer", json={"name": f"new-{place}"}).status_code

    with ThreadPoolExecutor(CLIENTS) as threads:
        solved, added = threads.map(optimize, range(40)), threads.map(add, range(40))
        statuses = {*solved, *added}

    with stateful.client() as client:
        names = {server["name"] for server in client.get("/getServers").json()["servers"]}
    assert statuses == {200}
    assert {f"new-{place}" for place in range(40)} < names
