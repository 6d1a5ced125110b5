"""`kubectl inferno console-server` says in one line why it cannot start."""

import socket
from pathlib import Path

import pytest

from inferno_operator.cli.kubectl.main import main
from tests.in_process import called


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--certificate", "no.crt", "--private-key", "key"),
            "--certificate no.crt, --private-key key: No such file or directory",
        ),
        (
            ("--certificate", "text", "--private-key", "text"),
            "--certificate text, --private-key text: no certificate with its private key, in PEM",
        ),
        (
            ("--certificate", "text"),
            "--certificate text: no certificate with its private key, in PEM",
        ),
        (("--origin", "http://x"), "--origin http://x: give https://HOST or https://HOST:PORT"),
        (
            ("--behind-proxy", "--key-file", "no", "--host", "127.0.0.1.1"),  # have no effect
            "--host 127.0.0.1.1, --port 8443: ",
        ),
        (("--host", "127.0.0.1.1"), "--host 127.0.0.1.1, --port 8443: "),
    ],
)
def test_what_cannot_be_used_is_named(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    assert served(tmp_path, *options).startswith(f"kubectl inferno: {told}")


@pytest.mark.parametrize("host", [(), ("--host", "127.0.0.1")])
def test_a_port_that_is_in_use_is_named(host: tuple[str, ...], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        told = served(tmp_path, *host, "--port", str(port))

    assert told == f"kubectl inferno: --port {port}: Address already in use; 0 takes a free one"


def served(folder: Path, *options: str) -> str:
    """The line with which a console that does not start ends."""
    (folder / "text").write_text("no certificate")
    common = ("--origin", "https://inferno.example.com")
    done = called(main, ["console-server", *common, *options], folder=folder)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    return line
