"""Ports for programs that have to be told one, also while others begin to listen."""

import socket

from tests.controlplane.ports import HOST, first_free, free_port, never_given

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


def test_a_port_that_is_in_use_is_passed_over() -> None:
    with socket.create_server((HOST, free_port())) as listening:
        used, free = listening.getsockname()[1], free_port()

        assert first_free(HOST, iter([used, free])) == free
