"""`inferno operator`: how it is configured, and what it says when it cannot start."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from inferno_operator.settings import VARIABLES
from tests.conftest import StartInVain

NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {}}],
    "current-context": "c",
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Names a cluster that does not answer."""
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(NOWHERE))
    return path


def test_every_variable_has_an_option_that_the_help_explains() -> None:
    command = [sys.executable, "-m", "inferno_operator", "operator", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    words = " ".join(text.split())
    for variable in VARIABLES:
        assert f"--{variable.option} " in words
        assert f"{variable.help}{variable.default_note} [{variable.name}]" in words


def test_an_option_wins_over_the_variable_of_its_name(
    start_in_vain: StartInVain, kubeconfig: Path
) -> None:
    status, lines = start_in_vain(
        "--solver-time-limit=soon", KUBECONFIG=str(kubeconfig), INFERNO_SOLVER_TIME_LIMIT="30"
    )

    assert status == 2
    assert lines == ["inferno: INFERNO_SOLVER_TIME_LIMIT: 'soon' is not a number of seconds"]


def test_a_switch_wins_over_the_variable_of_its_name(
    start_in_vain: StartInVain, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")

    status, lines = start_in_vain(
        "--no-leader-election", KUBECONFIG=missing, INFERNO_LEADER_ELECTION="maybe"
    )

    (line,) = lines
    assert status == 2
    assert line.startswith("inferno: no access to a cluster: ")


def test_a_busy_port_is_told_in_one_line(start_in_vain: StartInVain, kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]

        status, lines = start_in_vain(f"--health-port={port}", KUBECONFIG=str(kubeconfig))

    (line,) = lines
    assert status == 2
    assert line.startswith(f"inferno: cannot listen on port {port} ")
    assert "Address already in use; choose another port with --health-port" in line


def test_logs_can_be_json(start_in_vain: StartInVain, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")

    _, lines = start_in_vain("--log-format=json", KUBECONFIG=missing, INFERNO_NAMESPACES="llm")

    warning = json.loads(lines[0])
    assert warning["level"] == "warning"
    assert "did you mean INFERNO_NAMESPACE?" in warning["message"]
