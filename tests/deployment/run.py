"""A deployment at work on the samples, its pods run as the image runs them."""

import asyncio
import json
import os
import ssl
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import httpx
import trustme
from prometheus_client.parser import text_string_to_metric_families

from inferno_operator.resources import API_VERSION, RESOURCES, Plan
from inferno_operator.resources.objects import Key, Reference, kind_of
from inferno_operator.runtime.ports import FieldManager
from inferno_operator.runtime.updates import Writer
from tests.cluster.connection import connected
from tests.cluster.scene import FINALIZER, Scene
from tests.conftest import ROOT
from tests.controlplane import ControlPlane, ControlPlaneError
from tests.controlplane.errors import ProgramError
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.ports import free_port
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.deployment.pods import POD_IP, Pod, service_account
from tests.deployment.prometheus import Scrape
from tests.deployment.rendering import NAMESPACE, Manifest, find, kustomize

OPERATOR, OPTIMIZER = "inferno-operator", "inferno-optimizer"
OPTIMIZERS = {
    "small": "inferno",
    "fleet": "fleet",
    "troubles": "troubles",
    "model-booster": "inferno",
}
"""The Optimizer of each sample."""

CLUSTER_WIDE = (
    "clusterroles",
    "clusterrolebindings",
    "customresourcedefinitions",
    "namespaces",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
"""Kinds whose objects a deployment may leave behind; the others go with its namespace."""


class Cluster:
    """A control plane to deploy to."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self.control_plane = control_plane
        self._folder = folder
        self._count = count(1)

    def apply(self, manifests: list[Manifest]) -> str:
        """Apply what was rendered, as people do, and return what they are warned of.

        Definitions are served on return.
        """
        text = _listed(manifests)
        options = ("--server-side", "--validate=strict", "-f", "-")
        applied = self.control_plane.kubectl("apply", *options, input=text)
        self.control_plane.wait_until_served()
        return applied.stderr

    def refusal(self, pod: Pod, **changes: object) -> str:
        """Why the API server would not admit a pod, "" if it would."""
        document = {"apiVersion": "v1", "kind": "Pod", **pod.template(**changes)}
        options = ("--dry-run=server", "--validate=strict", "-f", "-")
        text = json.dumps(document)
        return self.control_plane.kubectl("create", *options, input=text, check=False).stderr

    def delete(self, manifests: list[Manifest]) -> None:
        """Delete it again, and wait until it is gone."""
        self.control_plane.kubectl("delete", "--wait", "-f", "-", input=_listed(manifests))

    def delete_by_name(self, names: Collection[str]) -> None:
        """Delete objects, namespaces first: they need the definitions of what is in them."""
        namespaces = {name for name in names if name.startswith("namespace/")}
        for some in filter(None, (namespaces, set(names) - namespaces)):
            self.control_plane.kubectl("delete", *some)

    def cluster_wide_objects(self) -> set[str]:
        """Names of what is in no namespace."""
        names = self.control_plane.kubectl("get", ",".join(CLUSTER_WIDE), "--output=name").stdout
        return set(names.split())

    def audit_log(self) -> list[str]:
        """Lines that tell what accounts of the operator's namespace asked for."""
        return (self.control_plane.folder / "audit.log").read_text().splitlines()

    @contextmanager
    def pods(self, manifests: list[Manifest], image: Path, replicas: int = 2) -> Iterator["Pods"]:
        """Run pods of the operator from an image, and one of the optimizer where there is one.

        As in a pod the operator's Secrets, user and file system are those of the manifests;
        ports are free ones, as all pods share this machine's address.
        """
        secrets = _optimizer_secrets()
        port = {"INFERNO_PORT": str(free_port(POD_IP))}
        names = {m["metadata"]["name"] for m in manifests if m["kind"] == "Deployment"}
        with ExitStack() as stack:
            optimizer = None
            if OPTIMIZER in names:
                pod = Pod(find(manifests, "Deployment", OPTIMIZER), secrets)
                optimizer = stack.enter_context(self._optimizer(pod, image, port))
            pod = Pod(find(manifests, "Deployment", OPERATOR), secrets)
            variables = {**self._api_server(), **(port if optimizer else {})}
            operators = [
                stack.enter_context(self._operator(pod, image, variables)) for _ in range(replicas)
            ]
            for operator in operators:
                operator.wait_until_ready()
            yield Pods(operators, optimizer)

    @contextmanager
    def _operator(
        self, pod: Pod, image: Path, variables: Mapping[str, str]
    ) -> Iterator[OperatorProcess]:
        name = f"operator-pod-{next(self._count)}"
        account = service_account(self.control_plane, pod)
        command = pod.command(image, self._folder / name, variables, account)
        process = OperatorProcess(
            self.control_plane.processes, name, Path(os.devnull), command=command
        )
        try:
            yield process
        except ControlPlaneError as error:
            raise ProgramError(f"{error}; the pod's last lines:\n{process.log_tail}") from error
        assert process.stop() == 0, process.log_tail

    @contextmanager
    def _optimizer(
        self, pod: Pod, image: Path, port: Mapping[str, str]
    ) -> Iterator["OptimizerPod"]:
        processes = self.control_plane.processes
        name = f"optimizer-pod-{next(self._count)}"
        folder = self._folder / name
        processes.start(name, pod.command(image, folder, port, {}))
        log = processes.log_path(name)
        wait_until(log.read_text, lambda text: "listening on https://" in text, OPTIMIZER)
        yield OptimizerPod(processes, name, int(port["INFERNO_PORT"]), pod.secrets)
        if processes.exit_code(name) is None:
            assert processes.stop(name) == 0, processes.log_tail(name)

    def _api_server(self) -> dict[str, str]:
        port = self.control_plane.url.rpartition(":")[2]
        return {"KUBERNETES_SERVICE_HOST": POD_IP, "KUBERNETES_SERVICE_PORT": port}


@dataclass(frozen=True, slots=True)
class OptimizerPod:
    processes: Processes
    name: str
    port: int
    secrets: Mapping[str, Mapping[str, bytes]]

    def scrape(self, seconds: int) -> Scrape:
        """Its metrics, got as its ServiceMonitor says."""
        authority = self.secrets["inferno-optimizer-tls"]["ca.crt"].decode()
        token = self.secrets["inferno-optimizer-token"]["token"].decode().strip()
        trust = ssl.create_default_context(cadata=authority)
        with httpx.Client(verify=trust, timeout=PATIENCE_S) as client:
            response = client.get(
                f"https://{POD_IP}:{self.port}/metrics",
                headers={"Authorization": f"Bearer {token}"},
                extensions={"sni_hostname": OPTIMIZER},
            ).raise_for_status()
        return Scrape(seconds, response.text, OPTIMIZER, self.name)

    def stop(self) -> None:
        """End it while the operator goes on."""
        self.processes.stop(self.name)


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods at work; the optimizer's is there where a Deployment of it is."""

    operators: list[OperatorProcess]
    optimizer: OptimizerPod | None

    def scrapes(self, seconds: int) -> list[Scrape]:
        pages = [
            Scrape(seconds, metrics(operator), OPERATOR, operator.name)
            for operator in self.operators
        ]
        return [*pages, self.optimizer.scrape(seconds)] if self.optimizer else pages


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples in namespaces that an operator serves."""

    control_plane: ControlPlane
    namespaces: Mapping[str, str]
    """By the name of the sample."""

    def apply(self) -> None:
        """Apply them; each of ours has a finalizer that another way to run has left."""
        objects = [item for sample in self.namespaces for item in self._objects(sample)]
        self.control_plane.api.apply([*self.own_namespaces, *objects])

    @property
    def own_namespaces(self) -> list[Manifest]:
        """Namespaces that are theirs alone."""
        names = sorted(set(self.namespaces.values()) - {NAMESPACE})
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
        ]

    def optimize(self) -> None:
        """Ask for an optimization of each, and wait for the answers."""
        for sample in self.namespaces:
            self.scene(sample).request(OPTIMIZERS[sample])
        for sample in self.namespaces:
            self.scene(sample).wait_until_done(OPTIMIZERS[sample])

    def scene(self, sample: str) -> Scene:
        return Scene(self.control_plane, self.namespaces[sample])

    def _objects(self, sample: str) -> Iterator[Manifest]:
        for item in kustomize(self.control_plane.kubectl_program, ROOT / "samples" / sample):
            ours = item["apiVersion"] == API_VERSION
            finalizers = {"finalizers": [FINALIZER]} if ours else {}
            metadata = {"namespace": self.namespaces[sample], **finalizers}
            yield {**item, "metadata": {**item["metadata"], **metadata}}


def metrics(operator: OperatorProcess) -> str:
    return httpx.get(f"{operator.health_url}/metrics", timeout=PATIENCE_S).raise_for_status().text


def leads(operator: OperatorProcess) -> bool:
    """Whether it says so, in its metrics."""
    families = {f.name: f for f in text_string_to_metric_families(metrics(operator))}
    return bool(families["inferno_leader"].samples[0].value)


def write_out_of_date(control_plane: ControlPlane, namespace: str) -> None:
    """Write statuses as the operator does, with its rights, of objects that have changed since.

    That they changed is too rare to wait for, and so is that a Plan is deleted.
    """
    kubeconfig = control_plane.service_account_kubeconfig(NAMESPACE, "inferno-operator")
    asyncio.run(_write_out_of_date(control_plane, kubeconfig, namespace))


def _now() -> datetime:
    return datetime.now(UTC)


async def _write_out_of_date(control_plane: ControlPlane, kubeconfig: Path, namespace: str) -> None:
    async with connected(kubeconfig, _now) as api_server:
        writer = Writer(api_server, FieldManager.DECISIONS, _now)
        for resource in RESOURCES:
            metadata = control_plane.items(resource.plural, namespace)[0]["metadata"]
            key = Key(namespace, metadata["name"])
            reference = Reference(kind_of(resource), key, metadata["uid"], version="1")
            await writer.apply(reference, status={"active": True})
            if resource is Plan:  # what happens to the oldest one of a long history
                await api_server.delete(reference)


def _optimizer_secrets() -> dict[str, dict[str, bytes]]:
    """What the remote overlay asks for, as cert-manager and a person would make it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("inferno-optimizer")
    return {
        "inferno-optimizer-tls": {
            "ca.crt": authority.cert_pem.bytes(),
            "tls.crt": certificate.cert_chain_pems[0].bytes(),
            "tls.key": certificate.private_key_pem.bytes(),
        },
        "inferno-optimizer-token": {"token": b"hard to guess\n"},
    }


def _listed(manifests: list[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
