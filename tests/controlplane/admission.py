"""`inferno admission` as a process of its own, and the webhook that leads to it."""

import base64
import json
import os
import ssl
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
import yaml

from inferno_operator.resources import GROUP, VERSION
from tests.controlplane.client import Client
from tests.controlplane.operator_process import COMMAND, own_variables
from tests.controlplane.ports import HOST, free_port
from tests.controlplane.processes import ROOT, Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.unit.operator.objects import kind_of

Manifest = dict[str, Any]
WEBHOOK = ROOT / "manifests" / "kustomize" / "components" / "admission" / "webhook.yaml"


@dataclass(frozen=True)
class Admission:
    """A running `inferno admission`.

    Attributes
    ----------
    name
        Of the process and its log.
    authority
        Certificate by which the API server may know it.
    """

    processes: Processes
    name: str
    pid: int
    port: int
    authority: Path

    @classmethod
    def start(cls, processes: Processes, name: str, kubeconfig: Path) -> "Admission":
        """Start one; it may not answer yet."""
        authority, folder = trustme.CA(), processes.folder / name
        folder.mkdir(exist_ok=True)
        own, bundle = authority.issue_cert(HOST), folder / "ca.crt"
        certificate, key = folder / "tls.crt", folder / "tls.key"
        authority.cert_pem.write_to_path(bundle)
        own.cert_chain_pems[0].write_to_path(certificate)
        own.private_key_pem.write_to_path(key)
        port = free_port()
        options = [f"--port={port}", f"--tls-cert={certificate}", f"--tls-key={key}"]
        command = [*COMMAND[:-1], "admission", *options]
        variables = own_variables() | {"KUBECONFIG": str(kubeconfig)}
        pid = processes.start(name, command, variables)
        return cls(processes, name, pid, port, bundle)

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self.processes.exit_code(self.name)

    @property
    def seconds(self) -> float:
        """Processor time that it has taken until now [s]."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def log(self) -> str:
        """Everything it logged so far."""
        return self.processes.log_path(self.name).read_text(errors="replace")

    def wait_for_end(self) -> int:
        """Wait until it ends by itself, and return its exit status."""
        state = wait_until(
            lambda: self.log if self.exit_code is None else self.exit_code,
            lambda state: isinstance(state, int),
            f"the end of {self.name}",
        )
        assert isinstance(state, int)
        return state

    def review(self, manifest: Manifest, namespace: str) -> Manifest:
        """Ask as the API server does, and return the response."""
        metadata = {**manifest["metadata"], "namespace": namespace, "uid": "u"}
        request = {
            "uid": "r",
            "operation": "CREATE",
            "userInfo": {"username": "somebody"},
            "resource": {"group": GROUP, "version": VERSION, "resource": kind_of(manifest).plural},
            "object": {**manifest, "metadata": metadata},
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        call = urllib.request.Request(
            f"https://{HOST}:{self.port}/check", json.dumps(body).encode()
        )
        context = ssl.create_default_context(cafile=self.authority)
        with urllib.request.urlopen(call, timeout=PATIENCE_S, context=context) as answer:  # noqa: S310
            response: Manifest = json.load(answer)["response"]
        return response

    def wait_for_words(self, manifest: Manifest, namespace: str, words: str) -> Manifest:
        """Wait until it warns of an object in some words, and return the response."""

        def answer() -> Manifest:
            self.processes.require_running(self.name)
            with suppress(OSError):  # it does not listen yet
                return self.review(manifest, namespace)
            return {}

        def has_words(response: Manifest) -> bool:
            return any(words in warning for warning in response.get("warnings", ()))

        return wait_until(answer, has_words, f"a warning of {words!r}")


@contextmanager
def webhook(plane: Client, namespace: str, port: int, authority: Path) -> Iterator[None]:
    """Let the API server ask at a port of loopback about the objects of a namespace."""
    manifest = yaml.safe_load(WEBHOOK.read_text())
    manifest["metadata"]["name"] = name = f"admission-{namespace}"
    (hook,) = manifest["webhooks"]
    bundle = base64.b64encode(authority.read_bytes()).decode()
    hook["clientConfig"] = {"url": f"https://{HOST}:{port}/check", "caBundle": bundle}
    hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    try:
        yield
    finally:
        plane.kubectl("delete", "validatingwebhookconfiguration", name)


def apply(plane: Client, namespace: str, objects: Sequence[Manifest], *options: str) -> list[str]:
    """Apply objects as a person does; the warnings that kubectl prints."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})
    command = ("apply", "--namespace", namespace, "-f", "-", *options)
    lines = plane.kubectl(*command, input=listed).stderr.splitlines()
    return [line.removeprefix("Warning: ") for line in lines]
