"""Calls of the published API over HTTP, after facts of the project's own."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from inferno_optimizer.wire.codec import encode_system
from tests.cli.program import SMALL
from tests.conformance.test_gen1 import Recorded, recorded_facts
from tests.rest.replay import unlike

CONVERSATION = Path(__file__).parents[1] / "data" / "rest" / "conversation.json"
BODY: dict[str, Any] = json.loads(SMALL.read_text())
SYSTEM = BODY["system"]

NO_LOAD = {"arrivalRate": 0, "avgLength": 0, "arrivalCOV": 0, "serviceCOV": 0}


def fill(client: httpx.Client) -> None:
    """Tell a stateful server of the small system."""
    for path, section in (
        ("/setAccelerators", "acceleratorData"),
        ("/setModels", "modelData"),
        ("/setServiceClasses", "serviceClassData"),
        ("/setServers", "serverData"),
        ("/setCapacities", "capacityData"),
    ):
        assert client.post(path, json=SYSTEM[section]).status_code == 200


def server_of(client: httpx.Client, name: str) -> dict[str, Any]:
    server: dict[str, Any] = client.get(f"/getServer/{name}").json()
    return server


def test_a_client_reads_what_it_wrote_in_the_words_of_the_published_api(
    keeper: httpx.Client,
) -> None:
    for step in json.loads(CONVERSATION.read_text())["steps"]:
        if "get" in step:
            reply = keeper.get(step["get"])
        else:
            reply = keeper.post(step["post"], json=step["body"])

        assert (reply.status_code, reply.json()) == (step.get("status", 200), step["reply"])
        assert reply.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize("recorded", recorded_facts().values(), ids=recorded_facts().keys())
def test_optimize_one_answers_with_the_numbers_of_the_reference(
    client: httpx.Client, recorded: Recorded
) -> None:
    reply = client.post("/optimizeOne", json=encode_system(recorded.system))

    ours = reply.json()["allocations"]
    assert reply.status_code == 200
    assert ours.keys() == recorded.allocations.keys()
    for name, expected in recorded.allocations.items():
        assert ours[name]["accelerator"] == expected.accelerator
        assert ours[name]["numReplicas"] == expected.replicas
        assert ours[name]["cost"] == pytest.approx(expected.cost, rel=1e-4)


def test_the_curve_of_the_solver_is_told_to_a_client_that_asks(client: httpx.Client) -> None:
    options = {"optimizer": {"milpSolver": True, "trace": True}}

    reply = client.post("/optimizeOne", json={"system": {**SYSTEM, "optimizerData": options}})

    certificate = reply.json()["certificate"]
    assert certificate["curve"][-1]["value"] == certificate["objective"]
    assert [p["priority"] for p in certificate["curve"]][-1] is None


def test_an_answer_tells_what_is_proven_and_who_is_unserved_and_why(client: httpx.Client) -> None:
    lost = {**SYSTEM["serverData"]["servers"][0], "model": "granit"}
    body = {"system": {**SYSTEM, "serverData": {"servers": [lost]}}}

    answer = client.post("/optimizeOne", json=body).json()

    assert answer["allocations"] == {}
    assert answer["unserved"]["Premium-granite-13b"]["reason"] == "UnknownModel"
    assert "granit" in answer["unserved"]["Premium-granite-13b"]["message"]
    assert answer["certificate"]["status"] == "Optimal"


def test_what_makes_the_original_run_for_ever_is_answered(client: httpx.Client) -> None:
    flat = [{**data, "alpha": 0, "beta": 0} for data in SYSTEM["modelData"]["models"]]
    rush = {**SYSTEM["serverData"]["servers"][0]}
    rush["currentAlloc"] = {"load": {"arrivalRate": 1e30, "avgLength": 1024}}
    zeros = {"system": {**SYSTEM, "modelData": {"models": flat}}}
    many = {"system": {**SYSTEM, "serverData": {"servers": [rush]}}}

    unserved = [client.post("/optimizeOne", json=body).json()["unserved"] for body in (zeros, many)]

    name = "Premium-granite-13b"
    assert [u[name]["reason"] for u in unserved] == ["NoPerformanceData", "InvalidSpec"]


def test_the_last_system_can_be_looked_at_without_state(client: httpx.Client) -> None:
    answer = client.post("/optimizeOne", json=BODY).json()
    client.post("/optimizeOne", content=b"{")

    server = server_of(client, "Free-granite-13b")
    assert client.get("/getModels").json() == ["granite-13b"]
    assert (
        unlike(server["desiredAlloc"], answer["allocations"][server["name"]], {"percentiles"}) == ""
    )


def test_without_state_nothing_can_be_changed(client: httpx.Client) -> None:
    replies = [client.post("/addServer", json={}), client.get("/removeServer/x")]

    assert [(r.status_code, r.text) for r in replies] == [(404, "404 page not found")] * 2


def test_optimize_one_leaves_what_a_server_was_told(keeper: httpx.Client) -> None:
    fill(keeper)
    keeper.post("/optimizeOne", json={})

    assert len(keeper.get("/getServers").json()["servers"]) == 2


def test_optimize_puts_down_what_it_decides_and_apply_makes_it_current(
    keeper: httpx.Client,
) -> None:
    fill(keeper)
    name = "Premium-granite-13b"
    before = server_of(keeper, name)["currentAlloc"]

    given = keeper.post("/optimize", json={"unlimited": True}).json()["allocations"][name]
    desired = server_of(keeper, name)["desiredAlloc"]
    applied = keeper.get("/applyAllocation").json()
    current = server_of(keeper, name)["currentAlloc"]

    assert unlike(desired, given, {"percentiles"}) == ""
    assert applied == "Done"
    assert current == desired != before


def test_a_server_that_loses_its_allocation_keeps_no_stale_one(keeper: httpx.Client) -> None:
    fill(keeper)
    name = "Premium-granite-13b"
    load = server_of(keeper, name)["currentAlloc"]["load"]
    keeper.post("/optimize", json={"unlimited": True})
    keeper.post("/setCapacities", json={"count": [{"type": "A100"}, {"type": "G2"}]})

    answer = keeper.post("/optimize", json={}).json()
    keeper.get("/applyAllocation")

    server = server_of(keeper, name)
    assert answer["unserved"][name]["reason"] == "NoCapacity"
    assert (server["desiredAlloc"]["accelerator"], server["desiredAlloc"]["numReplicas"]) == ("", 0)
    assert (server["currentAlloc"]["accelerator"], server["currentAlloc"]["load"]) == ("", load)


def test_apply_leaves_a_server_that_nothing_could_be_decided_for(keeper: httpx.Client) -> None:
    fill(keeper)
    name = "Premium-granite-13b"
    keeper.get("/removeModel/granite-13b")
    before = server_of(keeper, name)

    answer = keeper.post("/optimize", json={"unlimited": True}).json()
    keeper.get("/applyAllocation")

    assert answer["unserved"][name]["reason"] == "UnknownModel"
    assert server_of(keeper, name)["currentAlloc"] == before["currentAlloc"]
    assert server_of(keeper, name)["desiredAlloc"]["load"] == NO_LOAD


BAD = {
    b"": "the body is empty",
    b"{": "not valid JSON",
    b'{"name": "x"} more': "not valid JSON",
    b'{"name": "\xff"}': "not UTF-8",
    b'{"cost": NaN}': "not valid JSON",
    b'\xef\xbb\xbf{"name": "x"}': "byte order mark (byte 0)",
    b'{"name": "x\\ud800"}': "name: character 2 is half of a surrogate pair",
    b"[" * 100_000: "nested too deeply",
    b'{"multiplicity": 2.0}': "multiplicity: expected an integer, not 2.0",
    b'{"multiplicity": 9223372036854775808}': "multiplicity: expected an integer",
    b'{"multiplicity": %s}' % (5001 * b"9"): "multiplicity: expected an integer, not 9999",
    b'{"memSize": 1, "cost": -%s}' % (5001 * b"9"): "cost: expected a finite number, not -999",
    b'{"cost": 1e39}': "cost: expected a number up to 3.403e+38",
    b"[]": "expected an object",
}


@pytest.mark.parametrize(("body", "message"), BAD.items(), ids=BAD.values())
def test_a_body_that_cannot_be_read_is_refused_with_the_reason(
    keeper: httpx.Client, body: bytes, message: str
) -> None:
    reply = keeper.post("/addAccelerator", content=body)

    assert reply.status_code == 400
    assert message in reply.json()["message"]
    assert keeper.get("/getAccelerators").json() == []


def test_half_a_surrogate_pair_is_refused_with_the_field_of_its_object(
    client: httpx.Client,
) -> None:
    body = SMALL.read_bytes().replace(b'"class": "Premium"', b'"class": "Premium\\udfff"')
    reply = client.post("/optimizeOne", content=body)

    message = "server 'Premium-granite-13b': class: character 8 is half of a surrogate pair"
    assert (reply.status_code, reply.json()) == (400, {"message": message})


def test_null_is_an_object_of_zeros_and_any_text_is_kept(new_keeper: httpx.Client) -> None:
    nothing = new_keeper.post("/addAccelerator", content=b"null").json()
    pair = new_keeper.post("/addAccelerator", content=b'{"name": "\\ud83d\\ude00 \xc3\xa4"}').json()
    ignored = new_keeper.post("/addAccelerator", content=b'{"unknown": %s}' % (5001 * b"9"))

    assert (nothing["name"], nothing["cost"]) == ("", 0)
    assert pair["name"] == "\N{GRINNING FACE} \N{LATIN SMALL LETTER A WITH DIAERESIS}"
    assert ignored.status_code == 200


# What Go's strconv.Atoi makes of it: 64 bits, any number of zeros in front.
PRIORITIES = {
    "7": 7,
    "+7": 7,
    4301 * "0" + "7": 7,
    "-9223372036854775808": 100,
    "-9223372036854775809": None,
    "9223372036854775808": None,
    4301 * "9": None,
    "7.0": None,
    "1_0": None,
}


@pytest.mark.parametrize(
    ("sent", "kept"), PRIORITIES.items(), ids=[f"{sent:.30}" for sent in PRIORITIES]
)
def test_a_priority_is_read_as_the_original_reads_it(
    keeper: httpx.Client, sent: str, kept: int | None
) -> None:
    reply = keeper.get(f"/addServiceClass/p/{sent}")

    if kept is None:
        assert reply.status_code == 400
        assert reply.json() == {"message": f"service class priority {sent} invalid"}
    else:
        assert (reply.status_code, reply.json()["priority"]) == (200, kept)


def test_it_tells_its_health_its_numbers_and_what_it_can_do(client: httpx.Client) -> None:
    client.get("/getModels")

    assert client.get("/healthz").text == client.get("/readyz").text == "ok"
    assert 'requests_total{path="/getModels",status="200"}' in client.get("/metrics").text
    assert "/optimizeOne" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("verb", ["HEAD", "PUT", "DELETE", "OPTIONS", "POST"])
def test_another_verb_on_a_known_path_is_not_found(client: httpx.Client, verb: str) -> None:
    assert client.request(verb, "/getModels").status_code == 404


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_a_slash_too_many_is_redirected(keeper: httpx.Client, verb: str) -> None:
    path, status = {"GET": ("/getModels", 301), "POST": ("/addServer", 307)}[verb]
    reply = keeper.request(verb, f"{path}/")

    assert (reply.status_code, reply.headers["location"]) == (status, path)


def with_accelerators(*names: str) -> dict[str, Any]:
    """The servers of the small system, which may use these accelerators only."""
    servers = [{**s, "accelerators": names} for s in SYSTEM["serverData"]["servers"]]
    return {"servers": servers}


def test_servers_are_placed_on_their_own_accelerators_only(client: httpx.Client) -> None:
    system = {**SYSTEM, "serverData": with_accelerators("A100")}

    reply = client.post("/optimizeOne", json={"system": system})

    placed = {a["accelerator"] for a in reply.json()["allocations"].values()}
    assert placed == {"A100"}


def test_the_accelerators_of_servers_are_kept(keeper: httpx.Client) -> None:
    fill(keeper)
    assert keeper.post("/setServers", json=with_accelerators("A100")).status_code == 200

    options = SYSTEM["optimizerData"]["optimizer"]
    reply = keeper.post("/optimize", json=options).json()

    assert {a["accelerator"] for a in reply["allocations"].values()} == {"A100"}
    name = SYSTEM["serverData"]["servers"][0]["name"]
    assert server_of(keeper, name)["accelerators"] == ["A100"]


def test_keys_without_an_effect_are_named_in_the_answer_and_change_nothing_else(
    client: httpx.Client,
) -> None:
    body = json.loads(SMALL.read_text())
    plain = client.post("/optimizeOne", json=body).json()
    server = body["system"]["serverData"]["servers"][0]
    server["currentAlloc"]["load"] |= {"throughput": None, "200": None}
    answer = client.post("/optimizeOne", json=body).json()

    assert "ignored" not in plain["certificate"]
    assert answer["allocations"] == plain["allocations"]
    unknown, null = answer["certificate"]["ignored"]
    load = f"server '{server['name']}': currentAlloc.load"
    assert unknown.startswith(f"{load}.200: is unknown (known: arrivalRate, ")
    assert null == f"{load}.throughput: is null, and counts as 0"
