"""`kubectl inferno` on a real control plane, found and started by the real kubectl."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.scene import Scene, condition
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.plugin import Plugin
from tests.screens import FOLDER, TIME_LIMIT_S, make_screens

pytestmark = pytest.mark.usefixtures("crds_installed")

READER = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [inferno.platform.ai], resources: ["*"], verbs: [get, list]}
"""
CLOSED_PORT = {"INFERNO_HOST": "127.0.0.1", "INFERNO_PORT": "1"}


@pytest.fixture
def plugin(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Plugin:
    return Plugin(control_plane, namespace, tmp_path)


@pytest.fixture
def fleet(scene: Scene) -> Scene:
    scene.apply_sample("fleet")
    return scene


def refusal(plugin: Plugin, *arguments: str | Path, status: int) -> str:
    """The one line that is said where a command fails."""
    done = plugin.run(*arguments)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.startswith("kubectl inferno: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.strip()


def document(plugin: Plugin, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(plugin.output(*arguments, "-o", "json"))


def decisions(scene: Scene) -> dict[str, Any]:
    return {name: server["spec"]["desiredAlloc"] for name, server in scene.servers().items()}


@pytest.mark.usefixtures("fleet")
def test_the_screens_of_the_documentation_are_what_the_program_prints(
    operator: StartOperator, plugin: Plugin
) -> None:
    operator(environment={"INFERNO_SOLVER_TIME_LIMIT": TIME_LIMIT_S})

    screens = make_screens(plugin)

    shown = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert screens == shown, "make them anew: python -m tests.screens"


@pytest.mark.extended
def test_a_plan_is_what_the_operator_then_writes(
    fleet: Scene, operator: StartOperator, plugin: Plugin
) -> None:
    planned = {item["name"]: item["planned"] for item in document(plugin, "plan")["servers"]}
    operator()
    plugin.output("optimize", "--wait")

    assert planned == decisions(fleet)
    assert plugin.output("plan").startswith("nothing would change; 20 of 20 would have")


def test_a_plan_writes_nothing_and_needs_no_right_to(
    fleet: Scene, control_plane: ControlPlane, namespace: str, plugin: Plugin
) -> None:
    fleet.kubectl("create", "serviceaccount", "reader")
    control_plane.kubectl("apply", "--namespace", namespace, "-f", "-", input=READER)
    account = f"--serviceaccount={namespace}:reader"
    fleet.kubectl("create", "rolebinding", "reader", "--role=reader", account)
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "reader")
    before = fleet.versions("inferno")

    plan = plugin.output("plan", "--kubeconfig", kubeconfig, "-n", namespace)

    assert "20 of 20 servers would change" in plan
    assert fleet.versions("inferno") == before
    assert "cannot patch resource" in refusal(
        plugin, "optimize", "--kubeconfig", kubeconfig, "-n", namespace, status=1
    )


def test_a_request_changes_exactly_one_field(fleet: Scene, plugin: Plugin) -> None:
    before = fleet.optimizer("fleet")["spec"]

    said = plugin.output("optimize")

    assert said == f"Optimizer {fleet.namespace}/fleet: asked to optimize\n"
    assert fleet.optimizer("fleet")["spec"] == before | {"optimize": True}


def test_waiting_ends_with_the_result(
    fleet: Scene, operator: StartOperator, plugin: Plugin
) -> None:
    operator()

    result = document(plugin, "optimize", "fleet", "--wait")

    assert fleet.optimizer("fleet")["status"]["done"]
    (optimizer,) = result["optimizers"]
    assert optimizer["lastOptimization"]["allocated"] == 20
    shown = {item["name"]: item["desiredAlloc"] for item in result["servers"]}
    assert shown == decisions(fleet)


def test_waiting_tells_that_a_plan_waits_and_how_to_approve_it(
    scene: Scene, operator: StartOperator, plugin: Plugin
) -> None:
    scene.apply_sample("small")
    mode = {"spec": {"mode": "Approve"}}
    scene.patch("optimizer", "inferno", mode)
    operator()

    last = plugin.output("optimize", "--wait").splitlines()[-1]
    asked_again = document(plugin, "optimize", "--wait")
    command = re.findall(r"approve: kubectl inferno (approve [^;]+);", last)[0]
    plugin.output(*command.split())

    assert last.startswith("Plan inferno-1 waits for approval: 2 Servers change; cost 360.00 -> ")
    assert asked_again["waiting"] == ["inferno-1"]
    done = ("--for=jsonpath={.status.phase}=Written", f"--timeout={PATIENCE_S:g}s")
    scene.kubectl("wait", "plan.inferno.platform.ai/inferno-1", *done)


def test_a_failure_is_told_as_the_operator_tells_it(
    fleet: Scene, operator: StartOperator, plugin: Plugin
) -> None:
    operator(environment=CLOSED_PORT)

    done = plugin.run("optimize", "--wait")

    told = condition(fleet.optimizer("fleet"), "Optimized")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"kubectl inferno: Optimizer {fleet.namespace}/fleet: {told['reason']}: {told['message']}"
    )


def test_waiting_without_an_operator_ends_and_says_so(fleet: Scene, plugin: Plugin) -> None:
    done = plugin.run("optimize", "--wait", "--timeout", "1")

    assert done.returncode == 1
    state = "asked; waiting for the operator to begin"
    assert done.stderr.splitlines() == [
        state,
        f"kubectl inferno: Optimizer {fleet.namespace}/fleet: not done in 1 s: {state}",
    ]


def waiting(plugin: Plugin) -> "subprocess.Popen[str]":
    """The program that waits for the end of an optimization."""
    command = plugin.command("optimize", "--wait")
    return subprocess.Popen(command, env=plugin.environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.extended
def test_a_request_that_somebody_withdraws_is_not_waited_for(fleet: Scene, plugin: Plugin) -> None:
    process = waiting(plugin)
    wait_until(lambda: fleet.optimizer("fleet")["spec"]["optimize"], bool, "the request")
    no = {"spec": {"optimize": False}}
    fleet.patch("optimizer", "fleet", no)
    _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 1
    assert "spec.optimize was set to false before the optimization was done" in errors


@pytest.mark.extended
def test_ctrl_c_ends_the_waiting_but_not_the_request(fleet: Scene, plugin: Plugin) -> None:
    process = waiting(plugin)
    assert process.stderr is not None
    assert process.stderr.readline() == "asked; waiting for the operator to begin\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, errors) == (130, "stopped waiting; the request stays\n")
    assert fleet.optimizer("fleet")["spec"]["optimize"] is True


def test_explain_shows_options_remedies_and_conditions(
    scene: Scene, operator: StartOperator, plugin: Plugin
) -> None:
    scene.apply_sample("troubles")
    operator()
    plugin.output("optimize", "--wait")

    text = plugin.output("explain", "no-capacity")

    assert text.startswith("ACCELERATOR  CHOSEN  REPLICAS")
    assert "1 more card of G2 would serve it (+25.00 cents/hour)" in text
    assert re.search(r"\nReady +False +NoCapacity +\d+s +not enough cards", text)


def test_json_and_yaml_of_top_say_the_same(fleet: Scene, plugin: Plugin) -> None:
    as_yaml = yaml.safe_load(plugin.output("top", "-o", "yaml"))

    assert as_yaml == document(plugin, "top")
    assert len(as_yaml["servers"]) == len(fleet.servers())


@contextmanager
def on_terminal(plugin: Plugin, *arguments: str) -> Iterator["Terminal"]:
    """Run the plugin on a terminal of its own."""
    screen, inside = pty.openpty()
    size = {"COLUMNS": "200", "LINES": "60", "TERM": "xterm"}
    process = subprocess.Popen(
        plugin.command(*arguments),
        env={**plugin.environment, **size},
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


class Terminal:
    """A program on a terminal, and what it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self.shown = ""
        self._screen = screen

    def wait_for(self, pattern: str) -> None:
        """Read on until something is shown that was not read before."""
        start, deadline = len(self.shown), time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown[start:]):
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._screen], [], [], left)[0]
            assert ready, f"{pattern!r} is not in {self.shown[start:].split()[-500:]}"
            self.shown += os.read(self._screen, 65536).decode()

    def end(self) -> int:
        """Press Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


def test_top_follows_what_happens_until_ctrl_c(fleet: Scene, plugin: Plugin) -> None:
    with on_terminal(plugin, "top", "--watch", "--interval", "0.2") as terminal:
        terminal.wait_for("premium-mistral-7b .*3 x A100")
        replicas = {"spec": {"currentAlloc": {"numReplicas": 17}}}
        fleet.patch("server", "premium-mistral-7b", replicas)
        terminal.wait_for("premium-mistral-7b .*17 x A100")
        fleet.kubectl("delete", "server", "premium-mistral-7b")
        terminal.wait_for("of 19 servers")

        assert terminal.end() == 0
    assert "\x1b[1m" in terminal.shown
    assert "Traceback" not in terminal.shown


def label(fleet: Scene, *servers: str) -> None:
    for server in servers:
        labels = {"metadata": {"labels": {"team": "search"}}}
        fleet.patch("server", server, labels)


def test_top_shows_the_servers_with_labels(fleet: Scene, plugin: Plugin) -> None:
    label(fleet, "premium-mistral-7b", "free-llama-70b")

    chosen = document(plugin, "top", "-l", "team=search")
    cards = document(plugin, "top")["capacity"]

    assert [server["name"] for server in chosen["servers"]] == [
        "free-llama-70b",
        "premium-mistral-7b",
    ]
    assert chosen["capacity"] == cards
    said = refusal(plugin, "top", "--selector", "team in", status=1)
    assert "servers with team in" in said


@pytest.mark.extended
def test_top_follows_labels_also_while_the_api_server_is_away(
    control_plane: ControlPlane, fleet: Scene, plugin: Plugin
) -> None:
    label(fleet, "premium-mistral-7b")
    with on_terminal(plugin, "top", "--interval", "0.2", "-l", "team=search") as terminal:
        terminal.wait_for("of 1 server")
        label(fleet, "free-llama-70b")
        terminal.wait_for("of 2 servers")
        control_plane.stop_api_server()
        try:
            terminal.wait_for("what is shown may be old: .*(?s:.)*of 2 servers")
        finally:
            control_plane.start_api_server()
        label(fleet, "bronze-mistral-7b")
        terminal.wait_for("of 3 servers")

        assert terminal.end() == 0


def test_whoever_may_not_look_is_told_what_is_forbidden(
    fleet: Scene, control_plane: ControlPlane, namespace: str, plugin: Plugin
) -> None:
    control_plane.kubectl("create", "serviceaccount", "nobody", "--namespace", namespace)
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "nobody")

    said = refusal(plugin, "top", "--kubeconfig", kubeconfig, "-n", namespace, status=1)

    assert "is forbidden: User" in said
    assert fleet.namespace in said


def test_an_api_server_that_does_not_answer_is_one_line(plugin: Plugin, tmp_path: Path) -> None:
    config = yaml.safe_load(plugin.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig = tmp_path / "elsewhere"
    kubeconfig.write_text(yaml.safe_dump(config))

    assert "does not answer" in refusal(plugin, "plan", "--kubeconfig", kubeconfig, status=1)
