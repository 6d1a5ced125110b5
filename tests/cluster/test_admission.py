"""`inferno admission` on a real API server: warnings at apply, and nothing that it could break."""

import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import yaml

from inferno_operator.controllers.planning.mistakes import SMALL_KINDS
from tests.cluster.forgetful import ForgetfulProxy
from tests.cluster.scene import Scene
from tests.conftest import ROOT, StartOperator, new_namespace
from tests.controlplane import ControlPlane
from tests.controlplane.admission import WEBHOOK, Admission, apply, webhook
from tests.controlplane.ports import HOST
from tests.controlplane.waiting import wait_until
from tests.reference.shown import shown
from tests.tiers import extended
from tests.unit.operator import objects
from tests.wrong_objects import FLEET, MISTAKES

pytestmark = pytest.mark.usefixtures("crds_installed")

GUIDE = ROOT / "docs" / "guides" / "mistakes.md"
WRONG = MISTAKES["model misspelt"]
WORDS = "model: no model with performance data is named 'granite-13'; did you mean granite-13b?"
WATCHES = len(SMALL_KINDS) + 1
"""Of the kinds that it keeps, and of their definitions."""

READS = {"GET", "LIST", "WATCH"}
OF_THE_API_SERVER = {"leases"}
"""What the API server itself writes meanwhile."""

ASKED = re.compile(
    r'^apiserver_admission_webhook_request_total\{.*name="check\.inferno.*\} (\d+)', re.MULTILINE
)


@pytest.fixture(scope="module")
def reader(control_plane: ControlPlane) -> Iterator[Path]:
    """A kubeconfig with the rights that the manifests give."""
    with new_namespace(control_plane) as namespace:
        yield kubeconfig_of_the_manifests(control_plane, namespace)


def kubeconfig_of_the_manifests(plane: ControlPlane, namespace: str) -> Path:
    for file in ("service-account", "cluster-role", "cluster-role-binding"):
        text = WEBHOOK.with_name(f"{file}.yaml").read_text()
        manifest = yaml.safe_load(text.replace("inferno-system", namespace))
        manifest["metadata"]["namespace"] = namespace
        plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    return plane.service_account_kubeconfig(namespace, "inferno-admission")


@pytest.fixture(scope="module")
def admission(control_plane: ControlPlane, reader: Path) -> Iterator[Admission]:
    started = Admission.start(control_plane.processes, "admission", reader)
    yield started
    if started.exit_code is None:
        assert control_plane.processes.stop("admission") == 0


@pytest.fixture
def fleet(scene: Scene, admission: Admission) -> Scene:
    """A namespace with what is right, which the process knows."""
    scene.apply(*FLEET)
    admission.wait_for_words(WRONG, scene.namespace, WORDS)
    return scene


@pytest.fixture
def asking(fleet: Scene, admission: Admission) -> Iterator[Scene]:
    """A namespace about whose objects the API server asks."""
    with webhook(fleet.control_plane, fleet.namespace, admission.port, admission.authority):
        wait_until(
            lambda: apply(fleet.control_plane, fleet.namespace, [WRONG], "--dry-run=server"),
            bool,
            "the webhook in force",
        )
        yield fleet


def conditions(scene: Scene) -> set[str]:
    """What the conditions of all objects say is wrong."""
    said = {("Ready", "False"), ("Warnings", "True")}
    return {
        condition["message"]
        for item in scene.items("inferno")
        for condition in item.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) in said
    }


@pytest.mark.slow
def test_apply_warns_in_the_words_of_the_conditions(asking: Scene, operator: StartOperator) -> None:
    scene = asking
    wrong = list(MISTAKES.values())
    scene.apply(*wrong)
    operator()
    scene.request("inferno")
    scene.wait_until_done("inferno")

    options = ("--server-side", "--force-conflicts", "--dry-run=server")
    warnings = apply(scene.control_plane, scene.namespace, wrong, *options)

    assert len(wrong) >= 30
    assert len(set(warnings)) >= 30
    assert set(warnings) == conditions(scene)


def test_the_guide_shows_what_kubectl_prints(
    scene: Scene, admission: Admission, tmp_path: Path
) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    scene.apply_sample("small")
    (server,) = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    admission.wait_for_words(yaml.safe_load(server), namespace, "did you mean granite-13b?")
    (tmp_path / "chat.yaml").write_text(server)
    frozen = objects.guarded({"freeze": [{"start": "0 25 * * *", "duration": "1h"}]})
    frozen["metadata"]["name"] = "nightly"
    (tmp_path / "nightly.yaml").write_text(json.dumps(frozen))
    with webhook(plane, namespace, admission.port, admission.authority):
        wait_until(
            lambda: apply(plane, namespace, [yaml.safe_load(server)], "--dry-run=server"),
            bool,
            "the webhook in force",
        )
        for command in shown(GUIDE):
            path = tmp_path / command.text.split()[-1]
            arguments = ("apply", "--namespace", namespace, "--filename", path)
            told = plane.kubectl(*arguments, check=False)
            assert command.fits((told.stderr + told.stdout).replace(f"{tmp_path}/", ""))

    assert "chat" in scene.servers()
    assert len(plane.items("optimizers", namespace)) == 1  # that of the sample


@pytest.mark.parametrize("how", ["it is down", "it hangs", "its certificate is another"])
def test_apply_passes_without_it(scene: Scene, admission: Admission, how: str) -> None:
    other = Path(admission.authority).with_name("other.crt")
    trustme.CA().cert_pem.write_to_path(other)
    with socket.create_server((HOST, 0)) as silent:
        port = {"it is down": 1, "it hangs": silent.getsockname()[1]}.get(how, admission.port)
        authority = other if port == admission.port else admission.authority
        with webhook(scene.control_plane, scene.namespace, port, authority):
            warnings = apply(scene.control_plane, scene.namespace, [WRONG])

    (hook,) = yaml.safe_load(WEBHOOK.read_text())["webhooks"]
    assert warnings == []
    assert "s4" in scene.servers()
    assert hook["timeoutSeconds"] <= 2  # so long a person waits for one that hangs


def test_it_writes_nothing(fleet: Scene, reader: Path) -> None:
    plane, namespace = fleet.control_plane, fleet.namespace
    fleet.apply(*MISTAKES.values())
    before, asked = plane.items("inferno", namespace), plane.requests()

    second = Admission.start(plane.processes, f"admission-{namespace}", reader)
    second.wait_for_words(WRONG, namespace, WORDS)
    for manifest in list(MISTAKES.values())[::7]:
        assert second.review(manifest, namespace)["allowed"]
    assert plane.processes.stop(second.name) == 0

    made = plane.requests() - asked
    assert {verb for verb, resource, _ in made if resource not in OF_THE_API_SERVER} <= READS
    assert plane.items("inferno", namespace) == before
    assert not any({"finalizers", "annotations"} & item["metadata"].keys() for item in before)


def asked(plane: ControlPlane) -> int:
    """How often the API server has asked."""
    metrics = plane.kubectl("get", "--raw", "/metrics").stdout
    return sum(int(number) for number in ASKED.findall(metrics))


def test_the_operators_writes_do_not_reach_it(
    fleet: Scene, admission: Admission, operator: StartOperator
) -> None:
    plane, namespace = fleet.control_plane, fleet.namespace
    with webhook(plane, namespace, admission.port, admission.authority):
        right = objects.server("S", spec={"class": "Gold", "model": "granite-13b"})
        before = asked(plane)
        wait_until(
            lambda: apply(plane, namespace, [right]) or asked(plane),
            lambda count: count != before,
            "the webhook in force",
        )
        before = asked(plane)

        operator()
        assert asked(plane) == before
        fleet.request("inferno")
        by_request = asked(plane)
        fleet.wait_until_done("inferno")

        assert "desiredAlloc" in fleet.servers()["s"]["spec"]
        assert before < by_request == asked(plane)


WRITES = {
    "apply": ("--server-side", "--force-conflicts", "--filename=-"),
    "create": ("--filename=-",),
    "patch": ("optimizers", "inferno", "--type=merge", '--patch={"spec": {"capped": true}}'),
    "replace": ("--filename=-",),
}
"""Ways to write an Optimizer, and their options."""


def test_who_writes_is_known_by_the_field_manager(asking: Scene) -> None:
    plane, namespace = asking.control_plane, asking.namespace
    (optimizer,) = plane.items("optimizers", namespace)

    def is_asked(verb: str, *manager: str) -> bool:
        optimizer["metadata"] = {"name": "new" if verb == "create" else "inferno"}
        command = (verb, "--dry-run=server", "--namespace", namespace, *WRITES[verb], *manager)
        before = asked(plane)
        plane.kubectl(*command, input=json.dumps(optimizer))
        return asked(plane) != before

    def those(*managers: str) -> set[str]:
        options = [f"--field-manager={manager}" for manager in managers]
        return {verb for verb in WRITES for option in options if is_asked(verb, option)}

    assert those("inferno-operator", "inferno-x") == set()
    assert those("kubectl-inferno") == those("inferno") == {*WRITES}
    assert {verb for verb in WRITES if is_asked(verb)} == {*WRITES}


@pytest.mark.parametrize("status", [*extended(404), 410])
def test_an_answer_that_kopf_does_not_survive_ends_this_process_alone(
    fleet: Scene, operator: StartOperator, status: int
) -> None:
    plane, name = fleet.control_plane, f"admission-{fleet.namespace}"
    planner = operator()
    with ForgetfulProxy(plane.kubeconfig) as proxy:
        kubeconfig = proxy.write_kubeconfig(plane.folder / f"{name}.kubeconfig")
        process = Admission.start(plane.processes, name, kubeconfig)
        process.wait_for_words(WRONG, fleet.namespace, WORDS)
        wait_until(lambda: len(proxy.watched), lambda count: count == WATCHES, "its watches")

        proxy.refusal = status
        proxy.forget()
        code = process.wait_for_end()

    assert code in {1, -signal.SIGKILL}  # by itself, or where kopf would wait for ever
    assert f" {status}, message=" in process.log
    assert planner.exit_code is None
    assert apply(plane, fleet.namespace, [WRONG]) == []


@pytest.mark.extended
def test_it_knows_a_thousand_models_within_ten_seconds(scene: Scene, reader: Path) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    scene.apply(*FLEET, *(objects.model(f"model-{number}") for number in range(1000)))

    began = time.monotonic()
    process = Admission.start(plane.processes, f"admission-{namespace}", reader)
    process.wait_for_words(WRONG, namespace, "'granite-13'; correct it or add the model")
    waited, worked = time.monotonic() - began, process.seconds
    plane.processes.stop(process.name)

    sys.stdout.write(f"ready after {waited:.1f} s, {worked:.1f} s of processor time\n")
    assert worked < 10  # in place of the time that passes, in which others work


@pytest.mark.extended
def test_it_may_start_before_the_definitions_are_installed() -> None:
    with ControlPlane() as plane:
        reader = kubeconfig_of_the_manifests(plane, "default")
        process = Admission.start(plane.processes, "admission", reader)
        wait_until(lambda: process.log, lambda log: "authentication has finished" in log, "login")

        plane.install_crds(ROOT / "crds")
        plane.api.apply(FLEET, "default")

        process.wait_for_words(WRONG, "default", WORDS)
        assert "Forbidden" not in process.log
