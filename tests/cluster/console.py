"""Consoles that run, and somebody who may look at a namespace."""

import base64
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import httpx
import trustme
import yaml

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.ports import free_port
from tests.controlplane.waiting import PATIENCE_S, wait_until

KUBECTL_INFERNO = (str(Path(sys.executable).with_name("kubectl-inferno")),)
COMMAND = (*KUBECTL_INFERNO, "console", "--no-browser")
PEOPLE = ROOT / "manifests" / "kustomize" / "rbac" / "people"
HIDDEN = re.compile(r'name="(digest|form)" value="([^"]*)"')


@contextmanager
def running_console(kubeconfig: Path, namespace: str, log: Path, *more: str) -> Iterator[str]:
    """Yield the address that a console prints; `more` are other options."""
    options = ("--kubeconfig", str(kubeconfig), "--namespace", namespace, *more)
    with (
        log.open("w") as written,
        subprocess.Popen(
            [*COMMAND, *options], stdout=subprocess.PIPE, stderr=written, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, log.read_text()


@contextmanager
def running_proxied_console(plane: ControlPlane, folder: Path) -> Iterator[str]:
    """Yield the origin of a console without rights; `console-ca.crt` in the folder signs it."""
    origin, authority = f"https://127.0.0.1:{free_port()}", trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "console-ca.crt"))
    trust = ssl.create_default_context(cafile=folder / "console-ca.crt")
    options = proxied_options(plane, folder, origin, authority)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*KUBECTL_INFERNO, "console-server", *options], stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_until(lambda: _answers(origin, trust), bool, "the console answers")
            yield origin
        finally:
            process.terminate()


def proxied_options(
    plane: ControlPlane, folder: Path, origin: str, authority: trustme.CA
) -> Sequence[str]:
    """The options of `console-server`, with the files that they name."""
    certificate = folder / "tls.crt"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    server = api_server(plane, folder)
    return (
        *("--origin", origin, "--certificate", str(certificate)),
        *("--host", "127.0.0.1", "--port", origin.rpartition(":")[2]),
        *("--api-server", server.url, "--api-server-ca", str(server.authorities)),
    )


def api_server(plane: ControlPlane, folder: Path) -> ApiServerAddress:
    """Where a control plane is, with its authorities in a file in the folder."""
    cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    authorities = folder / "ca.crt"
    authorities.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return ApiServerAddress(cluster["server"], authorities)


def _answers(origin: str, trust: ssl.SSLContext) -> bool:
    try:
        answer = httpx.get(origin, verify=trust, trust_env=False, timeout=PATIENCE_S)
    except httpx.TransportError:
        return False
    return answer.status_code == HTTPStatus.UNAUTHORIZED


def token_of(plane: ControlPlane, namespace: str, name: str, *roles: str) -> str:
    """The token of somebody with these roles in a namespace."""
    user = yaml.safe_load(user_in(plane, namespace, name, *roles).read_text())["users"][0]["user"]
    return str(user["token"])


def user_in(control_plane: ControlPlane, namespace: str, name: str, *roles: str) -> Path:
    """A kubeconfig of somebody with these roles in a namespace."""
    for role in ("approve", "view"):
        control_plane.kubectl("apply", "--filename", PEOPLE / f"{role}.yaml")
    control_plane.kubectl("create", "serviceaccount", name, "--namespace", namespace)
    for role in roles:
        control_plane.kubectl(
            *("create", "rolebinding", f"{name}-{role}", "--namespace", namespace),
            *(f"--clusterrole={role}", f"--serviceaccount={namespace}:{name}"),
        )
    return control_plane.service_account_kubeconfig(namespace, name)


def hidden_fields(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form of a page that does something."""
    _, _, after = page.partition(f'action="{action}"')
    return dict(HIDDEN.findall(after.partition("</form>")[0]))
