"""Credentials that a plugin gives for 20 s, for the operator, `top --watch` and the console."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.cluster.background import Background
from tests.cluster.scene import Scene
from tests.cluster.test_console import console
from tests.cluster.test_kubectl_plugin import Terminal, on_terminal
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.plugin import Plugin

pytestmark = pytest.mark.usefixtures("crds_installed")

GOOD_S = 20
LASTS_S = 90
LEEWAY_S = 60
"""For so long the API server takes a token that has expired."""

PLUGIN = """\
#!/bin/sh
echo >> "$CALLS"
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
printf '"status":{"token":"%s","expirationTimestamp":"%s"}}' \\
  "$(cat "$TOKEN_FILE")" "$(date -u -d "+$SAID seconds" +%Y-%m-%dT%H:%M:%SZ)"
"""


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


class Tokens:
    """Tokens of a service account that are good for a short time."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str) -> None:
        pem = (plane.folder / "credentials" / "service-account.key").read_bytes()
        self._key = serialization.load_pem_private_key(pem, None)
        uid = plane.get("serviceaccount", name, namespace)["metadata"]["uid"]
        account = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        issuer = "https://kubernetes.default.svc"
        self._claims = {
            "iss": issuer,
            "aud": [issuer],
            "kubernetes.io": account,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }

    def make(self, good_s: float) -> str:
        """Return one that is refused after so many seconds."""
        now = int(time.time())
        times = {"iat": now - 3600, "nbf": now - 3600, "exp": now + int(good_s) - LEEWAY_S}
        head = encoded(json.dumps({"alg": "ES256", "typ": "JWT"}).encode())
        signed = f"{head}.{encoded(json.dumps({**self._claims, **times}).encode())}"
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)
        signature = self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
        pair = b"".join(part.to_bytes(32, "big") for part in decode_dss_signature(signature))
        return f"{signed}.{encoded(pair)}"


class FreshToken(Background):
    """Keeps a token in a file that is good for `GOOD_S` seconds at any time."""

    def __init__(self, tokens: Tokens, file: Path) -> None:
        super().__init__()
        self._tokens, self._file = tokens, file
        self._write()

    def work(self) -> None:
        while not self._stopped.wait(1):
            self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(self._tokens.make(GOOD_S + 1))
        new.replace(self._file)


def exec_kubeconfig(plane: ControlPlane, folder: Path, namespace: str, said_s: int) -> Path:
    """A kubeconfig whose user is what a plugin prints; it says for how long that is good."""
    program = folder / "plugin.sh"
    program.write_text(PLUGIN)
    program.chmod(0o755)
    document = yaml.safe_load(plane.kubeconfig.read_text())
    variables = {"TOKEN_FILE": folder / "token", "CALLS": folder / "calls", "SAID": said_s}
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "interactiveMode": "Never",
        "env": [{"name": name, "value": str(value)} for name, value in variables.items()],
    }
    document["users"][0]["user"] = {"exec": plugin}
    document["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "exec.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def tokens(control_plane: ControlPlane, namespace: str) -> Iterator[Tokens]:
    """Tokens of a service account that may do everything."""
    place = ("--namespace", namespace)
    control_plane.kubectl("create", "serviceaccount", "exec", *place)
    binding = ("clusterrolebinding", f"exec-{namespace}")
    account = f"--serviceaccount={namespace}:exec"
    control_plane.kubectl("create", *binding, "--clusterrole=cluster-admin", account)
    yield Tokens(control_plane, namespace, "exec")
    control_plane.kubectl("delete", *binding)


@pytest.mark.extended
@pytest.mark.minutes
@pytest.mark.parametrize("said_s", [GOOD_S, 3600], ids=["expires", "is revoked"])
def test_nobody_is_refused_for_long_where_credentials_end_after_20_s(
    said_s: int, scene: Scene, tokens: Tokens, operator: StartOperator, tmp_path: Path
) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    scene.apply_sample("fleet")
    plugin = Plugin(plane, namespace, tmp_path)
    kubeconfig = exec_kubeconfig(plane, tmp_path, namespace, said_s)
    plugin.environment = {**plugin.environment, "KUBECONFIG": str(kubeconfig)}
    name, rounds = "premium-mistral-7b", 0

    with FreshToken(tokens, tmp_path / "token"):
        process = operator(kubeconfig=kubeconfig)
        with (
            on_terminal(plugin, "top", "--watch", "--interval", "1") as terminal,
            console(kubeconfig, namespace, tmp_path / "log") as opened,
        ):
            began, has_restarted = time.monotonic(), False
            while time.monotonic() < began + LASTS_S:
                rounds += 1
                if not has_restarted and time.monotonic() > began + LASTS_S / 2:
                    plane.stop_api_server()
                    plane.start_api_server()
                    has_restarted = True
                wanted = 3 + rounds
                follow(scene, terminal, name, wanted)
                wait_until(
                    lambda: current(opened.text("/?format=json"), name),
                    lambda shown, wanted=wanted: f": {wanted}" in shown,  # type: ignore[misc]  # a default
                    "the console shows it",
                )
                scene.optimize("fleet")
                time.sleep(7)  # the time in which credentials end is the subject
            shown, seconds = terminal.shown, time.monotonic() - began

    calls = (tmp_path / "calls").read_text().count("\n")
    print(f"{rounds} rounds in {seconds:.0f} s, {calls} calls of the plugin")
    print("\n".join(line for line in process.log.splitlines() if "credentials" in line))
    assert "HTTP 401" not in process.log
    assert "HTTP 401" not in shown
    assert process.log.count("loaded anew, as they expire") == 1
    assert seconds / 20 < calls < 3 * seconds / 10  # of three processes, two of which ask rarely


def follow(scene: Scene, terminal: Terminal, name: str, replicas: int) -> None:
    """Change what runs of a Server, and wait until the terminal shows it."""
    change = {"spec": {"currentAlloc": {"numReplicas": replicas}}}
    scene.patch("server", name, change)
    terminal.wait_for(f"{name} .*{replicas} x A100")


def current(page: str, name: str) -> str:
    """What a page says that runs of a server."""
    (server,) = (each for each in json.loads(page)["servers"] if each["name"] == name)
    return json.dumps(server["currentAlloc"])
