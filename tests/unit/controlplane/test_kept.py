"""Processes that are left running on purpose, ports, and what the demo makes of Servers."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import ControlPlaneError, kept
from tests.controlplane.ports import HOST, free_port, never_given
from tests.controlplane.processes import Processes
from tests.demo import require_decisions, saving


def test_what_was_detached_stays_until_it_is_stopped(tmp_path: Path) -> None:
    record = tmp_path / "new" / "record.json"
    with Processes() as processes:
        processes.start("sleeper", ["sleep", "600"])
        processes.detach(record, {"kubeconfig": "some/path"})

    found = kept.running(record)
    stayed = processes.folder.exists()

    assert kept.stop(record)
    assert found is not None
    assert (found["folder"], found["kubeconfig"]) == (str(processes.folder), "some/path")
    assert (stayed, processes.folder.exists(), record.exists()) == (True, False, False)


def test_a_record_that_a_crash_left_behind_is_not_believed(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text('{"pid": 1}')

    assert kept.running(record) is None
    assert not kept.stop(record)


# Ports for programs that have to be told one, also while others begin to listen


TIMES = 100


def test_a_free_port_is_never_given_to_who_asks_for_any() -> None:
    with socket.create_server((HOST, 0)) as listening:
        given = {listening.getsockname()[1]}
    for _ in range(TIMES):
        with (
            socket.create_server((HOST, 0)) as other,
            socket.create_connection(other.getsockname()) as client,
        ):
            given |= {other.getsockname()[1], client.getsockname()[1]}

    told = {free_port() for _ in range(TIMES)}

    below, above = never_given()
    assert all(port in below or port in above for port in told)
    assert not any(port in below or port in above for port in given)


# What the demo makes of the Servers that it reads


NOTHING = {"accelerator": "", "numReplicas": 0}


def server(
    name: str, current: float, desired: float | None, reason: str | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "currentAlloc": {"accelerator": "A100", "numReplicas": 1, "cost": current},
        "desiredAlloc": NOTHING
        if desired is None
        else {"accelerator": "G2", "numReplicas": 1, "cost": desired},
    }
    conditions = [{"type": "Allocated", "reason": reason, "message": "why"}] if reason else []
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


def test_the_total_tells_what_is_saved_and_how_many_are_served() -> None:
    servers = [server("a", 100, 60), server("b", 100, 65), server("c", 50, None, "NoCapacity")]

    assert (
        saving(servers) == "Total: 250.00 -> 125.00, 125.00 less (-50%); 2 of 3 have an allocation"
    )


def test_only_a_server_with_neither_an_allocation_nor_a_reason_why_not_is_named() -> None:
    decided = [server("a", 1, 2), server("b", 1, None, "NoCapacity")]
    require_decisions(decided)

    with pytest.raises(ControlPlaneError) as error:
        require_decisions([*decided, server("forgotten", 1, None)])

    assert str(error.value) == "no decision for forgotten"
