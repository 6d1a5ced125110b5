"""`kubectl inferno` without a cluster: help, and clusters that are none."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from inferno_operator.cli.kubectl.main import app, main
from tests.in_process import called


class Empty(BaseHTTPRequestHandler):
    """An API server without our definitions."""

    def do_GET(self) -> None:
        body = json.dumps({"message": "the server could not find the requested resource"})
        self.send_response(404)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:  # nobody reads it
        pass


class Quiet(ThreadingHTTPServer):
    """Serves in the process of the tests, and says nothing of clients that go away."""

    def handle_error(self, *_: object) -> None:  # nobody reads it
        pass


@pytest.fixture
def empty_cluster(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a cluster without our definitions."""
    server = Quiet(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever).start()
    path = tmp_path / "kubeconfig"
    url = f"http://127.0.0.1:{server.server_port}"
    context = {"cluster": "c", "user": "u"}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": context}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    yield path
    server.shutdown()
    server.server_close()


def plugin(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = called(main, arguments)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.mark.parametrize(
    "command",
    [
        *([], ["plan"], ["optimize"], ["explain"], ["generate"], ["top"]),
        *(["plans"], ["diff"], ["approve"], ["reject"]),
    ],
)
def test_every_help_has_an_example_and_the_options_of_kubectl(command: list[str]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"]).stdout

    assert "\n    kubectl inferno" in text
    for option in ("--namespace", "--context", "--kubeconfig"):
        assert option in text


@pytest.mark.parametrize("options", [["--watch"], ["-w", "-o", "json"]])
def test_only_a_table_on_a_terminal_is_drawn_anew(options: list[str]) -> None:
    done = plugin("top", *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kubectl inferno: --watch draws a table on a terminal: leave it out\n"


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        (("top", "--cl"), ["--class\tShow only Servers of this service class."]),
        (("top", "--reason", "NoC"), ["NoCapacity"]),
    ],
)
def test_kubectl_completes_options_and_reasons(
    typed: tuple[str, ...], completions: list[str]
) -> None:
    program = Path(sys.executable).with_name("kubectl_complete-inferno")

    done = subprocess.run([program, *typed], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [*completions, ":4"]


@pytest.mark.parametrize(
    "command", [["plan"], ["optimize"], ["explain", "s"], ["generate", "keda"], ["top"], ["plans"]]
)
def test_a_cluster_without_our_definitions_is_told_so(
    empty_cluster: Path, command: list[str]
) -> None:
    done = plugin(*command, "--kubeconfig", empty_cluster)

    assert (done.returncode, done.stdout) == (2, "")
    assert ".inferno.platform.ai: install the custom resource definitions" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a kubeconfig\n"),
        (b"- a list\n", "not a kubeconfig\n"),
        (b"\xff", "not UTF-8 text (byte 1)\n"),
        (None, "Is a directory\n"),
        (b"[", ""),
        (b"kind: Config\n", ""),
        (b"current-context: gone\n", ""),
    ],
)
def test_a_kubeconfig_that_is_none_is_one_line(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "kubeconfig"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)

    done = plugin("top", "--kubeconfig", path)

    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"kubectl inferno: no access to a cluster: {path}: {words}")
    assert done.stderr.count("\n") == 1
