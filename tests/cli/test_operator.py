"""`inferno operator`: how it is configured, and what it says when it cannot start."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from inferno_operator.settings import VARIABLES

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


def start(*arguments: str, kubeconfig: Path, **environment: str) -> tuple[int, list[str]]:
    """Exit status and lines of an operator that cannot start."""
    command = [sys.executable, "-m", "inferno_operator", "operator", *arguments]
    foreign = ("INFERNO_", "KUBERNETES_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    variables = inherited | {"KUBECONFIG": str(kubeconfig)} | environment
    ended = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.splitlines()


def test_every_variable_has_an_option_that_the_help_explains() -> None:
    command = [sys.executable, "-m", "inferno_operator", "operator", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    words = " ".join(text.split())
    for variable in VARIABLES:
        assert f"--{variable.option} " in words
        assert f"{variable.help} [{variable.name}]" in words


def test_an_option_wins_over_the_variable_of_its_name(kubeconfig: Path) -> None:
    status, lines = start(
        "--solver-time-limit=soon", kubeconfig=kubeconfig, INFERNO_SOLVER_TIME_LIMIT="30"
    )

    assert status == 2
    assert lines == ["inferno: INFERNO_SOLVER_TIME_LIMIT: 'soon' is not a number of seconds"]


def test_a_switch_wins_over_the_variable_of_its_name(tmp_path: Path) -> None:
    status, lines = start(
        "--no-leader-election", kubeconfig=tmp_path / "missing", INFERNO_LEADER_ELECTION="maybe"
    )

    assert status == 2
    assert lines[-1].startswith("inferno: no access to a cluster: ")


def test_a_busy_port_is_told_in_one_line(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]

        status, lines = start(f"--health-port={port}", kubeconfig=kubeconfig)

    (line,) = lines
    assert status == 2
    assert line.startswith(f"inferno: cannot listen on port {port} ")
    assert "Address already in use; choose another port with --health-port" in line


def test_logs_can_be_json(tmp_path: Path) -> None:
    _, lines = start("--log-format=json", kubeconfig=tmp_path / "missing", INFERNO_NAMESPACES="llm")

    warning = json.loads(lines[0])
    assert warning["level"] == "warning"
    assert "did you mean INFERNO_NAMESPACE?" in warning["message"]
