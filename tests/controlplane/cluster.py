"""A control plane of etcd and kube-apiserver, on loopback, that ends with this process."""

import http.client
import os
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.controlplane.api import Api
from tests.controlplane.binaries import Binaries
from tests.controlplane.client import Client
from tests.controlplane.credentials import Credentials
from tests.controlplane.ports import HOST, on_free_port
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until

API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
CONTROLLERS = "namespace-controller,garbage-collector-controller,clusterrole-aggregation-controller"
DEPLOYMENTS = "deployment-controller,replicaset-controller"
"""The controllers that make pods of Deployments, for `start_controller_manager`."""

TOKEN_LIFETIME = "24h"  # noqa: S105 - how long one is good, not one
# Sockets in the folder instead of ports: nobody else can take or use them. The form is etcd's,
# which wants a port even here; the name is relative to the folder that the programs run in.
ETCD_CLIENT_URL = "unix://etcd:1"
ETCD_PEER_URL = "unix://etcd:2"


class ControlPlane(Client):
    """A real API server with RBAC and TLS, and its etcd; a context manager.

    Processes and files go when the context ends, and also when this process dies within it.

    Attributes
    ----------
    processes
        The programs, their logs and their folder; tests may run more of them there.
    """

    def __init__(self, binaries: Binaries | None = None, more_options: Sequence[str] = ()) -> None:
        self._binaries = binaries or Binaries(os.environ)
        self._more_options = more_options  # of the API server

    def __enter__(self) -> Self:
        # May build, which takes minutes: before anything starts.
        programs = self._binaries.find_all(("etcd", API_SERVER, "kubectl"))
        self.kubectl_program = programs["kubectl"]
        with ExitStack() as stack:
            self.processes = stack.enter_context(Processes())
            self._start()
            self.api = stack.enter_context(Api(self.url, self._credentials))
            # The API server makes it a little after it says that it's ready.
            self.wait_for("namespace", "default", lambda _: True)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        """Everything of this control plane: logs, credentials, data."""
        return self.processes.folder

    @property
    def url(self) -> str:
        """Where the API server is."""
        return f"https://{HOST}:{self._port}"

    @property
    def certificate_authority(self) -> Path:
        """Certificate by which to know the API server."""
        return self._credentials.certificate_authority

    def start_etcd(self) -> None:
        """Start etcd, with the data that are there."""
        self.processes.start("etcd", [self._binaries.find("etcd"), *_etcd_options()])

    def start_api_server(self) -> None:
        """Start the API server again, on the same port; it is ready on return."""
        self._start_server(API_SERVER, self._api_server_options(self._port), self._port)

    def stop_api_server(self) -> None:
        """End the API server as a crash would (asked politely it waits for watches, a minute).

        Its data stay in etcd.
        """
        self.processes.stop(API_SERVER, signal.SIGKILL)

    def start_controller_manager(
        self, controllers: str = CONTROLLERS, more_options: Sequence[str] = ()
    ) -> None:
        """Start controllers: those that end namespaces and what owners leave, or others."""
        self._controllers = controllers
        self._controller_options = more_options
        self._start_on_free_port(CONTROLLER_MANAGER, self._controller_manager_options)

    def stop_controller_manager(self) -> None:
        self.processes.stop(CONTROLLER_MANAGER, signal.SIGKILL)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with exactly the rights of an existing service account."""
        created = self.kubectl(
            "create", "token", name, "--namespace", namespace, f"--duration={TOKEN_LIFETIME}"
        )
        path = self.folder / f"{namespace}-{name}.kubeconfig"
        return self._credentials.write_token_kubeconfig(path, self.url, created.stdout.strip())

    def detach(self, record: Path, contents: Mapping[str, str]) -> None:
        """Leave everything running when the context ends; see `kept.py`."""
        self.processes.detach(record, {"kubeconfig": str(self.kubeconfig), **contents})

    def _start(self) -> None:
        self._credentials = Credentials.create(self.folder / "credentials")
        self.start_etcd()
        self._port = self._start_on_free_port(API_SERVER, self._api_server_options)
        self.kubectl_cache = self.folder / "kubectl-cache"
        self.kubeconfig = self._credentials.write_admin_kubeconfig(
            self.folder / "admin.kubeconfig", self.url
        )

    def _start_on_free_port(self, name: str, options: Callable[[int], list[str]]) -> int:
        return on_free_port(name, lambda port: self._start_server(name, options(port), port))

    def _start_server(self, name: str, options: list[str], port: int) -> None:
        self.processes.start(name, [self._binaries.find(name), *options])
        wait_until(
            lambda: self._health(name, port),
            lambda health: health == "ok",
            f"{name} ready",
        )

    def _health(self, name: str, port: int) -> str:
        """Return what a server says of itself, "ok" when it's ready."""
        for program in ("etcd", name):
            self.processes.require_running(program)
        path = "/readyz" if name == API_SERVER else "/healthz"
        return _https_get(port, path, self._credentials.certificate_authority)

    def _api_server_options(self, port: int) -> list[str]:
        files = self._credentials
        return [
            *_serving_options(port, files),
            f"--etcd-servers={ETCD_CLIENT_URL}",
            f"--client-ca-file={files.certificate_authority}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files.service_account_key}",
            f"--service-account-signing-key-file={files.service_account_key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            *self._more_options,
        ]

    def _controller_manager_options(self, port: int) -> list[str]:
        return [
            *_serving_options(port, self._credentials),
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={self._controllers}",
            "--leader-elect=false",
            *self._controller_options,
        ]


def _etcd_options() -> list[str]:
    return [
        "--name=inferno",
        "--data-dir=etcd-data",
        "--unsafe-no-fsync",  # nobody reads the data after a crash of the machine
        f"--listen-client-urls={ETCD_CLIENT_URL}",
        f"--advertise-client-urls={ETCD_CLIENT_URL}",
        f"--listen-peer-urls={ETCD_PEER_URL}",
        f"--initial-advertise-peer-urls={ETCD_PEER_URL}",
        f"--initial-cluster=inferno={ETCD_PEER_URL}",
    ]


def _serving_options(port: int, files: Credentials) -> list[str]:
    return [
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={files.server_certificate}",
        f"--tls-private-key-file={files.server_key}",
    ]


def _https_get(port: int, path: str, certificate_authority: Path) -> str:
    """Body of a successful answer, else what went wrong."""
    context = ssl.create_default_context(cafile=certificate_authority)
    connection = http.client.HTTPSConnection(HOST, port, timeout=5, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
    return body if response.status == http.HTTPStatus.OK else f"{response.status}: {body}"
