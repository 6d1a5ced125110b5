"""`kubectl inferno console-server` on a real API server: each person has the rights of a token."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cluster.console import hidden_fields, running_hosted_console, token_of
from tests.cluster.scene import Scene
from tests.cluster.test_plans import phases, propose, wait_for_phases
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")

PLAN = "/plans/inferno-1"


class Hosted:
    """A console in a cluster, which browsers reach with TLS."""

    def __init__(self, origin: str, trust: ssl.SSLContext, opened: ExitStack) -> None:
        self.origin, self._trust, self._opened = origin, trust, opened

    def browser(self) -> "Visitor":
        return self._opened.enter_context(Visitor(self.origin, self._trust))

    def logged_in(self, token: str, namespace: str) -> "Visitor":
        visitor = self.browser()
        answer = visitor.log_in(token, namespace)
        assert answer.status_code == 303, answer.text
        return visitor


class Visitor(httpx.Client):
    """A browser of one person."""

    def __init__(self, origin: str, trust: ssl.SSLContext) -> None:
        super().__init__(base_url=origin, verify=trust, trust_env=False, timeout=PATIENCE_S)
        self.origin = origin

    def log_in(self, token: str, namespace: str) -> httpx.Response:
        return self.send_form("/login", {"token": token, "namespace": namespace})

    def send_form(self, path: str, fields: dict[str, str], origin: str = "") -> httpx.Response:
        return self.post(path, data=fields, headers={"Origin": origin or self.origin})

    def form(self, path: str, action: str) -> dict[str, str]:
        """Hidden fields of the form that does something."""
        return hidden_fields(self.get(path).text, action)


@contextmanager
def hosted(plane: ControlPlane, folder: Path) -> Iterator[Hosted]:
    with running_hosted_console(plane, folder) as origin, ExitStack() as opened:
        yield Hosted(origin, ssl.create_default_context(cafile=folder / "console-ca.crt"), opened)


@pytest.mark.extended
def test_each_person_has_the_rights_of_a_token(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    propose(scene, operator)
    nobody = token_of(plane, namespace, "eve")
    reader = token_of(plane, namespace, "bob", "inferno-view")
    approver = token_of(plane, namespace, "ann", "inferno-view", "inferno-approve")
    approve = f"{PLAN}/approve"

    with hosted(plane, tmp_path) as console:
        refused = console.logged_in(nobody, namespace).get("/")
        assert refused.status_code == 403
        assert "cannot list resource" in refused.text
        assert "inferno-1" not in refused.text

        bob = console.logged_in(reader, namespace)
        answer = bob.send_form(approve, bob.form(PLAN, approve))
        assert answer.status_code == 403
        assert "you need the ClusterRole inferno-approve" in answer.text

        ann = console.logged_in(approver, namespace)
        fields = ann.form(PLAN, approve)
        assert ann.send_form(approve, {"digest": fields["digest"]}).status_code == 403
        assert ann.send_form(approve, bob.form(PLAN, approve)).status_code == 403
        assert ann.send_form(approve, fields, "https://evil.test").status_code == 403
        assert phases(scene) == {"inferno-1": "Proposed"}
        assert ann.send_form(approve, fields).status_code == 303
        wait_for_phases(scene, inferno_1="Written")

    log = (tmp_path / "log").read_text()
    assert not [token for token in (nobody, reader, approver) if token in log]


@pytest.mark.extended
def test_only_a_signed_visit_of_a_valid_token_opens_pages(scene: Scene, tmp_path: Path) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    token = token_of(plane, namespace, "ann", "inferno-view")

    with hosted(plane, tmp_path) as console:
        assert console.browser().get("/").status_code == 401
        assert console.browser().log_in("x.y.z", namespace).status_code == 401
        ann, thief = console.logged_in(token, namespace), console.browser()
        ((name, cookie),) = ann.cookies.items()
        assert token not in cookie
        visit, _, signature = cookie.rpartition(".")
        # The last character has bits that mean nothing; all of those of the first one count.
        first = "A" if signature[0] != "A" else "B"
        thief.cookies.set(name, f"{visit}.{first}{signature[1:]}")
        assert thief.get("/").status_code == 401
        headers = ann.get("/").headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert ann.send_form("/logout", {}).status_code == 403
        again = console.logged_in(token, namespace)
        assert again.send_form("/logout", again.form("/", "/logout")).status_code == 303
        assert again.get("/").status_code == 401
        again.cookies.set(name, cookie)
        plane.kubectl("delete", "serviceaccount", "ann", "--namespace", namespace)
        wait_until(
            lambda: {ann.get(path).status_code for path in ("/plans", "/")},
            lambda statuses: statuses == {401},
            "the API server refuses the token",
        )
