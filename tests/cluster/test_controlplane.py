"""The control plane that the other tests stand on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.conftest import WORKLOADS, new_namespace
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import Binaries
from tests.controlplane.deployments import deployment
from tests.controlplane.errors import ApiError, ProgramError, WaitTimeoutError
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.tiers import extended

STARTER = """
import sys
from tests.controlplane import ControlPlane
with ControlPlane() as control_plane:
    print(control_plane.processes.supervisor_pid, control_plane.folder, flush=True)
    sys.stdin.read()
"""

PROGRAMS_OF_A_CONTROL_PLANE = ("etcd", "kube-apiserver", "kubectl")
TAKE_THE_PORT_ONCE = """
import os, pathlib, socket, sys
real, *options = sys.argv[1:]
if not pathlib.Path("taken").exists():
    pathlib.Path("taken").touch()
    port = next(option.split("=")[1] for option in options if "secure-port" in option)
    listener = socket.create_server(("127.0.0.1", int(port)))
    listener.set_inheritable(True)
os.execv(real, [real, *options])
"""


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


@pytest.mark.extended
def test_no_process_is_left_when_even_its_supervisor_is_killed(
    starter: subprocess.Popen[str],
) -> None:
    session, folder = session_and_folder(starter)
    before = programs_in_session(session)

    os.kill(session, signal.SIGKILL)
    starter.communicate()

    assert {"etcd", "kube-apiserver"} < set(before)
    wait_until_nothing_is_left(session, folder)


@pytest.mark.extended
def test_two_run_side_by_side(control_plane: ControlPlane) -> None:
    with ControlPlane() as other:
        other.create_namespace("only-there")

        assert other.url != control_plane.url
        with pytest.raises(ApiError, match="NotFound"):
            control_plane.get("namespace", "only-there")


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


@pytest.mark.extended
def test_a_port_that_another_program_took_first_is_no_obstacle(tmp_path: Path) -> None:
    script = f"""exec '{sys.executable}' -c '{TAKE_THE_PORT_ONCE}' "$real" "$@" """
    binaries = binaries_with(tmp_path, "kube-apiserver", script)

    with ControlPlane(binaries) as control_plane:
        log = control_plane.processes.log_path("kube-apiserver").read_text()

    assert log.count("address already in use") >= 1


def test_a_service_account_has_no_rights_but_those_it_was_given(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "serviceaccount", "stranger", "--namespace", namespace)
    stranger = control_plane.service_account_kubeconfig(namespace, "stranger")
    here = f"--namespace={namespace}"

    whoami = control_plane.kubectl("auth", "whoami", kubeconfig=stranger)
    refused = control_plane.kubectl("get", "pods", here, kubeconfig=stranger, check=False)
    control_plane.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", here)
    subject = f"--serviceaccount={namespace}:stranger"
    control_plane.kubectl("create", "rolebinding", "reader", "--role=reader", subject, here)

    assert f"system:serviceaccount:{namespace}:stranger" in whoami.stdout
    assert "Forbidden" in refused.stderr
    wait_until(
        lambda: control_plane.kubectl("get", "pods", here, kubeconfig=stranger, check=False).stderr,
        lambda said: said.startswith("No resources found"),
        "the role in force",
    )


def test_its_certificate_is_not_trusted_by_just_anybody(control_plane: ControlPlane) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(control_plane.url, timeout=PATIENCE_S)


def definition_of_gadgets() -> str:
    """A kind of a category that nothing else is in."""
    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "categories": ["tools"]}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }
    return yaml.safe_dump(definition)


def test_kubectl_knows_the_category_of_a_definition_that_it_did_not_find_before(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    here = f"--namespace={namespace}"
    before = control_plane.kubectl("get", "tools", here, check=False)
    (tmp_path / "gadgets.yaml").write_text(definition_of_gadgets())

    control_plane.install_crds(tmp_path)

    assert "doesn't have a resource type" in before.stderr
    assert "No resources found" in control_plane.kubectl("get", "tools", here).stderr


def test_a_restarted_api_server_has_its_data_and_its_address(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "configmap", "kept", "--namespace", namespace)
    before = control_plane.get("configmap", "kept", namespace)

    control_plane.stop_api_server()
    away = control_plane.kubectl("get", "namespaces", check=False)
    control_plane.start_api_server()

    assert "refused" in away.stderr
    assert control_plane.get("configmap", "kept", namespace) == before


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


@pytest.mark.usefixtures("controller_manager")
def test_the_controller_manager_deletes_what_an_owner_leaves_behind(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "configmap", "owner", "--namespace", namespace)
    owner = control_plane.get("configmap", "owner", namespace)["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    control_plane.kubectl("create", "configmap", "owned", "--namespace", namespace)
    control_plane.patch(
        "configmap", "owned", {"metadata": {"ownerReferences": [reference]}}, namespace
    )

    control_plane.kubectl("delete", "configmap", "owner", "--namespace", namespace)

    left = wait_until(
        lambda: [item["metadata"]["name"] for item in control_plane.items("configmap", namespace)],
        lambda names: "owned" not in names,
        "the owned object deleted",
    )
    assert "owner" not in left
