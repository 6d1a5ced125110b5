"""How `inferno serve` starts, and what it says when it cannot."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.program import inferno
from tests.rest.serving import serving


def test_the_environment_says_where_to_listen_and_options_win(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "-F", "--host", "::1", environment={"INFERNO_HOST": "x"}) as server,
        server.client() as client,
    ):
        assert client.get("/addModel/m").json() == "m"  # as with `--stateful`

    assert server.url.startswith("http://[::1]:")


def test_help_shows_an_example() -> None:
    shown = inferno("serve", "--help").stdout.decode()

    assert "\n    inferno serve" in shown
    assert "INFERNO_TOKEN_FILE" in shown


WRONG = {
    "service link": ({"INFERNO_PORT": "tcp://10.0.0.1:80"}, "enableServiceLinks: false"),
    "no number": ({"INFERNO_PORT": "http"}, "'http' is no port"),
    "too large": ({"INFERNO_PORT": "65536"}, "'65536' is no port"),
    "unknown host": ({"INFERNO_HOST": "no.such.host.invalid"}, "cannot listen on no.such"),
    "half of TLS": ({"INFERNO_TLS_CERT": "x"}, "INFERNO_TLS_KEY"),
    "authority alone": ({"INFERNO_TLS_CA": "x"}, "INFERNO_TLS_CERT"),
    "no certificate": ({"INFERNO_TLS_CERT": "/x", "INFERNO_TLS_KEY": "/y"}, "TLS: /x: No such"),
    "no token": ({"INFERNO_TOKEN_FILE": "/x"}, "INFERNO_TOKEN_FILE: /x: No such"),
}


@pytest.mark.parametrize(("environment", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_makes_no_sense_is_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = inferno("serve")

    (line,) = result.stderr.decode().splitlines()
    assert (result.returncode, result.stdout) == (2, b"")
    assert message in line


def test_an_address_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = inferno("serve", "--port", str(port))

    expected = f"inferno: cannot listen on 127.0.0.1, port {port}: Address already in use\n"
    assert (result.returncode, result.stderr.decode()) == (2, expected)
