"""The control plane that the other tests stand on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import WORKLOADS, new_namespace
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import Binaries
from tests.controlplane.deployments import deployment
from tests.controlplane.errors import ApiError, ProgramError, WaitTimeoutError
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import wait_until
from tests.tiers import extended

STARTER = """
import sys
from tests.controlplane import ControlPlane
with ControlPlane() as control_plane:
    print(control_plane.processes.supervisor_pid, control_plane.folder, flush=True)
    sys.stdin.read()
"""

PROGRAMS_OF_A_CONTROL_PLANE = ("etcd", "kube-apiserver", "kubectl")


@pytest.fixture
def starter() -> Iterator[subprocess.Popen[str]]:
    """A Python process with a control plane of its own, waiting for the end of its input."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # of the KeyboardInterrupt
        text=True,
    ) as process:
        yield process
        process.kill()


def session_and_folder(starter: subprocess.Popen[str]) -> tuple[int, Path]:
    """Session id of a starter's programs, and their folder."""
    assert starter.stdout is not None
    supervisor, folder = starter.stdout.readline().split()
    return int(supervisor), Path(folder)


def programs_in_session(session: int) -> list[str]:
    """Names of the processes in a session that still run, from /proc."""
    names = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = status.read_text().partition(" (")[2].rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):  # ended while we looked
            continue
        state, _parent, _group, of_session = fields.split()[:4]
        if int(of_session) == session and state != "Z":
            names.append(name)
    return sorted(names)


def wait_until_nothing_is_left(session: int, folder: Path) -> None:
    wait_until(
        lambda: (programs_in_session(session), folder.exists()),
        lambda left: left == ([], False),
        "no process and no folder left",
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, *extended(signal.SIGTERM, signal.SIGINT)])
def test_it_is_two_programs_and_nothing_is_left_when_its_starter_is_ended_by(
    starter: subprocess.Popen[str], number: signal.Signals
) -> None:
    session, folder = session_and_folder(starter)
    before = programs_in_session(session)

    starter.send_signal(number)

    assert len(before) == 3  # these two, and their supervisor
    assert {"etcd", "kube-apiserver"} < set(before)
    wait_until_nothing_is_left(session, folder)


def binaries_with(folder: Path, name: str, script: str) -> Binaries:
    """The usual programs, with a shell script in place of one; `$real` in it is the real one."""
    usual = Binaries(os.environ)
    for program in PROGRAMS_OF_A_CONTROL_PLANE:
        if program != name:
            (folder / program).symlink_to(usual.find(program))
    replacement = folder / name
    replacement.write_text(f"#!/bin/sh\nreal='{usual.find(name)}'\n{script}\n")
    replacement.chmod(0o755)
    return Binaries(os.environ | {"KUBEBUILDER_ASSETS": str(folder)})


def test_a_program_that_ends_while_starting_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    binaries = binaries_with(tmp_path, "etcd", "echo the disk is on fire; exit 3")

    with (
        pytest.raises(ProgramError, match=r"etcd ended with status 3(.|\n)*the disk is on fire"),
        ControlPlane(binaries),
    ):
        pass


def test_a_namespace_that_a_controller_ended_first_is_finished(control_plane: ControlPlane) -> None:
    with pytest.raises(ApiError, match="NotFound"):
        control_plane.get("namespace", "ended")

    control_plane.api.finish_namespace("ended")


@pytest.mark.parametrize("resource", WORKLOADS)
def test_a_namespace_leaves_no_workload_to_the_controllers_of_a_later_test(
    control_plane: ControlPlane, resource: str
) -> None:
    """130 Deployments that stayed held up those of another test for 13 s at each change."""
    manifest = deployment("engine")
    pod = {**manifest["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    workloads = {
        "deployments": manifest,
        "replicasets": {**manifest, "kind": "ReplicaSet"},
        "pods": {**pod, "metadata": {**pod["metadata"], "name": "engine"}},
    }
    with new_namespace(control_plane) as name:
        control_plane.api.apply([account, workloads[resource]], name)
        before = control_plane.items(resource, name)

    assert len(before) == 1
    assert control_plane.items(resource, name) == []


def test_waiting_in_vain_shows_the_last_state(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("create", "configmap", "slow", "--namespace", namespace)
    control_plane.patch("configmap", "slow", {"data": {"colour": "red"}}, namespace)

    with pytest.raises(WaitTimeoutError, match=r'configmap/slow(.|\n)*"colour": "red"'):
        control_plane.wait_for(
            "configmap", "slow", lambda seen: seen["data"]["colour"] == "blue", namespace, 0.5
        )
