"""`kubectl inferno console` on a real API server: what it shows, and who may approve there."""

import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cluster.console import COMMAND, hidden_fields, running_console, user_in
from tests.cluster.scene import Scene
from tests.cluster.test_plans import fill, propose, wait_for_phases
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")


class Opened:
    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address, self.origin = address, f"{parts.scheme}://{parts.netloc}"
        self.shown = 0
        self.browser = httpx.Client(base_url=self.origin, trust_env=False, timeout=PATIENCE_S)
        assert self.browser.get(address).status_code == HTTPStatus.SEE_OTHER

    def text(self, path: str) -> str:
        answer = self.browser.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def until_the_end(self, path: str) -> None:
        """Ask for a page again and again until nobody answers; the page of news takes long."""
        try:
            while True:
                with self.browser.stream("GET", path) as answer:
                    for _ in answer.iter_lines():
                        self.shown += 1
        except httpx.TransportError:
            return

    def form(self, path: str, name: str) -> dict[str, str]:
        """Hidden fields of the form that does something."""
        return hidden_fields(self.text(path), f"{path}/{name}")

    def post(self, path: str, fields: dict[str, str], origin: str = "") -> httpx.Response:
        return self.browser.post(path, data=fields, headers={"Origin": origin or self.origin})


@contextmanager
def console(kubeconfig: Path, namespace: str, log: Path, *more: str) -> Iterator[Opened]:
    with running_console(kubeconfig, namespace, log, *more) as address:
        opened = Opened(address)
        with closing(opened.browser):
            yield opened


@pytest.fixture
def proposed(scene: Scene, operator: StartOperator) -> Scene:
    """A Plan that waits for approval: inferno-1."""
    propose(scene, operator)
    return scene


def test_who_may_approve_does_so_in_the_page(proposed: Scene, tmp_path: Path) -> None:
    plane, namespace = proposed.control_plane, proposed.namespace
    kubeconfig = user_in(plane, namespace, "ann", "inferno-view", "inferno-approve")
    log = tmp_path / "log"

    with console(kubeconfig, namespace, log) as opened:
        assert opened.browser.get(opened.address).status_code == 401  # it opens one browser, once
        assert httpx.get(opened.origin, trust_env=False, timeout=PATIENCE_S).status_code == 401
        fleet = opened.text("/")
        assert "inferno-1 waits for approval: " in fleet
        assert '<a class="primary" href="/plans/inferno-1">' in fleet
        assert '<a href="/servers/' in fleet
        assert opened.browser.get("/?format=json").json()["servers"][0]["class"] == "C"
        assert 'href="/plans/inferno-1"' in opened.text("/plans")
        assert "nothing would change" not in opened.text("/next")
        assert "ACCELERATOR" in opened.text("/servers/s")
        answer = opened.post("/plans/inferno-1/approve", opened.form("/plans/inferno-1", "approve"))
        assert answer.status_code == 303
        wait_for_phases(proposed, inferno_1="Written")
        assert "/approve" not in opened.text("/plans/inferno-1")

    assert "token" not in log.read_text()


def test_who_may_see_one_namespace_sees_nothing_of_another(
    scene: Scene, control_plane: ControlPlane
) -> None:
    fill(scene)
    kubeconfig = user_in(control_plane, scene.namespace, "eve", "inferno-view")

    options = ["--kubeconfig", str(kubeconfig), "--namespace", "default"]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert 'cannot list resource "optimizers"' in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.extended
def test_news_arrive_when_something_changes(proposed: Scene, tmp_path: Path) -> None:
    plane, namespace = proposed.control_plane, proposed.namespace
    kubeconfig = user_in(plane, namespace, "ann", "inferno-view")

    with (
        console(kubeconfig, namespace, tmp_path / "log") as opened,
        opened.browser.stream("GET", "/news") as stream,
    ):
        lines = stream.iter_lines()
        first = next(line for line in lines if line)
        plane.patch("server", "s", {"metadata": {"labels": {"seen": "yes"}}}, namespace)
        # Changes that were on their way are told of with the same version.
        assert next(line for line in lines if line.startswith("data") and line != first)


@pytest.mark.extended
def test_ctrl_c_ends_with_one_line_whatever_is_served(scene: Scene, tmp_path: Path) -> None:
    fill(scene)
    kubeconfig = user_in(scene.control_plane, scene.namespace, "ann", "inferno-view")
    log, options = tmp_path / "log", ("--namespace", scene.namespace)

    with (
        log.open("w") as written,
        subprocess.Popen(
            [*COMMAND, "--kubeconfig", str(kubeconfig), *options],
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        ) as process,
        ThreadPoolExecutor() as threads,
    ):
        assert process.stdout is not None
        opened = Opened(process.stdout.readline().strip())
        pages = [threads.submit(opened.until_the_end, f"/next?q={n}") for n in range(3)]
        news = [threads.submit(opened.until_the_end, "/news") for _ in range(3)]
        wait_until(lambda: opened.shown, lambda shown: shown >= 6, "pages are shown")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE_S)
        assert {page.exception() for page in (*pages, *news)} == {None}

    assert (process.returncode, rest) == (0, "the console has ended\n")
    assert log.read_text() == ""


@pytest.mark.extended
def test_events_about_a_server_are_seen_by_those_who_may_list_them(
    proposed: Scene, tmp_path: Path
) -> None:
    plane, namespace = proposed.control_plane, proposed.namespace
    kubeconfig = user_in(plane, namespace, "bob", "inferno-view")
    plane.kubectl("apply", "--filename", "-", input=json.dumps(happened(namespace, "s", "Woke")))
    plane.kubectl("apply", "--filename", "-", input=json.dumps(happened(namespace, "t", "Slept")))

    with console(kubeconfig, namespace, tmp_path / "log") as opened:
        opened.browser.get(opened.address)
        assert "events are not shown: " in opened.text("/servers/s")
        within = ("--namespace", namespace)
        plane.kubectl("create", "role", "events", *within, "--verb=list", "--resource=events")
        bound = ("--role=events", f"--serviceaccount={namespace}:bob")
        plane.kubectl("create", "rolebinding", "events", *within, *bound)

        text = wait_until(
            lambda: opened.text("/servers/s"),
            lambda shown: "it is Woke" in shown,
            "the event is on the page",
        )
        assert "it is Slept" not in text


@pytest.mark.extended
def test_who_leads_is_seen_by_those_who_may_read_the_lease(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    fill(scene)
    operator(environment={"INFERNO_LEADER_ELECTION": "true"})
    kubeconfig = user_in(plane, namespace, "bob", "inferno-view")
    there = ("--operator-namespace", namespace)

    with console(kubeconfig, namespace, tmp_path / "log", *there) as opened:
        refused = leader(opened)
        assert 'cannot get resource "leases"' in refused["unknown"]
        assert "cannot get resource" in opened.text("/data")
        within, lease = ("--namespace", namespace), "--resource=leases.coordination.k8s.io"
        plane.kubectl("create", "role", "leader", *within, "--verb=get", lease)
        bound = ("--role=leader", f"--serviceaccount={namespace}:bob")
        plane.kubectl("create", "rolebinding", "leader", *within, *bound)

        seen = wait_until(lambda: leader(opened), lambda found: "holder" in found, "a leader")
        held = plane.get("lease", "inferno-operator", namespace)["spec"]
        assert (seen["holder"], seen["transitions"]) == (held["holderIdentity"], 0)
        pod = seen["holder"].partition("_")[0]
        led = f"{pod} leads since "
        wait_until(lambda: opened.text("/data"), lambda text: led in text, "the leader's name")


def leader(opened: Opened) -> dict[str, Any]:
    found: dict[str, Any] = opened.browser.get("/data?format=json").json()["leader"]
    return found


def happened(namespace: str, server: str, reason: str) -> dict[str, object]:
    """An event about a Server."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": reason.lower(), "namespace": namespace},
        "involvedObject": {"kind": "Server", "name": server, "namespace": namespace},
        "reason": reason,
        "message": f"it is {reason}",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
