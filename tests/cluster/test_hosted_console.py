"""`kubectl inferno console-server` on a real API server: each person has the rights of a token."""

import base64
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import trustme
import yaml

from tests.cluster.console import user_in
from tests.cluster.scene import Scene
from tests.cluster.test_plans import fill, phases, wait_for_phases
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.ports import free_port
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")

COMMAND = (sys.executable, "-m", "inferno_operator.cli.kubectl.main", "console-server")
HIDDEN = re.compile(r'name="(digest|form)" value="([^"]*)"')
PLAN = "/plans/inferno-1"


class Hosted:
    """A console in a cluster, which browsers reach with TLS."""

    def __init__(self, origin: str, trust: ssl.SSLContext) -> None:
        self.origin, self._trust, self.opened = origin, trust, ExitStack()

    def browser(self) -> "Visitor":
        return self.opened.enter_context(Visitor(self.origin, self._trust))

    def logged_in(self, token: str, namespace: str) -> "Visitor":
        visitor = self.browser()
        answer = visitor.log_in(token, namespace)
        assert answer.status_code == 303, answer.text
        return visitor


class Visitor(httpx.Client):
    """A browser of one person."""

    def __init__(self, origin: str, trust: ssl.SSLContext) -> None:
        super().__init__(base_url=origin, verify=trust, trust_env=False, timeout=30)
        self.origin = origin

    def log_in(self, token: str, namespace: str) -> httpx.Response:
        return self.send_form("/login", {"token": token, "namespace": namespace})

    def send_form(self, path: str, fields: dict[str, str], origin: str = "") -> httpx.Response:
        return self.post(path, data=fields, headers={"Origin": origin or self.origin})

    def form(self, path: str, action: str) -> dict[str, str]:
        """Hidden fields of the form that does something."""
        _, _, after = self.get(path).text.partition(f'action="{action}"')
        return dict(HIDDEN.findall(after.partition("</form>")[0]))


@contextmanager
def hosted_console(plane: ControlPlane, folder: Path) -> Iterator[Hosted]:
    """Run a console that has no rights of its own."""
    cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    ca, port = trustme.CA(), free_port()
    certificate, key = folder / "tls.crt", folder / "key"
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    key.write_text("k" * 32)
    authorities = folder / "ca.crt"
    authorities.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    trust = ssl.create_default_context()
    ca.configure_trust(trust)
    hosted = Hosted(f"https://127.0.0.1:{port}", trust)
    options = (
        *("--origin", hosted.origin, "--key-file", key, "--certificate", certificate),
        *("--host", "127.0.0.1", "--port", str(port), "--api-server", cluster["server"]),
        *("--api-server-ca", str(authorities)),
    )
    with (
        (folder / "log").open("w") as log,
        hosted.opened,
        subprocess.Popen([*COMMAND, *options], stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: answers(hosted), bool, "the console answers", 60)
            yield hosted
        finally:
            process.terminate()


def answers(hosted: Hosted) -> bool:
    try:
        return hosted.browser().get("/login").status_code == 200
    except httpx.TransportError:
        return False


def token_of(plane: ControlPlane, namespace: str, name: str, *roles: str) -> str:
    user = yaml.safe_load(user_in(plane, namespace, name, *roles).read_text())["users"][0]["user"]
    return str(user["token"])


def test_each_person_has_the_rights_of_a_token(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    fill(scene, mode="Approve")
    operator()
    scene.request("inferno")
    scene.wait_until_done("inferno")
    wait_for_phases(scene, inferno_1="Proposed")
    nobody = token_of(plane, namespace, "eve")
    reader = token_of(plane, namespace, "bob", "inferno-view")
    approver = token_of(plane, namespace, "ann", "inferno-view", "inferno-approve")
    approve = f"{PLAN}/approve"

    with hosted_console(plane, tmp_path) as hosted:
        refused = hosted.logged_in(nobody, namespace).get("/")
        assert refused.status_code == 403
        assert "cannot list resource" in refused.text
        assert "inferno-1" not in refused.text

        bob = hosted.logged_in(reader, namespace)
        answer = bob.send_form(approve, bob.form(PLAN, approve))
        assert answer.status_code == 403
        assert "you need the ClusterRole inferno-approve" in answer.text

        ann = hosted.logged_in(approver, namespace)
        fields = ann.form(PLAN, approve)
        assert ann.send_form(approve, {"digest": fields["digest"]}).status_code == 403
        assert ann.send_form(approve, bob.form(PLAN, approve)).status_code == 403
        assert ann.send_form(approve, fields, "https://evil.test").status_code == 403
        assert phases(scene) == {"inferno-1": "Proposed"}
        assert ann.send_form(approve, fields).status_code == 303
        wait_for_phases(scene, inferno_1="Done")

    log = (tmp_path / "log").read_text()
    assert not [token for token in (nobody, reader, approver) if token in log]


def test_only_a_signed_visit_of_a_valid_token_opens_pages(scene: Scene, tmp_path: Path) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    token = token_of(plane, namespace, "ann", "inferno-view")

    with hosted_console(plane, tmp_path) as hosted:
        assert hosted.browser().get("/").status_code == 401
        assert hosted.browser().log_in("x.y.z", namespace).status_code == 401
        ann, thief = hosted.logged_in(token, namespace), hosted.browser()
        ((name, cookie),) = ann.cookies.items()
        assert token not in cookie
        thief.cookies.set(name, f"{cookie[:-1]}{'A' if cookie[-1] != 'A' else 'B'}")
        assert thief.get("/").status_code == 401
        headers = ann.get("/").headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert ann.send_form("/logout", {}).status_code == 403
        again = hosted.logged_in(token, namespace)
        assert again.send_form("/logout", again.form("/", "/logout")).status_code == 303
        assert again.get("/").status_code == 401
        again.cookies.set(name, cookie)
        plane.kubectl("delete", "serviceaccount", "ann", "--namespace", namespace)
        wait_until(
            lambda: ann.get("/plans").status_code,
            lambda status: status == 401,
            "the API server refuses the token",
            60,
        )
